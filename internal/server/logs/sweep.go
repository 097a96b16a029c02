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

// How often a sweep looks at logs. In an object store they go by their age in days alone, and each look lists every segment that
// there is, on every node.
const (
	sweepPeriod = 10 * time.Minute
	farPeriod   = 6 * time.Hour
	markPeriod  = 24 * time.Hour // of marks of forgotten runs, and of logs of nodes that are gone
	sweepShare  = 100            // a look that takes long is not made again before so many times as long
)

// What is done when a chunk finds no room, below every bound: the disk is smaller, or others have filled it. Jobs stand still
// meanwhile.
const (
	roomBytes = 256 << 20   // that are made room for, as far as there are logs that may go
	roomPause = time.Minute // before it is done again
)

// Sweep is the loop that deletes what is not to be kept, and makes room where there is none.
func (s *Store) Sweep(ctx context.Context, keep retention.Policy) error {
	w := &sweeper{Store: s, keep: keep, room: roomBytes}
	return service.Every(ctx, s.log, "log retention", sweepPeriod, s.crowded, w.turn)
}

// sweeper knows what is due.
type sweeper struct {
	*Store
	keep             retention.Policy
	here, far, marks time.Time // before it, nothing is
	keptHere         int64
	keptFar          int64
	room             int64
	roomAgain        time.Time
}

func (w *sweeper) turn(ctx context.Context) error {
	return errors.Join(w.makeRoom(ctx),
		due(&w.here, sweepPeriod, func() error { return w.sweepHere(ctx) }),
		due(&w.far, farPeriod, func() error { return w.sweepFar(ctx) }),
		due(&w.marks, markPeriod, func() error { return errors.Join(w.Store.marks.Sweep(ctx, w.keep), w.sweepGone(ctx, w.keep)) }))
}

// due does what is due, at the next turn again when it fails.
func due(at *time.Time, period time.Duration, do func() error) error {
	began := time.Now()
	if began.Before(*at) {
		return nil
	}
	err := do()
	if err == nil {
		*at = began.Add(max(period-sweepPeriod/2, sweepShare*time.Since(began))) // turns come when they come
	}
	return err
}

// sweepHere deletes what may go of the data folder and the database.
func (w *sweeper) sweepHere(ctx context.Context) error {
	here, err := w.runsHere(ctx)
	if err != nil {
		return fmt.Errorf("look at logs: %w", err)
	}
	swept, err := retention.Expire(ctx, w.keep, here, w.keep.MaxTotal, keeper{w.Store})
	w.keptHere = swept.Kept
	w.note(swept)
	return err
}

// makeRoom deletes the logs of the runs that ended longest ago when a chunk has found no room.
func (w *sweeper) makeRoom(ctx context.Context) error {
	if !w.full.Load() || time.Now().Before(w.roomAgain) {
		return nil
	}
	w.full.Store(false)
	w.roomAgain = time.Now().Add(roomPause)
	here, err := w.runsHere(ctx)
	if err != nil {
		return fmt.Errorf("look for logs to make room: %w", err)
	}
	sum := int64(0)
	for _, l := range here {
		sum += l.Bytes
	}
	swept, err := retention.Expire(ctx, w.keep, here, max(sum-w.room, 1), keeper{w.Store})
	w.keptHere = swept.Kept
	w.log.Warn("no space left for logs, those of the runs that ended longest ago go", "runs", swept.Runs, "bytes", swept.Freed)
	w.note(swept)
	return err
}

// sweepFar deletes what may go of the object store.
func (w *sweeper) sweepFar(ctx context.Context) error {
	if w.segments == nil || w.keep.Age() <= 0 {
		return nil
	}
	far, err := w.runsFar(ctx)
	if err != nil {
		return fmt.Errorf("look at logs in the object store: %w", err)
	}
	swept, err := retention.Expire(ctx, w.keep, far, 0, keeper{w.Store})
	w.keptFar = swept.Kept
	w.note(swept)
	return err
}

func (w *sweeper) note(s retention.Swept) {
	s.Kept = w.keptHere + w.keptFar
	w.swept(s)
	if s.Runs > 0 {
		w.log.Info("logs expired", "runs", s.Runs, "bytes", s.Freed, "kept", s.Kept)
	}
}

// keeper lets the logs of runs go.
type keeper struct{ *Store }

// Remove implements retention.Keeper. The mark comes first, unless there is no room even for that. Readers find what is still
// there until it goes.
func (k keeper) Remove(ctx context.Context, run string, mark bool) (bool, error) {
	if !k.letGo(runFolder(run)) {
		return false, nil
	}
	if mark {
		err := k.marks.Put(ctx, run)
		if errors.Is(fullness(err), ErrFull) {
			err = errors.Join(k.root.RemoveAll(runFolder(run)), k.marks.Put(ctx, run))
		}
		if err != nil {
			return true, err
		}
	}
	if k.segments != nil {
		if err := k.segments.Remove(ctx, runFolder(run)); err != nil {
			return true, err
		}
	}
	if err := k.root.RemoveAll(runFolder(run)); err != nil || k.rows == nil {
		return true, err
	}
	return true, k.rows.removeRun(ctx, run)
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

// runsFar measures the logs in the object store.
func (s *Store) runsFar(ctx context.Context) ([]retention.RunLogs, error) {
	var m retention.Measure
	err := s.segments.Walk(ctx, runsFolder, func(object string, size int64, born time.Time) {
		if run, _, ok := splitPath(object); ok {
			m.Add(run, size, born)
		}
	})
	return m.Runs(), err
}
