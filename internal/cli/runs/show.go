package runs

import (
	"context"
	"time"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// show takes a message in and shows what it changes. Lines that a stream has left out, or that were written before it
// began, are read from the step's log.
func (w *watcher) show(ctx context.Context, m adminwire.Observed) error {
	switch {
	case m.Type == adminwire.ObserveSnapshot:
		w.run, w.jobs = *m.Run, m.Jobs
		if err := w.fillAll(ctx); err != nil {
			return err
		}
	case m.Type == adminwire.ObserveLog:
		return w.lines(ctx, m)
	case m.Step != nil:
		w.putStep(m.JobID, *m.Step)
		if m.Step.Status.Terminal() {
			if err := w.fill(ctx, adminwire.Job{JobID: m.JobID, JobName: m.JobName}, *m.Step); err != nil {
				return err
			}
		}
	case m.Job != nil:
		j := w.putJob(*m.Job)
		if j.Status.Terminal() {
			if err := w.fillJob(ctx, j); err != nil {
				return err
			}
		}
	case m.Run != nil:
		w.run = *m.Run
	default:
		return nil
	}
	return w.refresh(ctx)
}

// refresh shows what is known, with what jobs wait for at this moment.
func (w *watcher) refresh(ctx context.Context) error {
	if err := w.explain(ctx); err != nil {
		return err
	}
	w.screen.Show(w.run, w.jobs)
	return nil
}

// putJob gives the job with its steps.
func (w *watcher) putJob(j adminwire.Job) adminwire.Job {
	delete(w.reasons, j.JobID) // it is where it was no longer
	for i := range w.jobs {
		if w.jobs[i].JobID == j.JobID {
			j.Steps = w.jobs[i].Steps
			w.jobs[i] = j
			return j
		}
	}
	w.jobs = append(w.jobs, j)
	return j
}

func (w *watcher) putStep(jobID string, s adminwire.Step) {
	for i := range w.jobs {
		if w.jobs[i].JobID == jobID {
			w.jobs[i].Steps = putStep(w.jobs[i].Steps, s)
		}
	}
}

// putStep keeps steps in the order of their numbers.
func putStep(steps []adminwire.Step, s adminwire.Step) []adminwire.Step {
	at := len(steps)
	for i := range steps {
		switch {
		case steps[i].StepIndex == s.StepIndex:
			steps[i] = s
			return steps
		case steps[i].StepIndex > s.StepIndex && i < at:
			at = i
		}
	}
	return append(steps[:at:at], append([]adminwire.Step{s}, steps[at:]...)...)
}

// lines shows lines of the stream, and before them those that it has left out.
func (w *watcher) lines(ctx context.Context, m adminwire.Observed) error {
	log := adminwire.LogName{JobID: m.JobID, Job: m.JobName, StepIndex: *m.StepIndex, Step: m.StepName}
	key := stepKey{m.JobID, *m.StepIndex}
	if w.from[key] < 0 || m.From == nil {
		return nil
	}
	if !w.brief && *m.From > w.from[key] {
		if err := w.readLog(ctx, log, *m.From); err != nil {
			return err
		}
	}
	for i, line := range m.Lines {
		if n := *m.From + int64(i); n >= w.from[key] {
			w.screen.Line(log, line)
			w.from[key] = n + 1
		}
	}
	return nil
}

// fillAll shows what was written before the stream began.
func (w *watcher) fillAll(ctx context.Context) error {
	if w.brief {
		return nil
	}
	for _, j := range w.jobs {
		if err := w.fillJob(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// fillJob shows what is left of all logs of a job.
func (w *watcher) fillJob(ctx context.Context, j adminwire.Job) error {
	for _, s := range append([]adminwire.Step{j.OwnLog()}, j.Steps...) {
		if err := w.fill(ctx, j, s); err != nil {
			return err
		}
	}
	return nil
}

// fill shows what is left of a step's log. The step may have ended and still send lines, as long as its job has not.
func (w *watcher) fill(ctx context.Context, j adminwire.Job, s adminwire.Step) error {
	key := stepKey{j.JobID, s.StepIndex}
	if w.brief || w.from[key] < 0 || s.Status == ci.StepPending {
		return nil
	}
	err := w.readLog(ctx, j.Log(s), 1<<62)
	if err == nil && j.Status.Terminal() {
		w.from[key] = -1
	}
	return err
}

// readLog shows the lines of a log from the one that is next on, up to but without another.
func (w *watcher) readLog(ctx context.Context, log adminwire.LogName, to int64) error {
	key := stepKey{log.JobID, log.StepIndex}
	for w.from[key] < to {
		page, err := w.c.Logs(ctx, w.id, log.JobID, log.StepIndex, client.LogQuery{From: w.from[key], Limit: int(min(pageLines, to-w.from[key]))})
		if err != nil {
			return err
		}
		for _, line := range page.Lines {
			w.screen.Line(log, readRecord(line.Value).Msg)
		}
		w.from[key] += int64(len(page.Lines))
		if page.NextCursor == nil {
			return nil
		}
	}
	return nil
}

// askEvery is how often it is asked what jobs wait for.
const askEvery = time.Second

// explain puts beside every job that waits what it waits for at this moment.
func (w *watcher) explain(ctx context.Context) error {
	waiting := false
	for _, j := range w.jobs {
		waiting = waiting || j.Status == ci.JobPending || j.Status == ci.JobQueued || j.Status == ci.JobRecovering
	}
	if waiting && !w.run.Status.Terminal() && time.Since(w.asked) > askEvery {
		why, err := w.c.Explain(ctx, w.id)
		if err != nil {
			return err
		}
		w.asked = time.Now()
		clear(w.reasons)
		for _, j := range why.Jobs {
			w.reasons[j.JobID] = j.Reason
		}
	}
	for i, j := range w.jobs {
		if reason, ok := w.reasons[j.JobID]; ok && !j.Status.Terminal() && j.Status != ci.JobRunning {
			w.jobs[i].Reason = &reason
		}
	}
	return nil
}
