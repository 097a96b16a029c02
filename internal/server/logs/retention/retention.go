// Package retention says which logs are kept, and which go: those whose time is up and, above the bound, those of the runs
// that ended longest ago. It knows logs by their runs, how large and how old they are; where they lie is their keeper's matter.
package retention

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// Defaults of retention.
const (
	DefaultMaxAge   = 90 * 24 * time.Hour
	DefaultMaxTotal = 20 << 30
)

// settleTime is how long a log that was written is not deleted: a late chunk may still come.
const settleTime = time.Minute

// RunState is what a sweep has to know of a run.
type RunState int

// The states of runs. The logs of an unknown run, which nobody can ask for any more, go by their age alone.
const (
	RunOpen RunState = iota
	RunEnded
	RunUnknown
)

// Policy says which logs are kept.
type Policy struct {
	MaxAge    time.Duration // since the last line of the run; 0 is for ever
	RunMaxAge time.Duration // after which runs themselves are forgotten, and no log is of use; 0 is never
	MaxTotal  int64         // bytes of all logs in the data folder; 0 is no bound. An object store has none
	Run       func(ctx context.Context, runID string) (RunState, error)
}

// Age is how old a log may become, 0 for any age.
func (p Policy) Age() time.Duration {
	if p.MaxAge <= 0 || p.RunMaxAge > 0 && p.RunMaxAge < p.MaxAge {
		return p.RunMaxAge
	}
	return p.MaxAge
}

// StateOf tells the state of a run that is named as an element of paths. No run has an id that cannot be read.
func (p Policy) StateOf(ctx context.Context, run string) (RunState, error) {
	id, err := url.PathUnescape(run)
	if err != nil {
		return RunUnknown, nil
	}
	return p.Run(ctx, id)
}

// RunLogs are the logs of one run.
type RunLogs struct {
	Run   string // as an element of paths
	Bytes int64
	Last  time.Time // of writing
}

// Keeper has logs.
type Keeper interface {
	// Remove deletes the logs of a run, with a mark that there were some. It does nothing, and says so, while one of them is
	// being written.
	Remove(ctx context.Context, run string, mark bool) (gone bool, err error)
}

// Swept is what became of logs.
type Swept struct {
	Kept  int64 // bytes
	Runs  int64 // whose logs went
	Freed int64 // bytes that they had
}

// Expire deletes what may go of these logs, the oldest first. most bounds the bytes that stay, 0 for no bound. Logs of a
// run that has not ended are never deleted.
func Expire(ctx context.Context, keep Policy, logs []RunLogs, most int64, keeper Keeper) (s Swept, err error) {
	for _, l := range logs {
		s.Kept += l.Bytes
	}
	slices.SortFunc(logs, func(a, b RunLogs) int { return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Run, b.Run)) })
	for _, l := range logs {
		age := time.Since(l.Last)
		old := keep.Age() > 0 && age > keep.Age()
		if !old && (most <= 0 || s.Kept <= most) || age < settleTime {
			return s, nil // the others are younger
		}
		gone, err := expire(ctx, keep, l.Run, old, keeper)
		if err != nil {
			return s, fmt.Errorf("expire logs of run %s: %w", l.Run, err)
		}
		if gone {
			s = Swept{Kept: s.Kept - l.Bytes, Runs: s.Runs + 1, Freed: s.Freed + l.Bytes}
		}
	}
	return s, nil
}

// expire deletes the logs of a run if it has ended.
func expire(ctx context.Context, keep Policy, run string, old bool, keeper Keeper) (bool, error) {
	id, err := url.PathUnescape(run)
	if err != nil {
		return false, nil // no run has such an id
	}
	state, err := keep.Run(ctx, id)
	if err != nil || state == RunOpen || state == RunUnknown && !old {
		return false, err
	}
	return keeper.Remove(ctx, run, state != RunUnknown) // nobody can read the mark of an unknown run
}

// Measure adds up logs by their runs.
type Measure struct{ byRun map[string]RunLogs }

// Add counts a log, or a part of one, in.
func (m *Measure) Add(run string, bytes int64, last time.Time) {
	if m.byRun == nil {
		m.byRun = map[string]RunLogs{}
	}
	sum := m.byRun[run]
	sum.Run, sum.Bytes = run, sum.Bytes+bytes
	if last.After(sum.Last) {
		sum.Last = last
	}
	m.byRun[run] = sum
}

// Runs are the sums.
func (m *Measure) Runs() []RunLogs {
	out := make([]RunLogs, 0, len(m.byRun))
	for _, l := range m.byRun {
		out = append(out, l)
	}
	return out
}
