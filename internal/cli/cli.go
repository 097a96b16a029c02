// Package cli is the command line: its root with all verbs, those that serve and measure, and the exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/admin"
	"kici/internal/cli/author"
	"kici/internal/cli/console"
	"kici/internal/cli/trial"
)

// Process is what a command line has of the process that runs it. Who runs one needs no other room for it.
type Process = console.Process

// Run executes a command line, args[0] being the program's name, and gives the exit code. A program called kici-admin is
// kici admin.
func Run(ctx context.Context, args []string, p Process) int {
	rest := args[1:]
	if strings.TrimSuffix(filepath.Base(args[0]), ".exe") == "kici-admin" {
		rest = append([]string{"admin"}, rest...)
	}
	root := newRoot(p, rest)
	root.SetArgs(rest)
	return conclude(p, root.ExecuteContext(ctx), len(rest) > 0 && rest[0] == "admin")
}

// conclude prints the error and gives its exit code. Administration has only one code for all errors, as its scripts
// have always known it. An exit without a cause is no error.
func conclude(p Process, err error, admin bool) int {
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*console.ExitError](err)
	if !ok {
		exit = &console.ExitError{Code: console.ExitFailure, Cause: err}
	}
	if exit.Cause != nil {
		fmt.Fprintf(p.Stderr, "Error: %v\n", exit.Cause)
	}
	if admin && exit.Code == console.ExitUsage && exit.Cause != nil {
		return console.ExitFailure
	}
	return exit.Code
}

// newRoot makes the command line. Where args name a verb, it has no other: the flags of all of them take 0.3 MiB, which an
// agent and each of its runners would keep for as long as they live.
func newRoot(p Process, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "kici",
		Short:         "Self-hosted CI/CD: workflows in TypeScript, one binary",
		Long:          "kici takes webhooks in, finds the compiled workflow of the repository, plans its jobs and runs them on agents.",
		Example:       "  kici demo\n  kici up\n  kici run local push",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return console.FlagError(err) })
	wanted := verbs()
	if len(args) > 0 {
		if i := slices.IndexFunc(wanted, func(v verb) bool { return v.name == args[0] }); i >= 0 {
			wanted = wanted[i : i+1]
		}
	}
	for _, v := range wanted {
		root.AddCommand(v.command(p))
	}
	strict(root)
	return root
}

// strict turns refused arguments of every command into usage errors.
func strict(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &console.ExitError{Code: console.ExitUsage, Cause: fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// verb is a command that can be made, by its name.
type verb struct {
	name    string
	command func(Process) *cobra.Command
}

func verbs() []verb {
	return append(daemons(),
		verb{"compile", author.CompileCommand},
		verb{"init", author.InitCommand},
		verb{"preview", trial.PreviewCommand},
		verb{"fixture", author.FixtureCommand},
		verb{"hook", author.HookCommand},
		verb{"verify-attestation", author.VerifyAttestationCommand},
		verb{"admin", admin.Command},
		verb{"version", versionCommand},
		verb{"__runner", runnerCommand},
	)
}
