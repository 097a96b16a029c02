package cli

import (
	"fmt"
	"io"

	"kici/internal/core/adminwire"
	"kici/internal/demo"
)

// screen shows a run on this process's output.
func (p Process) screen() demo.Screen { return &plainScreen{out: p.Stdout, seen: map[string]string{}} }

// plainScreen writes a line for every change and every log line, for outputs that are no terminal.
type plainScreen struct {
	out  io.Writer
	seen map[string]string // job or step → last state shown
}

// Show writes what has changed.
func (s *plainScreen) Show(run adminwire.RunDetail, jobs []adminwire.Job) {
	for _, j := range jobs {
		s.changed(j.JobName, string(j.Status))
		for _, step := range j.Steps {
			s.changed(j.JobName+" › "+step.StepName, string(step.Status))
		}
	}
	s.changed("run "+run.WorkflowName, string(run.Status))
}

func (s *plainScreen) changed(what, state string) {
	if s.seen[what] != state {
		s.seen[what] = state
		fmt.Fprintf(s.out, "  %-28s %s\n", what, state)
	}
}

// Line writes a log line.
func (s *plainScreen) Line(job, step, text string) {
	fmt.Fprintf(s.out, "  %-28s | %s\n", job+" › "+step, text)
}

// Close has nothing to leave.
func (s *plainScreen) Close() {}
