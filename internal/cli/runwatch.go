package cli

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

func (a *admin) runsWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch RUN",
		Short: "Show a run while it goes on; ends with it, and well only if it ended well",
		Long: "Shows a run's jobs and steps with their states, times and last log lines, drawn again while they change. Where the output\n" +
			"is no terminal, a line for every change and every log line. The exit code is 0 for a run that succeeded, else 1.",
		Example: "  kici admin runs watch latest",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(a.watch),
	}
}

// watch shows a run until it has ended. An interrupt ends the watching, not the run.
func (a *admin) watch(ctx context.Context, c *client.Client, id string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w := &watcher{c: c, run: id, screen: a.screen(), from: map[stepKey]int64{}}
	_, w.brief = terminal(a.Stdout)
	if a.json {
		w.screen, w.brief = silent{}, true
	}
	run, err := w.follow(ctx)
	w.screen.Close()
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(adminwire.OneRun{Run: run}); err != nil {
			return err
		}
	}
	if run.Status != ci.RunSuccess {
		return &exitError{code: exitFailure}
	}
	return nil
}

// watcher feeds a screen with a run.
type watcher struct {
	c      *client.Client
	run    string
	screen screen
	from   map[stepKey]int64 // lines shown; −1 of a step that has ended and is shown whole
	brief  bool              // only the last lines matter
}

// follow looks at the run again and again. The state is read before the lines, so that an ended step is shown with all.
func (w *watcher) follow(ctx context.Context) (adminwire.RunDetail, error) {
	for {
		run, err := w.c.Run(ctx, w.run)
		if err != nil {
			return run, err
		}
		jobs, err := w.c.Jobs(ctx, w.run)
		if err != nil {
			return run, err
		}
		if err := w.explain(ctx, run, jobs); err != nil {
			return run, err
		}
		if err := w.lines(ctx, jobs); err != nil {
			return run, err
		}
		w.screen.Show(run, jobs)
		if run.Status.Terminal() {
			return run, nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return run, err
		}
	}
}

// explain puts beside every job that waits what it waits for at this moment.
func (w *watcher) explain(ctx context.Context, run adminwire.RunDetail, jobs []adminwire.Job) error {
	waiting := false
	for _, j := range jobs {
		waiting = waiting || j.Status == ci.JobPending || j.Status == ci.JobQueued || j.Status == ci.JobRecovering
	}
	if !waiting || run.Status.Terminal() {
		return nil
	}
	why, err := w.c.Explain(ctx, w.run)
	if err != nil {
		return err
	}
	reasons := map[string]ci.Reason{}
	for _, j := range why.Jobs {
		reasons[j.JobID] = j.Reason
	}
	for i, j := range jobs {
		if reason, ok := reasons[j.JobID]; ok && !j.Status.Terminal() {
			jobs[i].Reason = &reason
		}
	}
	return nil
}

// lines shows what steps have written since the last look.
func (w *watcher) lines(ctx context.Context, jobs []adminwire.Job) error {
	for _, j := range jobs {
		for _, s := range j.Steps {
			if err := w.stepLines(ctx, j, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// stepLines shows the new lines of a step. Where only the last matters, those before are passed over.
func (w *watcher) stepLines(ctx context.Context, j adminwire.Job, s adminwire.Step) error {
	key, limit := stepKey{j.JobID, s.StepIndex}, pageLines
	if w.brief {
		limit = 20
	}
	for w.from[key] >= 0 {
		page, err := w.c.Logs(ctx, w.run, j.JobID, s.StepIndex, client.LogQuery{From: w.from[key], Limit: limit})
		if err != nil {
			return err
		}
		for _, line := range page.Lines {
			w.screen.Line(j.JobName, s.StepName, readRecord(line.Value).Msg)
		}
		w.from[key] += int64(len(page.Lines))
		if page.NextCursor == nil {
			if s.Status.Terminal() {
				w.from[key] = -1
			}
			return nil
		}
		if w.brief {
			w.from[key] = max(w.from[key], page.TotalLines-1)
		}
	}
	return nil
}
