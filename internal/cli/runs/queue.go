package runs

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// queueCommand lists when no verb is named, which is what it is asked for nearly always.
func (a *admin) queueCommand() *cobra.Command {
	cmd := a.queueListCommand()
	cmd.Use, cmd.Short = "queue", "The jobs that wait for an agent: list, show, clear"
	cmd.Example = "  kici admin queue\n  kici admin queue show JOB\n  kici admin queue clear --confirm"
	cmd.AddCommand(a.queueListCommand(), a.queueShowCommand(), a.queueClearCommand())
	return cmd
}

// queueListCommand answers over all runs what explain answers over one.
func (a *admin) queueListCommand() *cobra.Command {
	var q client.QueueQuery
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the jobs that wait for an agent, each with its reason and the nearest agents",
		Example: "  kici admin queue list\n  kici admin queue list --status pending --json",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&q.Status, "status", "", "states, separated by commas (default: all that have not ended)")
	cmd.Flags().StringVar(&q.StatusNotIn, "status-not-in", "", "states to leave out, separated by commas")
	cmd.Flags().StringVar(&q.Job, "job-name", "", "name of the job")
	cmd.Flags().StringVar(&q.JobPrefix, "job-name-prefix", "", "what the name of the job begins with")
	cmd.Flags().StringVar(&q.JobNotLike, "job-name-not-like", "", "names to leave out; % is any text, _ any character")
	cmd.Flags().StringVar(&q.Workflow, "workflow-name", "", "name of the workflow")
	cmd.Flags().StringVar(&q.After, "created-after", "", "queued after this time, such as 2026-01-01T00:00:00Z")
	for _, flag := range []string{"status", "status-not-in"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, states(ci.QueueStatuses))
	}
	cmd.Flags().IntVar(&q.Limit, "limit", 100, "how many, 1000 at most")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		if err := console.CheckTime("created-after", q.After); err != nil {
			return err
		}
		q.Org = a.named(cmd)
		entries, err := c.Queue(ctx, q)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(adminwire.QueueList{Entries: entries})
		}
		t := console.Table{What: "jobs in the queue", Head: []string{"JOB", "WORKFLOW", "STATUS", "SINCE", "RUNS ON", "REASON", "NEAREST", "RUN"}}
		for _, e := range entries {
			var near []string
			for _, n := range e.Nearest {
				near = append(near, candidate(n))
			}
			t.Row(e.JobName, e.WorkflowName, string(e.Status), console.When(e.CreatedAt), strings.Join(e.RunsOn, ","), e.Reason.Message, strings.Join(near, "; "), e.RunID)
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

func (a *admin) queueShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show JOB",
		Short:   "Show one job of the queue, by the id of the job",
		Example: "  kici admin queue show 4a7c1d9e-6f0b-4c52-9f38-1b2e3d4c5a6b",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, c *client.Client, args []string) error {
			e, err := c.Queued(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(e)
			}
			console.Pairs(a.Stdout, [2]string{"job", e.JobName}, [2]string{"id", e.ID}, [2]string{"run", e.RunID}, [2]string{"workflow", e.WorkflowName},
				[2]string{"status", string(e.Status)}, [2]string{"since", console.When(e.CreatedAt)}, [2]string{"until", console.When(e.ExpiresAt)},
				[2]string{"runs on", strings.Join(e.RunsOn, ",")}, [2]string{"agent", console.Text(e.AgentID)}, [2]string{"reason", e.Reason.Message})
			for _, n := range e.Nearest {
				fmt.Fprintf(a.Stdout, "  - %s\n", livetree.Clean(candidate(n)))
			}
			return nil
		}),
	}
}

// queueClearCommand asks for the word: what it ends cannot be taken back.
func (a *admin) queueClearCommand() *cobra.Command {
	var confirm, yes bool
	cmd := &cobra.Command{
		Use:   "clear",
		Short: "End every run of which a job waits in the queue",
		Long: "Cancels every run of which a job waits in the queue, with its jobs that run already. It needs --confirm, and then asks for\n" +
			"the word clear; --yes answers for those who cannot be asked.",
		Example: "  kici admin queue clear --confirm\n  kici admin queue clear --confirm --yes --json",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&confirm, "confirm", false, "required: say that this is meant")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for the word")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		if !confirm {
			return console.Usage("--confirm is required: every run of which a job waits would be cancelled")
		}
		if err := a.Typed(yes, "clear", "Every run of which a job waits in the queue will be cancelled."); err != nil {
			return err
		}
		done, err := c.ClearQueue(ctx)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(done)
		}
		fmt.Fprintf(a.Stdout, "Queue cleared: %s cancelled, %s.\n", console.Plural(done.Runs, "run"), console.Plural(done.Jobs, "job"))
		return nil
	})
	return cmd
}
