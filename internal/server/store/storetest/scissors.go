package storetest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"kici/internal/server/store"
)

// Scissors is a loopback address before the database, that cuts a connection in the middle of what goes over it, or takes
// all of it and passes on nothing.
type Scissors struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	left  map[bool]int  // bytes that still pass to (true) or from the database until the cut, where one is due
	hangs map[bool]bool // whether what comes in a direction is swallowed
	ended chan struct{}
}

// Faulty opens a PostgreSQL database with one connection, through Scissors.
func Faulty(t testing.TB, direct string) (*store.DB, *Scissors) {
	t.Helper()
	through, s := Before(t, direct)
	db, err := store.Open(t.Context(), store.Options{URL: through + "&pool_max_conns=1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, s
}

// Before puts Scissors before the database of a URL, and gives the URL that leads through them.
func Before(t testing.TB, direct string) (through string, s *Scissors) {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = &Scissors{listener: listener, server: u.Host, left: map[bool]int{}, hangs: map[bool]bool{}, ended: make(chan struct{})}
	go s.serve()
	t.Cleanup(func() {
		_ = listener.Close()
		<-s.ended
	})
	u.Host = listener.Addr().String()
	return u.String(), s
}

func (s *Scissors) serve() {
	defer close(s.ended)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		near, err := s.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", s.server)
		if err != nil {
			_ = near.Close()
			continue
		}
		all.Go(func() { s.carry(far, near, true) })
		all.Go(func() { s.carry(near, far, false) })
	}
}

func (s *Scissors) carry(to io.WriteCloser, from io.ReadCloser, up bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		pass, cut := s.allow(n, up)
		if _, failed := to.Write(buf[:pass]); failed != nil || err != nil || cut {
			return
		}
	}
}

func (s *Scissors) allow(n int, up bool) (pass int, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs[up] {
		return 0, false
	}
	left, due := s.left[up]
	if !due {
		return n, false
	}
	if n < left {
		s.left[up] = left - n
		return n, false
	}
	delete(s.left, up)
	return left, true
}

// CutAfter has so many bytes more pass in one direction.
func (s *Scissors) CutAfter(bytes int, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.left)
	s.left[up] = bytes
}

// Hang has everything vanish that comes in one direction.
func (s *Scissors) Hang(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs[up] = true
}

// Mend has everything pass again. It takes back a cut that has not come, and tells whether it has.
func (s *Scissors) Mend() (cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut = len(s.left) == 0
	clear(s.left)
	clear(s.hangs)
	return cut
}
