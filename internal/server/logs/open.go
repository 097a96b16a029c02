package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	st.retired = false
	return st, nil
}

func (s *Store) release(st *stream) {
	s.mu.Lock()
	st.refs--
	if st.refs == 0 && st.retired {
		delete(s.streams, st.path)
		_ = st.close() // everything in it is with the kernel already
	}
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

// openForWriting opens a log, and makes it and its folders when it is new. The name has been checked; the folder is the
// server's alone, so one system call that follows the whole path will do, where a root would walk it step by step.
func (s *Store) openForWriting(name string) (file, error) {
	path := filepath.Join(s.root.Name(), name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	}
	if err != nil {
		return nil, err // not f: a nil *os.File is no nil file
	}
	return f, nil
}
