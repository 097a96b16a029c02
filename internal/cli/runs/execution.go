package runs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
)

// executionCommand shows runs by the names of their columns, for scripts that were written for those.
func (a *admin) executionCommand() *cobra.Command {
	return console.Group("execution", "Runs by the names of their columns, as older scripts read them; prefer runs", []string{"executions"},
		a.executionListCommand(), a.executionShowCommand(), a.purgeStaleCommand())
}

func (a *admin) executionListCommand() *cobra.Command {
	var q client.ExecutionQuery
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		Example: "  kici admin execution list --status failed --json",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&q.RoutingKey, "routing-key", "", "routing key of the source")
	cmd.Flags().StringVar(&q.Status, "status", "", "states, separated by commas")
	cmd.Flags().StringVar(&q.Workflow, "workflow-name", "", "name of the workflow")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "how many, 200 at most")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		q.Org = a.named(cmd)
		list, err := c.Executions(ctx, q)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(list)
		}
		t := console.Table{What: "executions", Head: []string{"RUN", "WORKFLOW", "STATUS", "ROUTING KEY", "REPOSITORY", "REF", "COMMIT", "CREATED"}}
		for _, e := range list.Runs {
			t.Row(e.RunID, e.WorkflowName, string(e.Status), e.RoutingKey, e.RepoIdentifier, e.Ref, short(e.SHA), console.When(e.CreatedAt))
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

func (a *admin) executionShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show RUN",
		Short:   "Show a run with its jobs",
		Example: "  kici admin execution show latest --json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
			e, err := c.Execution(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(e)
			}
			console.Pairs(a.Stdout, [2]string{"run", e.Run.RunID}, [2]string{"workflow", e.Run.WorkflowName}, [2]string{"status", string(e.Run.Status)},
				[2]string{"routing key", e.Run.RoutingKey}, [2]string{"reason", console.Text(e.Run.FailureReason)})
			t := console.Table{What: "jobs", Head: []string{"JOB", "NAME", "STATUS", "AGENT", "STARTED", "COMPLETED", "ERROR"}}
			for _, j := range e.Jobs {
				t.Row(j.JobID, j.JobName, string(j.Status), console.Text(j.AgentID), console.When(j.StartedAt), console.When(j.CompletedAt), console.Text(j.ErrorMessage))
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

// purgeStaleCommand needs both flags: what it deletes cannot be had back.
func (a *admin) purgeStaleCommand() *cobra.Command {
	var key string
	var confirm bool
	cmd := &cobra.Command{
		Use:   "purge-stale",
		Short: "Delete the ended runs of every source but one",
		Long: "Deletes every run that has ended and is not of the source with this routing key, with its logs, artifacts and whatever else\n" +
			"is kept of it. Runs that go on stay, as do those that they repeat.",
		Example: "  kici admin execution purge-stale --routing-key generic:default:repos --confirm",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&key, "routing-key", "", "required: the source whose runs stay")
	cmd.Flags().BoolVar(&confirm, "confirm", false, "required: say that this is meant")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		switch {
		case key == "":
			return console.Usage("--routing-key is required")
		case !confirm:
			return console.Usage("--confirm is required: the ended runs of every other source would be deleted")
		}
		done, err := c.PurgeStale(ctx, key)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(done)
		}
		fmt.Fprintf(a.Stdout, "Deleted %s with %s.\n", console.Plural(done.RunsDeleted, "run"), console.Plural(done.JobsDeleted, "job"))
		return nil
	})
	return cmd
}
