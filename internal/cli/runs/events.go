package runs

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

func (a *admin) eventsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "events RUN",
		Short:   "List what happened in a run, moment by moment",
		Example: "  kici admin runs events latest",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
			line, err := c.Timeline(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(line)
			}
			jobs, err := c.Jobs(ctx, id)
			if err != nil {
				return err
			}
			t := console.Table{What: "events", Head: []string{"TIME", "EVENT", "OF", "JOB", "TOOK", "DETAILS"}}
			for _, e := range line.Events {
				t.Row(console.When(e.Timestamp), e.EventType, e.SourceService, jobName(jobs, console.Text(e.JobID)), span(e.DurationMs), string(e.Metadata))
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

// jobName is the name of a job by its id.
func jobName(jobs []adminwire.Job, id string) string {
	if i := slices.IndexFunc(jobs, func(j adminwire.Job) bool { return j.JobID == id }); i >= 0 {
		return jobs[i].JobName
	}
	return id
}

// contextCommand prints JSON always: what an agent says of its machine has no fixed form.
func (a *admin) contextCommand() *cobra.Command {
	var job string
	cmd := &cobra.Command{
		Use:     "context RUN",
		Short:   "Print where a job ran: its variables (secrets masked), runtime, labels, as the agent described them",
		Example: "  kici admin runs context latest --job build",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
	}
	cmd.Flags().StringVar(&job, "job", "", "required: name or id of the job")
	_ = cmd.RegisterFlagCompletionFunc("job", a.jobsOfRun())
	cmd.RunE = a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
		if job == "" {
			return console.Usage("--job is required")
		}
		jobs, err := c.Jobs(ctx, id)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(jobs, func(j adminwire.Job) bool { return j.JobName == job || j.JobID == job })
		if i < 0 {
			return fmt.Errorf("run %s has no job %s", id, job)
		}
		around, err := c.Surroundings(ctx, id, jobs[i].JobID)
		if err != nil {
			return err
		}
		return a.PrintJSON(around)
	})
	return cmd
}
