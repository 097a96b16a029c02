package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kici/internal/author/compile"
)

func (p Process) compileCommand() *cobra.Command {
	var o compile.Options
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:     "compile",
		Short:   "Compile the workflows of this repository into their lock file",
		Long:    "Compiles .kici/workflows/* into .kici/kici.lock.json, from which servers decide what runs. Commit both.\nNothing is written when there is an error.",
		Example: "  kici compile\n  kici compile --check   # in a hook or a build: fails when the lock file is out of date",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && (o.Check || asJSON) {
				return usage("--watch goes with neither --check nor --json")
			}
			if watch {
				return p.compileWatch(cmd.Context(), o)
			}
			result, err := compile.Compile(cmd.Context(), o)
			if asJSON {
				return p.compileJSON(result, err)
			}
			return p.compileText(o, result, err)
		},
	}
	cmd.Flags().BoolVar(&o.Check, "check", false, "write nothing; fail when the lock file is not what would be written")
	cmd.Flags().BoolVar(&watch, "watch", false, "compile again after each change, until interrupted")
	cmd.Flags().BoolVar(&o.Typecheck, "typecheck", false, "check types with the TypeScript compiler of the repository, too")
	cmd.Flags().StringVar(&o.KiciDir, "kici-dir", compile.DefaultDir, "folder of the workflows")
	cmd.Flags().StringVar(&o.Dir, "dir", ".", "root of the repository")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// compileWatch prints each compilation as compileText does. To be interrupted is how it ends.
func (p Process) compileWatch(ctx context.Context, o compile.Options) error {
	err := compile.Watch(ctx, o, func(result compile.Result, err error) {
		var told *exitError
		if err := p.compileText(o, result, err); err != nil && !errors.As(err, &told) {
			fmt.Fprintln(p.Stderr, err)
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p Process) compileText(o compile.Options, result compile.Result, err error) error {
	var wrong compile.Diagnostics
	if errors.As(err, &wrong) {
		fmt.Fprintln(p.Stderr, wrong.Error())
		return &exitError{code: exitFailure}
	}
	if err != nil {
		return err
	}
	for _, w := range result.Warnings {
		fmt.Fprintln(p.Stderr, w.String())
	}
	switch {
	case o.Check && result.Changed:
		fmt.Fprintf(p.Stderr, "%s is out of date: run kici compile and commit it\n", result.Path)
		return &exitError{code: exitUsage}
	case o.Check:
		fmt.Fprintf(p.Stdout, "%s is up to date\n", result.Path)
	default:
		fmt.Fprintf(p.Stdout, "Wrote %s: %s, %s\n", result.Path, plural(result.Workflows, "workflow"), plural(result.Jobs, "job"))
	}
	return nil
}

// compileJSON prints what happened as one object, errors too.
func (p Process) compileJSON(result compile.Result, err error) error {
	body := struct {
		OK          bool                `json:"ok"`
		Path        string              `json:"path,omitempty"`
		Changed     bool                `json:"changed"`
		Workflows   int                 `json:"workflows"`
		Jobs        int                 `json:"jobs"`
		Diagnostics compile.Diagnostics `json:"diagnostics"`
	}{OK: err == nil, Path: result.Path, Changed: result.Changed, Workflows: result.Workflows, Jobs: result.Jobs,
		Diagnostics: append(compile.Diagnostics{}, result.Warnings...)}
	var wrong compile.Diagnostics
	if errors.As(err, &wrong) {
		body.Diagnostics = wrong
	} else if err != nil {
		return err
	}
	if err := p.printJSON(body); err != nil {
		return err
	}
	if err != nil {
		return &exitError{code: exitFailure}
	}
	return nil
}

// printJSON prints a value as a program reads it.
func (p Process) printJSON(v any) error {
	e := json.NewEncoder(p.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (p Process) initCommand() *cobra.Command {
	o := compile.InitOptions{Dir: "."}
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Make this repository ready for workflows",
		Long:    "Makes .kici/ with a first workflow, the types that an editor needs, and what git must not see, and compiles it.",
		Example: "  cd my-repository && kici init",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made, err := compile.Init(cmd.Context(), o)
			if errors.Is(err, compile.ErrExists) {
				return usage("%w: use --force to write over what kici init makes", err)
			}
			if err != nil {
				return err
			}
			result, err := compile.Compile(cmd.Context(), compile.Options{Dir: o.Dir})
			if err != nil {
				return err
			}
			for _, file := range made.Files {
				fmt.Fprintln(p.Stdout, "  made", file)
			}
			fmt.Fprintln(p.Stdout, "  made", result.Path)
			fmt.Fprintf(p.Stdout, "\nWrite your workflow in %s, run kici compile after a change, and commit both.\n", made.Workflow)
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", ".", "root of the repository")
	cmd.Flags().BoolVar(&o.Force, "force", false, "write over the files of an earlier kici init; others stay")
	cmd.Flags().BoolVar(&o.JavaScript, "mjs", false, "make a workflow in plain JavaScript")
	return cmd
}

// executable is this program's file, for the processes that it starts of itself.
func executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program's file: %w", err)
	}
	return path, nil
}
