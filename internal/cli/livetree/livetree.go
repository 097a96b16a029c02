// Package livetree shows a run as a tree of jobs and steps that is drawn again while it changes, or, where there is no
// terminal, as a line for every change.
package livetree

import (
	"fmt"
	"io"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// Options say how a Tree draws.
type Options struct {
	// Size is the size of the terminal in cells. It is asked before every drawing.
	Size func() (width, height int)
	// Colour allows colours.
	Colour bool
	// Now tells the time; nil is time.Now.
	Now func() time.Time
}

// Tree draws a run on a terminal. It is not for concurrent use.
type Tree struct {
	out   io.Writer
	opts  Options
	run   adminwire.RunDetail
	jobs  []adminwire.Job
	last  map[logKey]string // last lines
	drawn int               // lines that the last drawing left on the terminal
}

// logKey tells a step from others of its name.
type logKey struct {
	jobID string
	step  int
}

// New makes a tree that draws on out.
func New(out io.Writer, o Options) *Tree {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Tree{out: out, opts: o, last: map[logKey]string{}}
}

// Show draws the run as it is now. Calling it without a change moves the times on.
func (t *Tree) Show(run adminwire.RunDetail, jobs []adminwire.Job) {
	t.run, t.jobs = run, jobs
	t.draw(true)
}

// Line remembers the newest line of a log, for the next drawing.
func (t *Tree) Line(log adminwire.LogName, text string) {
	if text = strings.TrimSpace(Clean(text)); text != "" {
		t.last[logKey{log.JobID, log.StepIndex}] = text
	}
}

// Close draws the last state whole, however high the terminal is.
func (t *Tree) Close() {
	if t.run.RunID != "" {
		t.draw(false)
	}
}

// draw writes over the last drawing in one write, so that nothing flickers.
func (t *Tree) draw(fit bool) {
	width, height := t.opts.Size()
	lines := t.lines(true)
	if fit && len(lines) > height-1 {
		lines = t.lines(false) // without the steps of jobs that have ended
	}
	if fit && height > 2 && len(lines) > height-1 {
		hidden := len(lines) - (height - 2)
		lines = append(lines[:height-2], line{text: fmt.Sprintf("… %d more", hidden), tone: faint})
	}
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.drawn)
	}
	for _, l := range lines {
		b.WriteString("\r" + t.render(l, width) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	t.drawn = len(lines)
	_, _ = io.WriteString(t.out, b.String()) // a terminal that is gone has nobody to tell
}

// tone is how a part of the tree looks.
type tone int

const (
	normal tone = iota
	good
	bad
	busy
	faint
)

// line is one line of the tree: branches, a symbol in its tone, text, and a faint remark that is cut first.
type line struct {
	branch string
	symbol string
	tone   tone
	text   string
	remark string
}

func (t *Tree) render(l line, width int) string {
	head := l.branch
	if l.symbol != "" {
		head += l.symbol + " "
	}
	plain := clip(head+l.text, width-1)
	if len(plain) < len(head) {
		return plain
	}
	remark := ""
	if room := width - 1 - lipgloss.Width(plain) - 2; l.remark != "" && room > 8 {
		remark = "  " + t.paint(faint, clip(l.remark, room))
	}
	symbol, text := strings.TrimPrefix(head, l.branch), plain[len(head):]
	if l.symbol == "" {
		return t.paint(faint, l.branch) + t.paint(l.tone, text) + remark
	}
	return t.paint(faint, l.branch) + t.paint(l.tone, symbol) + text + remark
}

func (t *Tree) paint(how tone, text string) string {
	if !t.opts.Colour || text == "" {
		return text
	}
	style := lipgloss.NewStyle()
	switch how {
	case good:
		style = style.Foreground(lipgloss.Green)
	case bad:
		style = style.Foreground(lipgloss.Red)
	case busy:
		style = style.Foreground(lipgloss.Yellow)
	case faint:
		style = style.Foreground(lipgloss.BrightBlack)
	default:
		return text
	}
	return style.Render(text)
}

func (t *Tree) lines(allSteps bool) []line {
	r := t.run
	where := Clean(r.RepoIdentifier)
	if r.Ref != "" {
		where += "@" + Clean(r.Ref)
	}
	title := fmt.Sprintf("%s  %s %.7s  %s  %s", Clean(r.WorkflowName), where, r.SHA, r.Status, t.elapsed(r.StartedAt, r.DurationMs))
	symbol, how := runSymbol(r.Status)
	lines := []line{{symbol: symbol, tone: how, text: strings.TrimRight(title, " ")}}
	for i, j := range t.jobs {
		lines = append(lines, t.jobLines(j, i == len(t.jobs)-1, allSteps)...)
	}
	if r.FailureReason != nil && r.Status.Terminal() {
		lines = append(lines, line{text: Clean(*r.FailureReason), tone: bad})
	}
	return lines
}

func (t *Tree) jobLines(j adminwire.Job, last, allSteps bool) []line {
	branch, below := "├─ ", "│  "
	if last {
		branch, below = "└─ ", "   "
	}
	symbol, how := jobSymbol(j.Status)
	head := line{branch: branch, symbol: symbol, tone: how, text: nameAndTime(j.JobName, t.elapsed(j.StartedAt, j.DurationMs)), remark: t.jobRemark(j)}
	lines := []line{head}
	if j.Status.Terminal() && !allSteps {
		return lines
	}
	for i, s := range j.Steps {
		inner := "├─ "
		if i == len(j.Steps)-1 {
			inner = "└─ "
		}
		symbol, how := stepSymbol(s.Status)
		lines = append(lines, line{branch: below + inner, symbol: symbol, tone: how,
			text: nameAndTime(s.StepName, t.elapsed(s.StartedAt, s.DurationMs)), remark: t.stepRemark(j, s)})
	}
	return lines
}

func nameAndTime(name, time string) string {
	return strings.TrimRight(fmt.Sprintf("%-24s %s", Clean(name), time), " ")
}

// jobRemark says why a job waits or ended badly, what it says itself before its first step, and else who works on it.
func (t *Tree) jobRemark(j adminwire.Job) string {
	switch {
	case j.Status == ci.JobSuccess:
		return ""
	case j.Status == ci.JobRunning && len(j.Steps) == 0 && t.last[logKey{j.JobID, adminwire.OwnLogIndex}] != "":
		return t.last[logKey{j.JobID, adminwire.OwnLogIndex}]
	case j.Status == ci.JobRunning && j.AgentID != nil:
		return "agent " + Clean(*j.AgentID)
	case j.Status.Terminal() && j.ErrorMessage != nil:
		return Clean(*j.ErrorMessage)
	case j.Reason != nil && j.Status != ci.JobRunning:
		return Clean(j.Reason.Message)
	}
	return ""
}

func (t *Tree) stepRemark(j adminwire.Job, s adminwire.Step) string {
	if s.Status.Terminal() && s.ErrorMessage != nil {
		return Clean(*s.ErrorMessage)
	}
	return t.last[logKey{j.JobID, s.StepIndex}]
}

// elapsed is how long something took, or has taken so far. The clocks of two machines differ, so it is never negative.
func (t *Tree) elapsed(started adminwire.Time, ms *int64) string {
	if ms != nil {
		return Duration(time.Duration(*ms) * time.Millisecond)
	}
	if started.IsZero() {
		return ""
	}
	return Duration(t.opts.Now().Sub(started.Time))
}

func runSymbol(s ci.RunStatus) (string, tone) {
	switch s {
	case ci.RunSuccess:
		return "✓", good
	case ci.RunFailed:
		return "✗", bad
	case ci.RunCancelled:
		return "⊘", faint
	}
	return "●", busy
}

func jobSymbol(s ci.JobStatus) (string, tone) {
	switch {
	case s == ci.JobSuccess:
		return "✓", good
	case s == ci.JobSkipped:
		return "↷", faint
	case s == ci.JobCancelled:
		return "⊘", faint
	case s.FailsRun():
		return "✗", bad
	case s == ci.JobPending || s == ci.JobQueued:
		return "○", faint
	}
	return "●", busy
}

func stepSymbol(s ci.StepStatus) (string, tone) {
	switch s {
	case ci.StepSuccess:
		return "✓", good
	case ci.StepFailed:
		return "✗", bad
	case ci.StepSkipped:
		return "↷", faint
	case ci.StepCancelled:
		return "⊘", faint
	case ci.StepPending:
		return "○", faint
	}
	return "●", busy
}

// took is the time of something that has ended.
func took(ms *int64, ended bool) string {
	if ms == nil || !ended {
		return ""
	}
	return Duration(time.Duration(*ms) * time.Millisecond)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
