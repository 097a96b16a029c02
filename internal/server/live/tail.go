package live

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/logs/joined"
	"kici/internal/server/report"
)

// The bounds of what one look reads of one step.
const (
	pageLines = 500      // in one message
	pageBytes = 64 << 10 // in one message, or one line
	maxLines  = 2000     // beyond it a look passes lines over, and says how many
)

// The bounds of asking other nodes. Their lines come with the ticks; one that does not answer is left alone for a while, and
// what is left out meanwhile is for the log's own routes.
const (
	awayTime  = 2 * time.Second // for all of one look
	awayPace  = lookEvery / 2   // no log of another node is asked for more often, however often there is a poke
	awayPause = 10 * time.Second
	awayMost  = 5 // times that the pause doubles, so that many logs of a node that hangs do not hold up each look in turn
)

// ownPace is how often the log of a job itself is looked at: there is one of every job, and little in it.
const ownPace = lookEvery / 2

// lastLines is how long a step that has ended is read on while its job goes on: some agents send the last lines behind the end,
// a tenth of a second later as a rule. What comes later is read when the job has ended, after which nothing comes.
const lastLines = 2 * time.Second

// tail is how far the log of one step has been read.
type tail struct {
	step   Step
	path   string
	place  Place
	placed time.Time // when the place was found: a job may go to another node
	again  time.Time // not asked for before it
	missed int       // times in a row that it was asked for in vain
	ended  time.Time // when the end of the step was seen first
	unmet  bool      // its end is not known yet, with which the reading begins
	next   int64     // line
	done   bool      // nothing more is read: the job has ended and all of it was, or the rest is for the log's own routes
}

// due tells whether the log is to be read at a look.
func (t *tail) due(j adminwire.Job, s adminwire.Step) bool {
	switch now := time.Now(); {
	case t.done:
		return false
	case j.Status.Terminal():
		return true
	case !s.Status.Terminal():
		return !now.Before(t.again)
	case t.ended.IsZero():
		t.ended = now
		return true
	default:
		return now.Sub(t.ended) < lastLines && !now.Before(t.again)
	}
}

// newLines reads what a step has written since the last look; away bounds the time for what other nodes have. At the feed's
// first look it only finds the end: what was written before is for the log's own routes.
func (f *feed) newLines(ctx, away context.Context, j adminwire.Job, s adminwire.Step) (out []adminwire.Observed, err error) {
	if s.Status == ci.StepPending {
		return nil, nil
	}
	key := stepKey{j.JobID, s.StepIndex}
	t := f.tails[key]
	if t == nil {
		if t, err = f.begin(ctx, j, s); err != nil {
			return nil, err
		}
		f.tails[key] = t
	}
	if !t.due(j, s) {
		return nil, nil
	}
	if err = f.find(ctx, t); err != nil {
		return nil, err
	}
	if !t.place.Away {
		if out, err = f.read(ctx, t, j, s); s.StepIndex == adminwire.OwnLogIndex {
			t.again = time.Now().Add(ownPace)
		}
		t.done = t.done || err == nil && j.Status.Terminal()
		return out, err
	}
	out, err = f.readAway(away, t, j, s)
	t.done = t.done || j.Status.Terminal()
	return out, err
}

// begin finds the log of a step. That of a job that had ended before anybody looked is not looked for.
func (f *feed) begin(ctx context.Context, j adminwire.Job, s adminwire.Step) (*tail, error) {
	first := f.sequence == 0
	if first && j.Status.Terminal() {
		return &tail{done: true}, nil
	}
	place, err := report.StepLog(ctx, f.room.DB.Read(), f.runID, j.JobID, s.StepIndex)
	if err != nil {
		return nil, err
	}
	return &tail{step: Step{RunID: f.runID, JobID: j.JobID, Index: s.StepIndex}, path: place.Path, unmet: first}, nil
}

// find finds the place of a log, from time to time.
func (f *feed) find(ctx context.Context, t *tail) (err error) {
	if time.Since(t.placed) < lookEvery {
		return nil
	}
	t.place, err = f.room.LogOf(ctx, t.step, f.inName())
	if err == nil {
		t.placed = time.Now()
	}
	return err
}

// inName is the credential of one who looks on, or of who was the last. Each look may be in another's name: that one of them
// is not good any more spoils little.
func (f *feed) inName() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for v := range f.viewers {
		return v.caller
	}
	return f.caller
}

// readAway reads what is with other nodes. That they do not answer is no error: states must not wait for lines.
func (f *feed) readAway(ctx context.Context, t *tail, j adminwire.Job, s adminwire.Step) ([]adminwire.Observed, error) {
	if ctx.Err() != nil {
		return nil, nil // others have used up the time, it is asked at the next look
	}
	out, err := f.read(ctx, t, j, s)
	_, away := errors.AsType[*joined.AwayError](err)
	if away || ctx.Err() != nil {
		t.again, t.placed = time.Now().Add(awayPause<<min(t.missed, awayMost)), time.Time{}
		t.missed++
		return out, nil
	}
	t.again, t.missed = time.Now().Add(awayPace), 0
	return out, err
}

// read reads on, and passes lines over where there are too many. A log that has become shorter has lost a part, and what it
// has now has other numbers.
func (f *feed) read(ctx context.Context, t *tail, j adminwire.Job, s adminwire.Step) ([]adminwire.Observed, error) {
	var out []adminwire.Observed
	if t.unmet {
		_, total, _, err := t.place.Log.Lines(ctx, t.path, 0, 0)
		t.next, t.unmet = total, err != nil
		return nil, err
	}
	stored, total, _, err := t.place.Log.Lines(ctx, t.path, t.next, pageLines)
	if err != nil {
		return nil, err
	}
	if t.done = total < t.next; t.done {
		return nil, nil
	}
	if behind := total - t.next; behind > maxLines {
		m := lineMessage(j, s, t.next, nil)
		m.Type, m.DroppedLineCount = adminwire.ObserveGap, behind-maxLines
		out = append(out, m)
		t.next, stored = total-maxLines, nil
	}
	for {
		for len(stored) > 0 {
			n := page(stored)
			out = append(out, lineMessage(j, s, t.next, stored[:n]))
			t.next, stored = t.next+int64(n), stored[n:]
		}
		if t.next >= total {
			return out, nil
		}
		if stored, _, _, err = t.place.Log.Lines(ctx, t.path, t.next, pageLines); err != nil || len(stored) == 0 {
			return out, err
		}
	}
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
