package live

import (
	"context"
	"encoding/json"
	"slices"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/queue"
	"kici/internal/server/report"
)

// The bounds of what one look reads of one step.
const (
	pageLines = 500      // in one message
	pageBytes = 64 << 10 // in one message, or one line
	maxLines  = 2000     // beyond it a look passes lines over, and says how many
)

// tail is how far the log of one step has been read.
type tail struct {
	path string
	next int64 // line
	done bool  // the step has ended and all of it was read
}

// newLines reads what a step has written since the last look. At the feed's first look it only finds the end: what was
// written before is for the log's own routes.
func (f *feed) newLines(ctx context.Context, j adminwire.Job, s adminwire.Step) ([]adminwire.Observed, error) {
	if s.Status == ci.StepPending {
		return nil, nil
	}
	key := stepKey{j.JobID, s.StepIndex}
	t := f.tails[key]
	if t == nil {
		var err error
		if t, err = f.begin(ctx, j, s); err != nil {
			return nil, err
		}
		f.tails[key] = t
	}
	if t.done {
		return nil, nil
	}
	out, err := f.read(ctx, t, j, s)
	t.done = err == nil && s.Status.Terminal()
	return out, err
}

// begin finds the log of a step and, at the feed's first look, its end.
func (f *feed) begin(ctx context.Context, j adminwire.Job, s adminwire.Step) (*tail, error) {
	place, err := report.StepLog(ctx, f.room.DB.Read(), f.runID, j.JobID, s.StepIndex)
	if err != nil {
		return nil, err
	}
	t := &tail{path: place.Path}
	if f.sequence > 0 {
		return t, nil
	}
	if t.done = s.Status.Terminal(); !t.done {
		_, t.next, _, err = f.room.Logs.Lines(ctx, t.path, 0, 0)
	}
	return t, err
}

func (f *feed) read(ctx context.Context, t *tail, j adminwire.Job, s adminwire.Step) ([]adminwire.Observed, error) {
	var out []adminwire.Observed
	_, total, _, err := f.room.Logs.Lines(ctx, t.path, 0, 0)
	if err != nil || total <= t.next {
		return nil, err
	}
	if moved, err := f.moved(ctx, j.JobID); moved || err != nil {
		return nil, err
	}
	if behind := total - t.next; behind > maxLines {
		m := lineMessage(j, s, t.next, nil)
		m.Type, m.DroppedLineCount = adminwire.ObserveGap, behind-maxLines
		out = append(out, m)
		t.next = total - maxLines
	}
	for t.next < total {
		stored, _, _, err := f.room.Logs.Lines(ctx, t.path, t.next, pageLines)
		if err != nil || len(stored) == 0 {
			return out, err
		}
		for len(stored) > 0 {
			n := page(stored)
			out = append(out, lineMessage(j, s, t.next, stored[:n]))
			t.next, stored = t.next+int64(n), stored[n:]
		}
	}
	return out, nil
}

// moved tells whether a job has been with several nodes. What this one has of its log is not all, so its lines have other
// numbers in the whole, which is for the log's own routes.
func (f *feed) moved(ctx context.Context, jobID string) (bool, error) {
	stays, err := queue.Stays(ctx, f.room.DB.Read(), jobID)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(stays, func(s queue.Stay) bool { return s.NodeID != stays[0].NodeID }), nil
}

// page is how many of the lines fit into one message.
func page(lines []string) int {
	bytes := 0
	for i, l := range lines {
		if bytes += len(l); bytes > pageBytes && i > 0 {
			return i
		}
	}
	return len(lines)
}

// lineMessage has the texts of stored lines; one in another form is shown as it is.
func lineMessage(j adminwire.Job, s adminwire.Step, from int64, stored []string) adminwire.Observed {
	m := adminwire.Observed{Type: adminwire.ObserveLog, JobID: j.JobID, JobName: j.JobName, StepIndex: &s.StepIndex, StepName: s.StepName, From: &from}
	for _, line := range stored {
		var record struct {
			TS  adminwire.Time `json:"ts"`
			Msg *string        `json:"msg"`
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg != nil {
			m.Timestamp, line = record.TS, *record.Msg
		}
		m.Lines = append(m.Lines, line)
	}
	return m
}
