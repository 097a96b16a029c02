//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/demo"
)

func demoCommand(p Process) *cobra.Command {
	var o demo.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a workflow of a repository run, from the webhook to its end",
		Long: "Makes a git repository with a workflow, starts a server and an agent as processes of their own on free loopback ports\n" +
			"with a temporary folder, pushes a commit through the webhook route, and shows the run. Everything is gone afterwards.",
		Example: "  kici demo\n  kici demo --keep   # and look around\n  kici demo --json | tail -n 1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Out, o.Screen = p.Stdout, p.Screen()
			if asJSON {
				o.Out, o.Screen = io.Discard, console.Silent{}
			}
			result, err := demo.Run(ctx, o)
			if asJSON {
				return demoJSON(p, result, err)
			}
			if err != nil {
				return fmt.Errorf("the demo failed: %w", err)
			}
			fmt.Fprintf(p.Stdout, "\nFrom the webhook: dispatched after %.1f ms, first log line after %.1f ms, succeeded after %.1f ms (%d jobs)\n",
				result.Dispatch, result.FirstLog, result.Success, len(result.Jobs))
			return nil
		},
	}
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave everything running, and say how to look at it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object as the last line")
	return cmd
}

// demoJSON prints the result as one line, whatever it is.
func demoJSON(p Process, result demo.Result, err error) error {
	if err != nil && result.Status == "" {
		result.Status = "failed"
	}
	raw, encoding := json.Marshal(result)
	if encoding != nil {
		return encoding
	}
	fmt.Fprintf(p.Stdout, "%s\n", raw)
	if err != nil {
		return fmt.Errorf("the demo failed: %w", err)
	}
	return nil
}
