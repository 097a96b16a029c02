package logs

import (
	"container/list"
	"context"
	"errors"
	"fmt"
)

// knownPerOpen is how many streams are known for each that may be open. What is known of one is its end and the ids of its
// latest chunks: it goes on at the cost of opening a file, where one that was forgotten has to read back.
const knownPerOpen = 8

// use is who uses streams. A stream rests, or is awake; idle ones stand in a list each, the longest idle first.
type use struct {
	streams map[string]*stream
	awake   int       // streams, at most maxOpen
	idle    list.List // of awake ones
	resting list.List
}

// acquire gives the stream of a path to one caller more. The longest idle one rests for it where too many are awake.
func (s *Store) acquire(ctx context.Context, path string) (*stream, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[path]
	if st == nil || st.rests {
		if err := s.makeRoomLocked(st == nil); err != nil {
			<-s.slots
			return nil, fmt.Errorf("close idle log: %w", fullness(err))
		}
		s.awake++
	}
	if st == nil {
		st = &stream{path: path}
		s.streams[path] = st
	}
	s.leaveListLocked(st)
	st.rests = false
	st.refs++
	return st, nil
}

func (s *Store) release(st *stream) {
	s.mu.Lock()
	if st.refs--; st.refs == 0 {
		st.place = s.idle.PushBack(st)
	}
	s.mu.Unlock()
	<-s.slots
}

// makeRoomLocked makes room for one more stream that is awake, and for one more that is known. There is always an idle one,
// since callers hold a slot each.
func (s *Store) makeRoomLocked(unknown bool) error {
	var errs []error
	if first := s.idle.Front(); s.awake >= s.maxOpen && first != nil {
		st := first.Value.(*stream)
		s.leaveListLocked(st)
		errs = append(errs, st.rest())
		st.rests = true
		st.place = s.resting.PushBack(st)
		s.awake--
	}
	if first := s.resting.Front(); unknown && len(s.streams) >= knownPerOpen*s.maxOpen && first != nil {
		errs = append(errs, s.forgetLocked(first.Value.(*stream)))
	}
	return errors.Join(errs...)
}

// forgetLocked closes an idle stream and forgets it.
func (s *Store) forgetLocked(st *stream) error {
	s.leaveListLocked(st)
	if !st.rests {
		s.awake--
	}
	delete(s.streams, st.path)
	return st.close()
}

func (s *Store) leaveListLocked(st *stream) {
	switch {
	case st.place == nil:
	case st.rests:
		s.resting.Remove(st.place)
	default:
		s.idle.Remove(st.place)
	}
	st.place = nil
}
