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
	case m.Type == adminwire.ObserveGap:
		return w.close(ctx, m)
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

// tell passes a message on to a program, and with it the lines that the stream has left out: behind the whole picture, which
// says of what they are, and else before it, since a program that is told that something has ended has been told all of it.
func (w *watcher) tell(ctx context.Context, m adminwire.Observed) error {
	w.sequence = m.Sequence
	switch m.Type {
	case adminwire.ObserveLog, adminwire.ObserveGap:
		return w.show(ctx, m)
	case adminwire.ObserveSnapshot:
		if err := w.print(m); err != nil {
			return err
		}
		return w.show(ctx, m)
	}
	if err := w.show(ctx, m); err != nil {
		return err
	}
	return w.print(m)
}

// refresh shows people what is known, with what jobs wait for at this moment.
func (w *watcher) refresh(ctx context.Context) error {
	if w.screen == nil {
		return nil
	}
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
	key := stepKey{m.JobID, *m.StepIndex}
	if w.from[key] < 0 || m.From == nil {
		return nil
	}
	if !w.brief && *m.From > w.from[key] {
		if err := w.readLog(ctx, logOf(m), *m.From); err != nil {
			return err
		}
	}
	from, end := max(*m.From, w.from[key]), *m.From+int64(len(m.Lines))
	if from >= end {
		return nil // they have been read already
	}
	m.Lines, m.From = m.Lines[from-*m.From:], &from
	return w.say(m)
}

// close shows the lines that the stream says it has left out.
func (w *watcher) close(ctx context.Context, m adminwire.Observed) error {
	if w.brief || m.From == nil || w.from[stepKey{m.JobID, *m.StepIndex}] < 0 {
		return nil
	}
	return w.readLog(ctx, logOf(m), *m.From+m.DroppedLineCount)
}

// logOf names the log that a message is about.
func logOf(m adminwire.Observed) adminwire.LogName {
	return adminwire.LogName{JobID: m.JobID, Job: m.JobName, StepIndex: *m.StepIndex, Step: m.StepName}
}

// say shows the lines of a message, which are the next of their log.
func (w *watcher) say(m adminwire.Observed) error {
	w.from[stepKey{m.JobID, *m.StepIndex}] = *m.From + int64(len(m.Lines))
	if w.print != nil {
		return w.print(m)
	}
	log := logOf(m)
	for _, line := range m.Lines {
		w.screen.Line(log, line)
	}
	return nil
}

// missing passes over lines that are nowhere any more, and says so to programs; how many is 0 where that is not known.
func (w *watcher) missing(log adminwire.LogName, many int64) error {
	m := w.about(log)
	m.Type, m.DroppedLineCount = adminwire.ObserveGap, many
	w.from[stepKey{log.JobID, log.StepIndex}] += many
	if w.print == nil {
		return nil
	}
	return w.print(m)
}

// about begins a message about the next lines of a log, which came with the last message of the stream.
func (w *watcher) about(log adminwire.LogName) adminwire.Observed {
	from, step := w.from[stepKey{log.JobID, log.StepIndex}], log.StepIndex
	return adminwire.Observed{Type: adminwire.ObserveLog, Sequence: w.sequence, RunID: w.id, JobID: log.JobID, JobName: log.Job, StepIndex: &step, StepName: log.Step,
		From: &from}
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
	err := w.readLog(ctx, j.Log(s), everything)
	if err == nil && j.Status.Terminal() {
		w.from[key] = -1
	}
	return err
}

// everything is the end of a log of which nobody knows how long it is.
const everything = 1 << 62

// readLog shows the lines of a log from the one that is next on, up to but without another.
func (w *watcher) readLog(ctx context.Context, log adminwire.LogName, to int64) error {
	key := stepKey{log.JobID, log.StepIndex}
	for w.from[key] < to {
		page, err := w.c.Logs(ctx, w.id, log.JobID, log.StepIndex, client.LogQuery{From: w.from[key], Limit: int(min(pageLines, to-w.from[key]))})
		if err != nil {
			return err
		}
		if len(page.Lines) > 0 {
			if err := w.say(w.stored(log, page.Lines)); err != nil {
				return err
			}
		}
		switch {
		case w.from[key] < to && to < everything && len(page.Lines) == 0:
			return w.missing(log, to-w.from[key])
		case page.Expired:
			return w.missing(log, 0)
		case to == everything && page.NextCursor == nil:
			return nil
		}
	}
	return nil
}

// stored makes a message of lines as they are stored. Its time is that of the last, as it is in the stream.
func (w *watcher) stored(log adminwire.LogName, lines []adminwire.Untrusted) adminwire.Observed {
	m := w.about(log)
	for _, line := range lines {
		r := readRecord(line.Value)
		if at, err := time.Parse(time.RFC3339, r.TS); err == nil {
			m.Timestamp = adminwire.Time{Time: at}
		}
		m.Lines = append(m.Lines, r.Msg)
	}
	return m
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
