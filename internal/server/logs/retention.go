package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"kici/internal/kit/blob"
	"kici/internal/kit/service"
)

// Defaults of retention.
const (
	DefaultMaxAge   = 90 * 24 * time.Hour
	DefaultMaxTotal = 20 << 30
)

const (
	sweepPeriod = 10 * time.Minute
	settleTime  = time.Minute // a log that was written within it is not deleted: a late chunk may still come
)

// RunState is what a sweep has to know of a run.
type RunState int

// The states of runs. The logs of an unknown run, which nobody can ask for any more, go by their age alone.
const (
	RunOpen RunState = iota
	RunEnded
	RunUnknown
)

// Retention says which logs are kept.
type Retention struct {
	MaxAge    time.Duration // since the last line of the run; 0 is for ever
	RunMaxAge time.Duration // after which runs themselves are forgotten, and no log is of use; 0 is never
	MaxTotal  int64         // bytes of all logs in the data folder; 0 is no bound. An object store has none
	Run       func(ctx context.Context, runID string) (RunState, error)
}

// age is how old a log may become, 0 for any age.
func (r Retention) age() time.Duration {
	if r.MaxAge <= 0 || r.RunMaxAge > 0 && r.RunMaxAge < r.MaxAge {
		return r.RunMaxAge
	}
	return r.MaxAge
}

// stateOf tells the state of a run that is named as an element of paths. No run has an id that cannot be read.
func (r Retention) stateOf(ctx context.Context, run string) (RunState, error) {
	id, err := url.PathUnescape(run)
	if err != nil {
		return RunUnknown, nil
	}
	return r.Run(ctx, id)
}

// runLogs are the logs of one run.
type runLogs struct {
	run   string // as an element of paths
	bytes int64
	last  time.Time // of writing
}

// Sweep is the loop that deletes the logs whose time is up and, above the bound, those of the runs that ended longest
// ago. Logs of a run that has not ended are never deleted.
func (s *Store) Sweep(ctx context.Context, keep Retention) error {
	var marks time.Time // when they were looked at last
	return service.Every(ctx, s.log, "log retention", sweepPeriod, nil, func(ctx context.Context) error {
		err := s.sweepOnce(ctx, keep)
		if err == nil && time.Since(marks) >= markPeriod {
			marks = time.Now()
			err = errors.Join(s.sweepMarks(ctx, keep), s.sweepGone(ctx, keep))
		}
		return err
	})
}

func (s *Store) sweepOnce(ctx context.Context, keep Retention) error {
	here, err := s.runsHere(ctx)
	if err != nil {
		return fmt.Errorf("look at logs: %w", err)
	}
	kept, gone, freed, err := s.expire(ctx, keep, here, keep.MaxTotal)
	s.keptBytes.Store(kept)
	if err == nil && s.remote != nil && keep.age() > 0 {
		var there []runLogs
		if there, err = s.runsThere(ctx); err == nil {
			var moreKept, moreFreed int64
			var more int
			moreKept, more, moreFreed, err = s.expire(ctx, keep, there, 0)
			s.keptBytes.Add(moreKept)
			gone, freed = gone+more, freed+moreFreed
		}
	}
	if gone > 0 {
		s.log.Info("logs expired", "runs", gone, "bytes", freed, "kept", s.keptBytes.Load())
	}
	return err
}

// expire deletes what may go of these logs, the oldest first, and tells what is kept and what went.
func (s *Store) expire(ctx context.Context, keep Retention, logs []runLogs, most int64) (kept int64, gone int, freed int64, err error) {
	for _, l := range logs {
		kept += l.bytes
	}
	slices.SortFunc(logs, func(a, b runLogs) int { return cmp.Or(a.last.Compare(b.last), cmp.Compare(a.run, b.run)) })
	for _, l := range logs {
		age := time.Since(l.last)
		old := keep.age() > 0 && age > keep.age()
		if !old && (most <= 0 || kept <= most) || age < settleTime {
			return kept, gone, freed, nil // the others are younger
		}
		went, err := s.expireRun(ctx, keep, l.run, old)
		if err != nil {
			return kept, gone, freed, fmt.Errorf("expire logs of run %s: %w", l.run, err)
		}
		if went {
			kept, gone, freed = kept-l.bytes, gone+1, freed+l.bytes
			s.expiredRuns.Add(1)
			s.expiredBytes.Add(l.bytes)
		}
	}
	return kept, gone, freed, nil
}

// expireRun deletes the logs of a run if it has ended.
func (s *Store) expireRun(ctx context.Context, keep Retention, run string, old bool) (bool, error) {
	id, err := url.PathUnescape(run)
	if err != nil {
		return false, nil // no run has such an id
	}
	state, err := keep.Run(ctx, id)
	if err != nil || state == RunOpen || state == RunUnknown && !old || !s.letGo(runFolder(run)) {
		return false, err
	}
	if state == RunUnknown {
		return true, s.removeRun(ctx, run) // nobody can read the mark
	}
	return true, s.deleteRun(ctx, run)
}

// deleteRun leaves a mark that there were logs, and deletes them. Readers find what is still there until it goes.
func (s *Store) deleteRun(ctx context.Context, run string) error {
	if err := s.markExpired(ctx, run); err != nil {
		return err
	}
	return s.removeRun(ctx, run)
}

func (s *Store) removeRun(ctx context.Context, run string) error {
	if s.remote != nil {
		objects, err := s.remote.List(ctx, runFolder(run))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := s.remote.Delete(ctx, object); err != nil {
				return err
			}
		}
	}
	if s.rows != nil {
		if err := s.rows.removeRun(ctx, run); err != nil {
			return err
		}
	}
	return s.root.RemoveAll(runFolder(run))
}

// letGo closes the logs below a folder, and tells whether nobody was writing one.
func (s *Store) letGo(folder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for log, st := range s.streams {
		if !strings.HasPrefix(log, folder+"/") {
			continue
		}
		if st.refs > 0 || st.close() != nil {
			return false
		}
		delete(s.streams, log)
	}
	for log := range s.debts {
		if strings.HasPrefix(log, folder+"/") {
			delete(s.debts, log)
		}
	}
	return true
}

// runsHere measures the logs in the data folder and the short ones. Segments that wait for their upload are not among them.
func (s *Store) runsHere(ctx context.Context) ([]runLogs, error) {
	var m measure
	err := fs.WalkDir(s.root.FS(), runsFolder, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while the walk was under way
		}
		if err = cmp.Or(err, ctx.Err()); err != nil || !entry.Type().IsRegular() {
			return err
		}
		if _, _, segment := parseSegment(entry.Name()); segment {
			return nil
		}
		info, err := entry.Info()
		if run, _, ok := splitPath(name); ok && err == nil {
			m.add(run, info.Size(), info.ModTime())
		}
		return nil
	})
	if err == nil && s.rows != nil {
		err = s.rows.measure(ctx, &m)
	}
	return m.runs(), err
}

// runsThere measures the logs in the object store.
func (s *Store) runsThere(ctx context.Context) ([]runLogs, error) {
	var m measure
	err := s.remote.Walk(ctx, runsFolder, func(object blob.Info) error {
		when := object.Modified
		if g, _, ok := parseSegment(path.Base(object.Path)); ok {
			when = g.born() // by the clock of the servers, and before a delayed upload
		}
		if run, _, ok := splitPath(object.Path); ok {
			m.add(run, object.Size, when)
		}
		return nil
	})
	return m.runs(), err
}

// measure adds up logs by their runs.
type measure struct{ byRun map[string]runLogs }

func (m *measure) add(run string, bytes int64, last time.Time) {
	if m.byRun == nil {
		m.byRun = map[string]runLogs{}
	}
	sum := m.byRun[run]
	sum.run, sum.bytes = run, sum.bytes+bytes
	if last.After(sum.last) {
		sum.last = last
	}
	m.byRun[run] = sum
}

func (m *measure) runs() []runLogs {
	out := make([]runLogs, 0, len(m.byRun))
	for _, l := range m.byRun {
		out = append(out, l)
	}
	return out
}
