package logs

import (
	"context"
	"fmt"
)

// acquire gives the stream of a path to one caller more. It closes the longest idle stream where there are too many.
func (s *Store) acquire(ctx context.Context, path string) (*stream, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[path]
	if st == nil {
		if err := s.evictLocked(); err != nil {
			<-s.slots
			return nil, fmt.Errorf("close idle log: %w", fullness(err))
		}
		st = &stream{path: path}
		s.streams[path] = st
	}
	s.uses++
	st.refs++
	st.used = s.uses
	return st, nil
}

func (s *Store) release(st *stream) {
	s.mu.Lock()
	st.refs--
	s.mu.Unlock()
	<-s.slots
}

// evictLocked makes room for one more stream. There is always an idle one, since callers hold a slot each.
func (s *Store) evictLocked() error {
	if len(s.streams) < s.maxOpen {
		return nil
	}
	var oldest *stream
	for _, st := range s.streams {
		if st.refs == 0 && (oldest == nil || st.used < oldest.used) {
			oldest = st
		}
	}
	if oldest == nil {
		return nil
	}
	delete(s.streams, oldest.path)
	return oldest.close()
}
