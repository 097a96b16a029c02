package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/kit/service"
)

// exitBusy is the exit code of a wait that ended before what was waited for.
const exitBusy = 2

// drainPoll is the pause between two looks at a node that drains.
const drainPoll = 2 * time.Second

// orchestratorCommand is about the server process itself.
func (a *admin) orchestratorCommand() *cobra.Command {
	return console.Group("orchestrator", "The server process: drain it before it is stopped", nil, a.drainCommand(), a.resumeCommand())
}

func (a *admin) drainCommand() *cobra.Command {
	var wait, status bool
	var timeout float64
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Give out no more jobs on this server; what runs goes on",
		Long: "While a server drains, deliveries are still accepted and become jobs that wait. Agents stay connected. With --wait the exit\n" +
			"code is 0 once no job runs any more, and 2 when the time is over before; the server then still drains. A restart ends it.",
		Example: "  kici admin orchestrator drain --wait --timeout 600",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until no job runs any more")
	cmd.Flags().Float64Var(&timeout, "timeout", 300, "seconds that --wait waits at most")
	cmd.Flags().BoolVar(&status, "status", false, "only show whether it drains")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		switch {
		case status && wait:
			return console.Usage("--status looks once and --wait until the end: give one of them")
		case timeout <= 0:
			return console.Usage("--timeout %v: it must be more than 0 seconds", timeout)
		case status:
			return a.showDrain(c.Drain(ctx))
		}
		state, err := c.SetDrain(ctx, true)
		if err := a.showDrain(state, err); err != nil || !wait {
			return err
		}
		return a.awaitDrained(ctx, c, state, time.Duration(timeout*float64(time.Second)))
	})
	return cmd
}

func (a *admin) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "resume",
		Short:   "Give out jobs again",
		Example: "  kici admin orchestrator resume",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			return a.showDrain(c.SetDrain(ctx, false))
		}),
	}
}

func (a *admin) showDrain(d adminwire.Drain, err error) error {
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(d)
	}
	fmt.Fprintf(a.Stdout, "draining=%t jobsRunning=%d\n", d.Draining, d.JobsRunning)
	return nil
}

// awaitDrained looks until nothing runs any more. A server that does not answer is asked again: only one that answers
// that it works has forgotten the drain.
func (a *admin) awaitDrained(ctx context.Context, c *client.Client, state adminwire.Drain, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for state.JobsRunning > 0 {
		if !service.Sleep(within, drainPoll) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Fprintf(a.Stderr, "Still draining after %s, %s running.\n", limit, console.Plural(state.JobsRunning, "job"))
			return &console.ExitError{Code: exitBusy}
		}
		next, err := c.Drain(within)
		if _, refused := errors.AsType[*client.Error](err); refused {
			return err
		}
		if err != nil {
			continue
		}
		if state = next; !state.Draining {
			return errors.New("the server no longer drains: it was started again or resumed meanwhile")
		}
	}
	return nil
}
