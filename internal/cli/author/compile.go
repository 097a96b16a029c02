// Package author is the verbs by which authors make and keep what servers read of a repository: its workflows and their
// lock file, its fixtures, and its hooks.
package author

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kici/internal/author/compile"
	"kici/internal/cli/console"
)

// compileRun is one call of kici compile.
type compileRun struct {
	console.Process
	o                           compile.Options
	watch, json, quiet, verbose bool
}

// CompileCommand is kici compile.
func CompileCommand(p console.Process) *cobra.Command {
	c := &compileRun{Process: p}
	cmd := &cobra.Command{
		Use:     "compile",
		Short:   "Compile the workflows of this repository into their lock file",
		Long:    "Compiles .kici/workflows/* into .kici/kici.lock.json, from which servers decide what runs. Commit both.\nNothing is written when there is an error. The exit code is 0 when all went well, 1 for mistakes in the workflows, and 2 for a\nlock file that --check finds out of date and for a call that cannot be followed.",
		Example: "  kici compile\n  kici compile --check   # in a hook or a build: fails when the lock file is out of date\n  kici compile --watch",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.o.Check, "check", false, "write nothing; fail when the lock file is not what would be written")
	f.BoolVar(&c.watch, "watch", false, "compile again after each change, until interrupted")
	f.BoolVar(&c.o.Typecheck, "typecheck", false, "check types with the TypeScript compiler of the repository, too")
	f.StringVar(&c.o.KiciDir, "kici-dir", compile.DefaultDir, "folder of the workflows, from the root of the repository")
	f.StringVar(&c.o.Dir, "dir", ".", "folder in the repository")
	f.BoolVar(&c.quiet, "quiet", false, "print only what is wrong")
	f.BoolVar(&c.verbose, "verbose", false, "tell of each file what was made of it")
	f.BoolVar(&c.json, "json", false, "print one JSON object")
	return cmd
}

func (c *compileRun) run(ctx context.Context) error {
	switch {
	case c.watch && (c.o.Check || c.json):
		return console.Usage("--watch goes with neither --check nor --json")
	case c.quiet && c.verbose:
		return console.Usage("--quiet and --verbose cannot both be")
	}
	var err error
	if c.o.Dir, err = workflowsRoot(ctx, c.o.Dir, c.o.KiciDir); err != nil {
		return err
	}
	if c.watch {
		return c.watchOn(ctx)
	}
	if _, eyes := console.Terminal(c.Stderr); eyes && c.o.Typecheck {
		fmt.Fprintln(c.Stderr, "Checking types …") // which takes seconds
	}
	result, err := compile.Compile(ctx, c.o)
	if c.json {
		return c.printResult(result, err)
	}
	return c.text(result, err)
}

// watchOn prints each compilation as text does. To be interrupted is how it ends.
func (c *compileRun) watchOn(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := compile.Watch(ctx, c.o, func(result compile.Result, err error) {
		var told *console.ExitError
		if err := c.text(result, err); err != nil && !errors.As(err, &told) {
			fmt.Fprintln(c.Stderr, err)
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *compileRun) text(result compile.Result, err error) error {
	var wrong compile.Diagnostics
	if errors.As(err, &wrong) {
		fmt.Fprintln(c.Stderr, wrong.Error())
		return &console.ExitError{Code: console.ExitFailure}
	}
	if err != nil {
		return NoFolder(err)
	}
	for _, w := range result.Warnings {
		fmt.Fprintln(c.Stderr, w.String())
	}
	if c.verbose {
		for _, s := range result.Sources {
			c.source(s)
		}
	}
	switch {
	case c.o.Check && result.Changed:
		fmt.Fprintf(c.Stderr, "%s is out of date: run kici compile and commit it\n", result.Path)
		return &console.ExitError{Code: console.ExitUsage}
	case c.quiet:
	case c.o.Check:
		fmt.Fprintf(c.Stdout, "%s is up to date\n", result.Path)
	default:
		done := fmt.Sprintf("%s is up to date", result.Path)
		if result.Changed {
			done = "Wrote " + result.Path
		}
		fmt.Fprintf(c.Stdout, "%s: %s, %s\n", done, console.Plural(result.Workflows, "workflow"), console.Plural(result.Jobs, "job"))
	}
	return nil
}

// NoFolder makes a mistake of the call of a folder that cannot be one of workflows.
func NoFolder(err error) error {
	if errors.Is(err, compile.ErrFolder) {
		return console.Usage("%w", err)
	}
	return err
}

// source tells what was made of a file.
func (c *compileRun) source(s compile.Source) {
	host := "runs on the embedded host"
	if s.NeedsNode != "" {
		host = "runs on Node: " + s.NeedsNode
	}
	fmt.Fprintf(c.Stdout, "%s: %s\n  %s\n", s.File, cmp.Or(strings.Join(s.Workflows, ", "), "no workflow"), host)
	if len(s.Imports) > 0 {
		fmt.Fprintf(c.Stdout, "  imports %s\n", strings.Join(s.Imports, ", "))
	}
	if len(s.Hashed) > 0 {
		fmt.Fprintf(c.Stdout, "  hashFiles %s\n", strings.Join(s.Hashed, ", "))
	}
}

// printResult prints what happened as one object, errors too.
func (c *compileRun) printResult(result compile.Result, err error) error {
	body := struct {
		OK          bool                `json:"ok"`
		Path        string              `json:"path,omitempty"`
		Changed     bool                `json:"changed"`
		Workflows   int                 `json:"workflows"`
		Jobs        int                 `json:"jobs"`
		Sources     []compile.Source    `json:"sources,omitempty"` // with --verbose
		Diagnostics compile.Diagnostics `json:"diagnostics"`
	}{OK: err == nil && !(c.o.Check && result.Changed), Path: result.Path, Changed: result.Changed, Workflows: result.Workflows, Jobs: result.Jobs,
		Diagnostics: append(compile.Diagnostics{}, result.Warnings...)}
	if c.verbose {
		body.Sources = result.Sources
	}
	var wrong compile.Diagnostics
	if errors.As(err, &wrong) {
		body.Diagnostics = wrong
	} else if err != nil {
		return NoFolder(err)
	}
	if err := c.PrintJSON(body); err != nil {
		return err
	}
	switch {
	case err != nil:
		return &console.ExitError{Code: console.ExitFailure}
	case c.o.Check && result.Changed:
		return &console.ExitError{Code: console.ExitUsage}
	}
	return nil
}
