package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"kici/internal/kit/service"
	"kici/internal/server/logs/retention"
	"kici/internal/server/logs/segments"
)

const (
	sweepPeriod = 10 * time.Minute
	markPeriod  = 24 * time.Hour // how often marks of forgotten runs, and logs of nodes that are gone, are looked for
)

// Sweep is the loop that deletes what is not to be kept.
func (s *Store) Sweep(ctx context.Context, keep retention.Policy) error {
	var marks time.Time // when they were looked at last
	return service.Every(ctx, s.log, "log retention", sweepPeriod, nil, func(ctx context.Context) error {
		err := s.sweepOnce(ctx, keep)
		if err == nil && time.Since(marks) >= markPeriod {
			marks = time.Now()
			err = errors.Join(s.marks.Sweep(ctx, keep), s.sweepGone(ctx, keep))
		}
		return err
	})
}

func (s *Store) sweepOnce(ctx context.Context, keep retention.Policy) error {
	here, err := s.runsHere(ctx)
	if err != nil {
		return fmt.Errorf("look at logs: %w", err)
	}
	swept, err := retention.Expire(ctx, keep, here, keep.MaxTotal, keeper{s})
	if err == nil && s.segments != nil && keep.Age() > 0 {
		var there []retention.RunLogs
		if there, err = s.runsThere(ctx); err == nil {
			var more retention.Swept
			more, err = retention.Expire(ctx, keep, there, 0, keeper{s})
			swept = retention.Swept{Kept: swept.Kept + more.Kept, Runs: swept.Runs + more.Runs, Freed: swept.Freed + more.Freed}
		}
	}
	s.swept(swept)
	if swept.Runs > 0 {
		s.log.Info("logs expired", "runs", swept.Runs, "bytes", swept.Freed, "kept", swept.Kept)
	}
	return err
}

// keeper lets the logs of runs go.
type keeper struct{ *Store }

// Remove implements retention.Keeper. The mark comes first. Readers find what is still there until it goes.
func (k keeper) Remove(ctx context.Context, run string, mark bool) (bool, error) {
	if !k.letGo(runFolder(run)) {
		return false, nil
	}
	if mark {
		if err := k.marks.Put(ctx, run); err != nil {
			return true, err
		}
	}
	if k.segments != nil {
		if err := k.segments.Remove(ctx, runFolder(run)); err != nil {
			return true, err
		}
	}
	if k.rows != nil {
		if err := k.rows.removeRun(ctx, run); err != nil {
			return true, err
		}
	}
	return true, k.root.RemoveAll(runFolder(run))
}

// letGo closes the logs below a folder, and tells whether nobody was writing one.
func (s *Store) letGo(folder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for log, st := range s.streams {
		if !strings.HasPrefix(log, folder+"/") {
			continue
		}
		if st.refs > 0 || s.forgetLocked(st) != nil {
			return false
		}
	}
	if s.segments != nil {
		s.segments.LetGo(folder)
	}
	return true
}

// runsHere measures the logs in the data folder and the short ones. Segments that wait for their upload are not among them.
func (s *Store) runsHere(ctx context.Context) ([]retention.RunLogs, error) {
	var m retention.Measure
	err := fs.WalkDir(s.root.FS(), runsFolder, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while the walk was under way
		}
		if err = cmp.Or(err, ctx.Err()); err != nil || !entry.Type().IsRegular() || segments.Is(name) {
			return err
		}
		info, err := entry.Info()
		if run, _, ok := splitPath(name); ok && err == nil {
			m.Add(run, info.Size(), info.ModTime())
		}
		return nil
	})
	if err == nil && s.rows != nil {
		err = s.rows.measure(ctx, &m)
	}
	return m.Runs(), err
}

// runsThere measures the logs in the object store.
func (s *Store) runsThere(ctx context.Context) ([]retention.RunLogs, error) {
	var m retention.Measure
	err := s.segments.Walk(ctx, runsFolder, func(object string, size int64, born time.Time) {
		if run, _, ok := splitPath(object); ok {
			m.Add(run, size, born)
		}
	})
	return m.Runs(), err
}
