package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// heldRunCommand is about the gates at which runs wait for somebody.
func (a *admin) heldRunCommand() *cobra.Command {
	return console.Group("held-run", "Holds: what waits for an approval, a time or a slot; approve or reject it", []string{"held-runs", "hold"},
		a.heldRunListCommand(), a.heldRunDecideCommand("approve", "Approve a hold, so that what it holds goes on"),
		a.heldRunDecideCommand("reject", "Reject a hold, so that what it holds ends"))
}

func (a *admin) heldRunListCommand() *cobra.Command {
	var run, status string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List holds, the oldest first, with who has to approve",
		Example: "  kici admin held-run list\n  kici admin held-run list --run latest --status approved,rejected",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&run, "run", "", "of one run")
	cmd.Flags().StringVar(&status, "status", "", "states, separated by commas (default: pending)")
	_ = cmd.RegisterFlagCompletionFunc("run", a.completeRuns)
	_ = cmd.RegisterFlagCompletionFunc("status", states(ci.HoldStatuses))
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		id, err := runID(ctx, c, a.named(cmd), run)
		if err != nil {
			return err
		}
		holds, err := c.HeldRuns(ctx, client.HoldQuery{RunID: id, Status: status, Org: a.named(cmd)})
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(adminwire.HeldRunList{HeldRuns: holds})
		}
		t := console.Table{What: "holds", Head: []string{"HOLD", "RUN", "WORKFLOW", "HOLDS", "TYPE", "STATUS", "WAITS FOR", "UNTIL", "REASON"}}
		for _, h := range holds {
			t.Row(h.ID, h.RunID, h.WorkflowName, heldPart(h), string(h.HoldType), string(h.Status), clauses(h.Clauses), console.When(h.ExpiresAt), h.Reason.Message)
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

// heldPart is what a hold holds.
func heldPart(h adminwire.HeldRun) string {
	part := "workflow"
	if h.JobName != nil {
		part = *h.JobName
	}
	if h.StepName != nil {
		part += " › " + *h.StepName
	}
	return part
}

func clauses(list []adminwire.Clause) string {
	var out []string
	for _, c := range list {
		if c.Team != "" {
			out = append(out, "team:"+c.Team)
		} else {
			out = append(out, c.User)
		}
	}
	return strings.Join(out, ",")
}

// holdSelector says which hold is meant.
type holdSelector struct{ hold, run, job, step, kind string }

func (s holdSelector) matches(h adminwire.HeldRun) bool {
	return (s.hold == "" || s.hold == h.ID) && (s.job == "" || s.job == console.Text(h.JobName) || s.job == console.Text(h.JobID)) &&
		(s.step == "" || s.step == console.Text(h.StepName)) && (s.kind == "" || s.kind == string(h.HoldType))
}

func (a *admin) heldRunDecideCommand(verb, short string) *cobra.Command {
	var s holdSelector
	var answer adminwire.HoldAnswer
	cmd := &cobra.Command{
		Use:   verb,
		Short: short,
		Long: short + ". The hold is named by its id, or by its run and as much more as tells it from\nthe run's other holds. " +
			"Where a hold asks for certain users or teams, --as says for whom you answer; the access log keeps whose token it was.",
		Example: fmt.Sprintf("  kici admin held-run %s --run latest --job deploy\n  kici admin held-run %s --hold 0198… --as team:ops --comment 'looked at the plan'", verb, verb),
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&s.hold, "hold", "", "id of the hold")
	cmd.Flags().StringVar(&s.run, "run", "", "run of the hold")
	cmd.Flags().StringVar(&s.job, "job", "", "name or id of the job that it holds")
	cmd.Flags().StringVar(&s.step, "step", "", "name of the step that it holds")
	cmd.Flags().StringVar(&s.kind, "hold-type", "", "reviewer, security, timer or concurrency")
	cmd.Flags().StringVar(&answer.As, "as", "", "user, or team:NAME, for whom you answer")
	cmd.Flags().StringVar(&answer.Comment, "comment", "", "why")
	_ = cmd.RegisterFlagCompletionFunc("run", a.completeRuns)
	_ = cmd.RegisterFlagCompletionFunc("hold", a.openHolds())
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		if s.hold == "" && s.run == "" {
			return console.Usage("--hold or --run is required")
		}
		h, err := findHold(ctx, c, a.named(cmd), s)
		if err != nil {
			return err
		}
		answer.HoldID, answer.Decision = h.ID, verb
		done, err := c.DecideHold(ctx, answer)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(done)
		}
		fmt.Fprintf(a.Stdout, "Hold on %s of run %s: %s%s.\n", heldPart(h), h.RunID, done.Status, awaited(done.RemainingClauses))
		return nil
	})
	return cmd
}

func awaited(remaining []adminwire.Clause) string {
	if len(remaining) == 0 {
		return ""
	}
	return "; approval is still awaited from " + clauses(remaining)
}

// findHold finds the one hold that is meant. Of several it names all, since a wrong guess cannot be taken back.
func findHold(ctx context.Context, c *client.Client, org string, s holdSelector) (adminwire.HeldRun, error) {
	id, err := runID(ctx, c, org, s.run)
	if err != nil {
		return adminwire.HeldRun{}, err
	}
	holds, err := c.HeldRuns(ctx, client.HoldQuery{RunID: id, Status: string(ci.HoldPending)})
	if err != nil {
		return adminwire.HeldRun{}, err
	}
	var found []adminwire.HeldRun
	for _, h := range holds {
		if s.matches(h) {
			found = append(found, h)
		}
	}
	switch len(found) {
	case 0:
		if s == (holdSelector{hold: s.hold}) { // one that is decided, or beyond the list: the server says so
			return adminwire.HeldRun{ID: s.hold}, nil
		}
		return adminwire.HeldRun{}, errors.New("no open hold is meant by that; see kici admin held-run list")
	case 1:
		return found[0], nil
	}
	var names []string
	for _, h := range found[:min(len(found), ci.MaxListEntries)] {
		names = append(names, fmt.Sprintf("%s (%s, %s)", h.ID, heldPart(h), h.HoldType))
	}
	return adminwire.HeldRun{}, fmt.Errorf("%d open holds are meant by that, name one with --hold: %s", len(found), strings.Join(names, ", "))
}

// rerunCommand does not ask: nothing is lost by a new run.
func (a *admin) rerunCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "rerun RUN",
		Short: "Start an ended run again: same commit, same event, decided anew",
		Long: "Makes a run like an ended one. The lock file is read again at the run's commit, and contexts, holds and needs count as for\n" +
			"every run. With --watch the new run is shown until it has ended.",
		Example: "  kici admin runs rerun latest --watch",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show the new run until it has ended")
	cmd.RunE = a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
		made, err := c.Rerun(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case watch:
			fmt.Fprintf(a.Stderr, "Run %s was made of run %s.\n", made.RunID, id)
			return a.watch(ctx, c, made.RunID)
		case a.JSON:
			return a.PrintJSON(made)
		}
		fmt.Fprintf(a.Stdout, "Run %s was made of run %s.\n", made.RunID, id)
		return nil
	})
	return cmd
}
