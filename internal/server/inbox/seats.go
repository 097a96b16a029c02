package inbox

import "sync"

// Work is a delivery to process, and the right to do so.
type Work struct {
	Delivery Delivery
	Lease    Lease
	receipt  *receipt // of one that was handed over before it was stored
}

// seats are the workers of this node that have nothing to do, and some more. A delivery that comes while one is free, and no
// other waits, is handed over at once, with the lease that it is stored with, instead of being found, leased and read again.
type seats struct {
	mu     sync.Mutex
	free   int
	spare  int       // so many are left when every worker is busy
	behind bool      // others may wait, which must not be overtaken
	work   chan Work // has room for every seat
}

// maxSpareBytes is how large a payload may be that waits in memory for a worker.
const maxSpareBytes = 64 << 10

// Open says that so many workers wait for deliveries, and that a few more deliveries may wait for them to be done. What is
// handed over comes through the channel, which has room for every seat; what waits already is found by Next once a seat has
// been taken.
func (in *Inbox) Open(workers, spare int) chan Work {
	s := &in.seats
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free, s.spare, s.behind, s.work = workers+spare, spare, true, make(chan Work, workers+spare)
	return s.work
}

// Close says that no worker waits any more. What was handed over and not received is for the caller to return.
func (in *Inbox) Close() {
	s := &in.seats
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free, s.behind = 0, true
}

// Sit takes the seat of a worker who has nothing to do, for a delivery that is to be looked for.
func (in *Inbox) Sit() bool {
	s := &in.seats
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free <= s.spare {
		return false
	}
	s.free--
	return true
}

// Leave frees a seat and tells whether a delivery may wait for it. found=false says that none was found.
func (in *Inbox) Leave(found bool) (behind bool) {
	s := &in.seats
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.behind = s.behind && found
	return s.behind
}

// reserve takes a seat for a delivery that has just come, unless others are before it, and gives what leads to its worker.
func (s *seats) reserve(size int) chan<- Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind || s.free == 0 || s.free <= s.spare && size > maxSpareBytes {
		return nil
	}
	s.free--
	return s.work
}

// waits tells the workers that a delivery waits.
func (in *Inbox) waits() {
	if in.poke == nil {
		return
	}
	in.seats.mu.Lock()
	in.seats.behind = true
	in.seats.mu.Unlock()
	in.poke.Wake()
}
