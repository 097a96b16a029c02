package livetree

import (
	"fmt"
	"io"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// Plain writes a line for every change and for every log line, for outputs that are no terminal.
type Plain struct {
	out  io.Writer
	seen map[string]string // run, job or step → state shown last
}

// NewPlain makes one that writes to out.
func NewPlain(out io.Writer) *Plain { return &Plain{out: out, seen: map[string]string{}} }

// Show writes what has changed since the last call.
func (p *Plain) Show(run adminwire.RunDetail, jobs []adminwire.Job) {
	for _, j := range jobs {
		job := Clean(j.JobName)
		for _, s := range j.Steps {
			p.changed(fmt.Sprint(j.JobID, " ", s.StepIndex), Place(j.JobName, s.StepName), string(s.Status), took(s.DurationMs, s.Status.Terminal()), deref(s.ErrorMessage))
		}
		why := deref(j.ErrorMessage)
		if j.Reason != nil && (why == "" || !j.Status.Terminal()) {
			why = j.Reason.Message
		}
		p.changed(j.JobID, job, string(j.Status), took(j.DurationMs, j.Status.Terminal()), jobNote(j.Status, why))
	}
	p.changed(run.RunID, "run "+Clean(run.WorkflowName), string(run.Status), took(run.DurationMs, run.Status.Terminal()), deref(run.FailureReason))
}

// jobNote is what is said beside a job's state: why it waits or ended badly. One that goes on says nothing.
func jobNote(status ci.JobStatus, why string) string {
	if status == ci.JobRunning || status == ci.JobSuccess {
		return ""
	}
	return why
}

func (p *Plain) changed(key, what, state, time, note string) {
	text := state
	for _, more := range []string{time, Clean(note)} {
		if more != "" {
			text += "  " + more
		}
	}
	if p.seen[key] == text {
		return
	}
	p.seen[key] = text
	fmt.Fprintf(p.out, "%-28s %s\n", what, text)
}

// Line writes a log line.
func (p *Plain) Line(log adminwire.LogName, text string) {
	fmt.Fprintf(p.out, "%-28s | %s\n", Place(log.Job, log.Step), Clean(text))
}

// Place is how people are told where a line comes from: from a step, or from the job itself where step is "".
func Place(job, step string) string {
	if step == "" {
		return Clean(job)
	}
	return Clean(job) + " › " + Clean(step)
}

// Close has nothing to leave.
func (p *Plain) Close() {}
