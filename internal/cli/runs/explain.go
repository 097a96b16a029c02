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
)

// explainCommand answers why nothing happens, for the state of this moment.
func (a *admin) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "explain RUN",
		Short:   "Say what every job of a run waits for, or why it ended",
		Example: "  kici admin runs explain latest",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
			why, err := c.Explain(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(why)
			}
			a.printExplanation(why)
			return nil
		}),
	}
}

func (a *admin) printExplanation(why adminwire.Explanation) {
	fmt.Fprintf(a.Stdout, "%s (%s): %s", why.RunID, livetree.Clean(why.WorkflowName), why.Status)
	if why.Reason != nil {
		fmt.Fprintf(a.Stdout, ": %s", livetree.Clean(why.Reason.Message))
	}
	if why.CancelledBy != nil {
		by := *why.CancelledBy
		if why.CancelledByName != "" {
			by = "token " + why.CancelledByName
		}
		fmt.Fprintf(a.Stdout, " (asked for by %s)", livetree.Clean(by))
	}
	fmt.Fprintln(a.Stdout)
	for _, j := range why.Jobs {
		a.printExplained(j)
	}
}

func (a *admin) printExplained(j adminwire.ExplainedJob) {
	fmt.Fprintf(a.Stdout, "\n%s: %s\n  %s\n", livetree.Clean(j.JobName), j.Status, livetree.Clean(j.Reason.Message))
	for _, h := range j.Holds {
		fmt.Fprintf(a.Stdout, "  - hold %s (%s) on %s: %s\n", h.ID, h.HoldType, livetree.Clean(heldPart(h)), livetree.Clean(h.Reason.Message))
	}
	for _, s := range j.Steps {
		fmt.Fprintf(a.Stdout, "  - step %s: %s\n", livetree.Clean(s.StepName), livetree.Clean(stepEnd(s)))
	}
	for _, agent := range j.Agents {
		fmt.Fprintf(a.Stdout, "  - %s\n", livetree.Clean(candidate(agent)))
	}
	if !j.Until.IsZero() {
		fmt.Fprintf(a.Stdout, "  until %s\n", console.When(j.Until))
	}
}

// stepEnd is how a step ended that did not end well.
func stepEnd(s adminwire.ExplainedStep) string {
	end := string(s.Status)
	if s.ExitCode != nil {
		end += fmt.Sprintf(" with exit code %d", *s.ExitCode)
	}
	if s.ErrorMessage != nil {
		end += ": " + *s.ErrorMessage
	}
	return end
}

// candidate says how an agent stands to a waiting job.
func candidate(c adminwire.Candidate) string {
	switch {
	case c.Fits && !c.RebootUntil.IsZero():
		return c.AgentID + " fits, and its host reboots, until " + console.When(c.RebootUntil)
	case !c.AwaySince.IsZero():
		return c.AgentID + " fits and is not connected since " + console.When(c.AwaySince)
	case !c.Fits:
		return c.AgentID + " " + strings.Join(c.Missing, "; ")
	case c.Draining:
		return c.AgentID + " fits, and its node " + c.Node + " drains"
	case len(c.Busy) == 0:
		return c.AgentID + " fits and is free"
	}
	jobs := make([]string, len(c.Busy))
	for i, o := range c.Busy {
		jobs[i] = fmt.Sprintf("%s of run %s since %s", o.JobName, o.RunID, console.When(o.Since))
	}
	return fmt.Sprintf("%s fits and runs %s (%d of %d)", c.AgentID, strings.Join(jobs, ", "), len(c.Busy), c.Slots)
}
