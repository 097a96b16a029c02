// Package runs is the verbs of administration that are about runs: what starts, holds and queues them, and what shows them.
package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/cli/remote"
	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// admin is what they have of administration.
type admin struct{ *remote.Server }

// Commands are the verbs about runs.
func Commands(s *remote.Server) []*cobra.Command {
	a := &admin{s}
	return []*cobra.Command{a.runsCommand(), a.queueCommand(), a.executionCommand(), a.heldRunCommand(), a.triggerCommand(), a.deliveriesCommand()}
}

// runsCommand is about runs. Wherever one is named, latest stands for the newest.
func (a *admin) runsCommand() *cobra.Command {
	return console.Group("runs", "Runs: list, look into, follow, cancel, explain", []string{"run"},
		a.listCommand(), a.showCommand(), a.jobsCommand(), a.logsCommand(), a.watchCommand(), a.cancelCommand(), a.rerunCommand(), a.explainCommand(),
		a.eventsCommand(), a.contextCommand(), a.structuredCommand(), a.secretOutputsCommand(), a.ephemeralKeyCommand(), a.artifactsCommand(), a.downloadCommand(), a.attestationsCommand())
}

// latest stands for the newest run, wherever a run is named.
const latest = "latest"

// named is the organisation that --org names. Where nobody names one it is "": lists of runs are then of all organisations.
func (a *admin) named(cmd *cobra.Command) string {
	if cmd.Flags().Changed("org") {
		return a.Org
	}
	return ""
}

// runID is the id of the run that was named. The newest is that of an organisation, or of all where org is "".
func runID(ctx context.Context, c *client.Client, org, name string) (string, error) {
	if name != latest {
		return name, nil
	}
	list, err := c.Runs(ctx, client.RunQuery{Org: org, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(list.Runs) == 0 {
		return "", errors.New("there is no run yet")
	}
	return list.Runs[0].RunID, nil
}

// ofRun runs a verb with the id of the run that the first argument names.
func (a *admin) ofRun(verb func(ctx context.Context, c *client.Client, id string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.With(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := runID(ctx, c, a.named(cmd), args[0])
			if err != nil {
				return err
			}
			return verb(ctx, c, id)
		})(cmd, args)
	}
}

// completeRuns offers the newest runs to the shell.
func (a *admin) completeRuns(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.Where.Env = a.Env
	c, err := client.Connect(a.Where)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := c.Runs(cmd.Context(), client.RunQuery{Org: a.named(cmd), Limit: 20})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	offered := []string{latest + "\tthe newest run"}
	for _, r := range list.Runs {
		offered = append(offered, fmt.Sprintf("%s\t%s %s %s", r.RunID, livetree.Clean(r.WorkflowName), livetree.Clean(r.RepoIdentifier), r.Status))
	}
	return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (a *admin) listCommand() *cobra.Command {
	var q client.RunQuery
	var count bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		Example: "  kici admin runs list --status failed,cancelled --limit 5",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&q.Status, "status", "", "states, separated by commas")
	cmd.Flags().StringVar(&q.Workflow, "workflow-name", "", "name of the workflow")
	cmd.Flags().StringVar(&q.Repo, "repo", "", "repository")
	cmd.Flags().StringVar(&q.Since, "since", "", "made after this time, such as 2026-01-01T00:00:00Z")
	cmd.Flags().StringVar(&q.Delivery, "delivery", "", "id of the delivery that they come of")
	cmd.Flags().IntVar(&q.Limit, "limit", 20, "how many, 100 at most")
	cmd.Flags().IntVar(&q.Offset, "offset", 0, "how many to pass over")
	cmd.Flags().BoolVar(&count, "count", false, "print only how many there are")
	_ = cmd.RegisterFlagCompletionFunc("status", states(ci.RunStatuses))
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		if err := console.CheckTime("since", q.Since); err != nil {
			return err
		}
		q.Org = a.named(cmd)
		if count {
			n, err := c.CountRuns(ctx, q)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]int{"total": n})
			}
			fmt.Fprintln(a.Stdout, n)
			return nil
		}
		list, err := c.Runs(ctx, q)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(list)
		}
		a.runTable(list.Runs)
		return nil
	})
	return cmd
}

func (a *admin) runTable(runs []adminwire.Run) {
	t := console.Table{What: "runs", Head: []string{"RUN", "WORKFLOW", "STATUS", "REPOSITORY", "REF", "COMMIT", "CREATED", "DURATION"}}
	for _, r := range runs {
		t.Row(r.RunID, r.WorkflowName, string(r.Status), r.RepoIdentifier, r.Ref, short(r.SHA), console.When(r.CreatedAt), span(r.DurationMs))
	}
	t.Write(a.Stdout)
}

// short is a commit as people read it.
func short(sha string) string { return sha[:min(len(sha), 7)] }

// showCommand shows all that is known of a run but its logs.
func (a *admin) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show RUN",
		Short:   "Show a run with its jobs and steps",
		Example: "  kici admin runs show latest",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
			run, err := c.Run(ctx, id)
			if err != nil {
				return err
			}
			jobs, err := c.Jobs(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(struct {
					adminwire.OneRun
					adminwire.JobList
				}{adminwire.OneRun{Run: run}, adminwire.JobList{Jobs: jobs}})
			}
			a.showRun(run)
			a.jobTable(jobs, true)
			return nil
		}),
	}
}

func (a *admin) jobsCommand() *cobra.Command {
	var steps bool
	cmd := &cobra.Command{
		Use:     "jobs RUN",
		Short:   "List the jobs of a run",
		Example: "  kici admin runs jobs latest --include-steps",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
	}
	cmd.Flags().BoolVar(&steps, "include-steps", false, "list the steps of each job, too")
	cmd.RunE = a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
		jobs, err := c.Jobs(ctx, id)
		if err != nil {
			return err
		}
		if !a.JSON {
			a.jobTable(jobs, steps)
			return nil
		}
		for i := range jobs {
			if !steps {
				jobs[i].Steps = nil
			}
		}
		return a.PrintJSON(adminwire.JobList{Jobs: jobs})
	})
	return cmd
}

func (a *admin) jobTable(jobs []adminwire.Job, steps bool) {
	head := "JOB"
	if steps {
		head = "JOB / STEP"
	}
	t := console.Table{What: "jobs", Head: []string{head, "STATUS", "DURATION", "AGENT", "REMARK"}}
	for _, j := range jobs {
		t.Row(j.JobName, string(j.Status), span(j.DurationMs), console.Text(j.AgentID), remark(j))
		if !steps {
			continue
		}
		for _, s := range j.Steps {
			t.Row("  "+s.StepName, string(s.Status), span(s.DurationMs), "", console.Text(s.ErrorMessage))
		}
	}
	t.Write(a.Stdout)
}

func (a *admin) showRun(r adminwire.RunDetail) {
	console.Pairs(a.Stdout, [2]string{"run", r.RunID}, [2]string{"workflow", r.WorkflowName}, [2]string{"status", string(r.Status)},
		[2]string{"reason", console.Text(r.FailureReason)}, [2]string{"repository", r.RepoIdentifier}, [2]string{"ref", r.Ref}, [2]string{"commit", r.SHA},
		[2]string{"message", console.Text(r.CommitMessage)}, [2]string{"event", console.Text(r.TriggerEvent)}, [2]string{"by", console.Text(r.ContributorUsername)},
		[2]string{"created", console.When(r.CreatedAt)}, [2]string{"started", console.When(r.StartedAt)}, [2]string{"completed", console.When(r.CompletedAt)},
		[2]string{"duration", span(r.DurationMs)}, [2]string{"delivery", console.Text(r.DeliveryID)}, [2]string{"cancelled by", console.Text(r.CancelledBy)})
	fmt.Fprintln(a.Stdout)
}

// remark says why a job waits or ended as it did.
func remark(j adminwire.Job) string {
	switch {
	case j.ErrorMessage != nil:
		return *j.ErrorMessage
	case j.Reason != nil && j.Status != ci.JobSuccess && j.Status != ci.JobRunning:
		return j.Reason.Message
	}
	return ""
}

// cancelCommand does not ask: a cancelled run can be started again.
func (a *admin) cancelCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "cancel RUN",
		Short:   "End a run",
		Long:    "Asks for the end of a run. Its jobs get the time of their grace period and run their onCancel and cleanup hooks; with\n--force they are killed at once.",
		Example: "  kici admin runs cancel latest --force",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
	}
	cmd.Flags().BoolVar(&force, "force", false, "kill at once, without hooks")
	cmd.RunE = a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
		result, err := c.Cancel(ctx, id, force)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(result)
		}
		fmt.Fprintf(a.Stdout, "Run %s is %s, %s.\n", id, result.Status, console.Plural(result.CancelledJobs, "job"))
		return nil
	})
	return cmd
}

// structuredCommand prints JSON always: its readers are programs.
func (a *admin) structuredCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "structured RUN",
		Short:   "Print a run for programs, with every text that others chose marked as untrusted",
		Example: "  kici admin runs structured latest",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
			result, err := c.Result(ctx, id)
			if err != nil {
				return err
			}
			return a.PrintJSON(result)
		}),
	}
}

// span is a duration as tables show it, "" when it is not known yet.
func span(ms *int64) string {
	if ms == nil {
		return ""
	}
	return livetree.Duration(time.Duration(*ms) * time.Millisecond)
}
