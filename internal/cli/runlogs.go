package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/livetree"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// pageLines is how many lines are asked for at a time, as many as a server gives.
const pageLines = 2000

// lookEvery is the pause between two looks at a run that goes on. A run is a matter of seconds, and a look costs the
// server well under a millisecond.
const lookEvery = 250 * time.Millisecond

// runsLogsCommand prints steps in the order of the run. With --follow it looks at every open step in turn, so that lines of
// steps that go on together are mixed, each with the step's name before it.
func (a *admin) runsLogsCommand() *cobra.Command {
	l := &logPrinter{admin: a}
	var job, step string
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs RUN",
		Short: "Print the logs of a run, of one job or of one step",
		Long: "Prints the logs of a run's steps in their order. Where it is more than one step, each line says which. With --json each line\n" +
			"is one JSON object.",
		Example: "  kici admin runs logs latest --follow\n  kici admin runs logs latest --job test --step unit",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
	}
	cmd.Flags().StringVar(&job, "job", "", "name or id of one job")
	cmd.Flags().StringVar(&step, "step", "", "name or number of one step; needs --job")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	cmd.Flags().BoolVar(&l.times, "timestamps", false, "begin each line with its time")
	cmd.RunE = a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
		if step != "" && job == "" {
			return usage("--step needs --job: steps of different jobs may have one name")
		}
		l.c, l.run, l.from = c, id, map[stepKey]int64{}
		l.wanted = func(j adminwire.Job, s adminwire.Step) bool {
			return (job == "" || job == j.JobName || job == j.JobID) && (step == "" || step == s.StepName || step == strconv.Itoa(s.StepIndex))
		}
		l.colour = a.colour(a.Stdout)
		l.prefix = step == ""
		return l.print(ctx, follow)
	})
	return cmd
}

// stepKey names a step of a run.
type stepKey struct {
	job  string
	step int
}

// logPrinter prints the logs of steps, each from where it stopped before.
type logPrinter struct {
	*admin
	c             *client.Client
	run           string
	wanted        func(adminwire.Job, adminwire.Step) bool
	from          map[stepKey]int64 // lines printed; −1 of a step that has ended and is printed whole
	prefix        bool              // lines say of which step they are
	times, colour bool
}

// print prints what there is, and with follow what comes, until the run has ended.
func (l *logPrinter) print(ctx context.Context, follow bool) error {
	for {
		// The run is looked at first: what ended before has all its lines when they are read.
		run, err := l.c.Run(ctx, l.run)
		if err != nil {
			return err
		}
		jobs, err := l.c.Jobs(ctx, l.run)
		if err != nil {
			return err
		}
		found, err := l.steps(ctx, jobs)
		if err != nil {
			return err
		}
		if run.Status.Terminal() || !follow {
			if !found {
				return errNoLogs
			}
			return nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// errNoLogs is for a name that no step has, too: which steps a job has is known only once it runs.
var errNoLogs = errors.New("no such step has started yet")

// pause waits, or gives the reason why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// steps prints the new lines of every wanted step, and tells whether there is one.
func (l *logPrinter) steps(ctx context.Context, jobs []adminwire.Job) (found bool, err error) {
	for _, j := range jobs {
		for _, s := range j.Steps {
			if !l.wanted(j, s) {
				continue
			}
			found = true
			if err := l.step(ctx, j, s); err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

// step prints the new lines of one step. What others wrote is cleaned for a terminal and passed on as it is elsewhere.
func (l *logPrinter) step(ctx context.Context, j adminwire.Job, s adminwire.Step) error {
	key := stepKey{j.JobID, s.StepIndex}
	for l.from[key] >= 0 {
		page, err := l.c.Logs(ctx, l.run, j.JobID, s.StepIndex, client.LogQuery{From: l.from[key], Limit: pageLines})
		if err != nil {
			return err
		}
		for _, line := range page.Lines {
			if err := l.line(j, s, line.Value); err != nil {
				return err
			}
		}
		l.from[key] += int64(len(page.Lines))
		if page.NextCursor != nil {
			continue
		}
		if s.Status.Terminal() {
			l.from[key] = -1
		}
		return nil
	}
	return nil
}

// record is a stored line.
type record struct {
	TS  string `json:"ts"`
	Msg string `json:"msg"`
}

// readRecord reads a stored line; one in another form is shown as it is.
func readRecord(stored string) record {
	var r record
	if json.Unmarshal([]byte(stored), &r) != nil {
		r.Msg = stored
	}
	return r
}

func (l *logPrinter) line(j adminwire.Job, s adminwire.Step, stored string) error {
	r := readRecord(stored)
	if l.json {
		raw, err := json.Marshal(struct {
			Job       string `json:"job"`
			Step      string `json:"step"`
			StepIndex int    `json:"stepIndex"`
			record
		}{j.JobName, s.StepName, s.StepIndex, r})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(l.Stdout, "%s\n", raw)
		return err
	}
	text := r.Msg
	if _, ok := terminal(l.Stdout); ok {
		text = livetree.CleanColours(text)
		if !l.colour {
			text = livetree.Clean(text)
		}
	}
	if l.prefix {
		text = livetree.Clean(j.JobName) + " › " + livetree.Clean(s.StepName) + " | " + text
	}
	if l.times {
		text = r.TS + " " + text
	}
	_, err := fmt.Fprintln(l.Stdout, text) // an output that is gone ends the printing
	return err
}
