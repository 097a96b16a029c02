package storetest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// keptAtMost bounds the databases that wait for a next test; one more is dropped. Few tests run at once.
const keptAtMost = 8

// kept are databases that are as the template is. Nobody is connected to them, and nobody was told their names.
var kept shelf

// shelf holds names of databases between two tests.
type shelf struct {
	mu    sync.Mutex
	open  bool // since somebody is there to clear it in the end
	names []string
}

var errNoRoom = errors.New("no room to keep it")

func (s *shelf) take() (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.names) - 1
	if last < 0 {
		return "", false
	}
	name, s.names = s.names[last], s.names[:last]
	return name, true
}

func (s *shelf) room() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomLocked()
}

func (s *shelf) roomLocked() error {
	if !s.open || len(s.names) >= keptAtMost {
		return errNoRoom
	}
	return nil
}

func (s *shelf) put(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.roomLocked()
	if err == nil {
		s.names = append(s.names, name)
	}
	return err
}

// begin opens the shelf.
func (s *shelf) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
}

// clear drops what is kept on a server that stays. A private one takes its databases with it.
func (s *shelf) clear() error {
	base := os.Getenv(serverVariable)
	if base == "" {
		return nil
	}
	var all error
	for name, ok := s.take(); ok; name, ok = s.take() {
		all = errors.Join(all, drop(base, name))
	}
	return all
}

// giveBack has a next test use the database where it can be made as the template is, and drops it otherwise.
func giveBack(t testing.TB, base, name string) {
	t.Helper()
	name, why := renew(t, base, name)
	if why == nil {
		why = kept.put(name)
	}
	if why == nil {
		return
	}
	t.Logf("the test database is dropped: %v", why)
	if err := drop(base, name); err != nil {
		t.Errorf("drop test database: %v", err)
	}
}

var errFailed = errors.New("the test failed") // and what it left may be why

// renew makes a database as the template is, under a new name: who still has the old one, such as a server process that is
// about to end, finds nothing there. It returns the name that the database has then, or the reason to drop it.
func renew(t testing.TB, base, name string) (string, error) {
	if t.Failed() {
		return name, errFailed
	}
	if err := kept.room(); err != nil {
		return name, err
	}
	want, err := templateLook()
	if err != nil {
		return name, fmt.Errorf("look at the template: %w", err)
	}
	next := newName()
	if err := sever(base, name, next, severLimit); err != nil {
		return name, fmt.Errorf("end its connections: %w", err)
	}
	return next, wash(withDatabase(base, next), want)
}

func drop(base, name string) error {
	return adminExec(base, "DROP DATABASE "+name+" WITH (FORCE)")
}
