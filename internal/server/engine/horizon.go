package engine

import (
	"sync/atomic"
	"time"
)

// horizon is a time before which nothing of a kind is due, epoch milliseconds: what the database had is due later, and what
// came since has a window before it. Looks that could find nothing are left out, so that what is due needs no index, which
// would be written with every job.
type horizon struct{ at atomic.Int64 }

// sight bounds how far ahead a horizon is: other servers may have been told of shorter windows, or put something back.
const sight = 10 * time.Second

// near has the next look taken: something was put back whose time may be up already.
func (h *horizon) near() { h.at.Store(0) }

// reached tells whether something is due as of a time, which may be before now. first asks what of all that there is becomes
// due first, and gives 0 for nothing; window is the least that lies between the beginning of something and that.
func (h *horizon) reached(asOf, now int64, window time.Duration, first func() (int64, error)) (bool, error) {
	if asOf < h.at.Load() {
		return false, nil
	}
	at, err := first()
	if err != nil {
		return false, err
	}
	next := now + min(window, sight).Milliseconds()
	if at != 0 {
		next = min(next, at)
	}
	h.at.Store(next)
	return at != 0 && at <= asOf, nil
}
