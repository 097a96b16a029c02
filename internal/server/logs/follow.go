package logs

import (
	"context"

	"kici/internal/server/logs/index"
)

// waiter is what the followers of one log wait on together.
type waiter struct {
	changed chan struct{} // closed at the next append
	refs    int           // followers waiting
}

// Wait returns true as soon as the log has the line of that number, counted from 0. It ends with the context's error
// otherwise, and with ErrExpired when the log was deleted. That nothing more will come is told by the step's status alone:
// whoever follows a log bounds the wait and looks at that.
func (s *Store) Wait(ctx context.Context, path string, line int64) (more bool, err error) {
	for {
		w := s.watch(path)
		total, err := s.length(ctx, path)
		if err != nil || total > line {
			s.unwatch(path, w)
			return err == nil && total > line, err
		}
		select {
		case <-w.changed:
			s.unwatch(path, w)
		case <-ctx.Done():
			s.unwatch(path, w)
			return false, context.Cause(ctx)
		}
	}
}

// length is the present number of lines of a log; one that does not exist yet has none.
func (s *Store) length(ctx context.Context, path string) (lines int64, err error) {
	if live := s.live(path); live != nil {
		return live.Lines, nil
	}
	err = s.reading(ctx, path, func(v *index.View) error {
		lines = v.Lines
		return nil
	})
	return lines, err
}

// watch registers a follower before it looks at the end, so that no append falls between the two.
func (s *Store) watch(path string) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiters[path]
	if w == nil {
		w = &waiter{changed: make(chan struct{})}
		s.waiters[path] = w
	}
	w.refs++
	return w
}

func (s *Store) unwatch(path string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.refs--
	if w.refs == 0 && s.waiters[path] == w {
		delete(s.waiters, path)
	}
}

// wake lets the followers of a log look again.
func (s *Store) wake(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiters[path]; w != nil {
		close(w.changed)
		delete(s.waiters, path)
	}
}
