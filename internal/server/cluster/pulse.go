package cluster

import (
	"context"
	"sync"
	"time"

	"kici/internal/kit/service"
)

const (
	// pulsePeriod is how often a running process notes that it runs.
	pulsePeriod = time.Second
	// restful is the shortest time without a note that counts as not having run. A busy machine stays below it.
	restful = 5 * time.Second
	// oneNap is how soon after a waking another sleep is the same one: a deadline that passed in the first must not be
	// judged because of the second.
	oneNap = 5 * time.Minute
)

// Pulse notices that this process did not run for a while, because it was stopped or its machine slept. Agents could not
// be heard meanwhile, so deadlines that passed in its sleep say nothing about them: whoever judges a deadline asks AsOf,
// and whoever judges a silence asks Woke.
type Pulse struct {
	clock service.Clock

	mu   sync.Mutex
	last time.Time
	nap  nap
}

// NewPulse makes a pulse that begins now.
func NewPulse(clock service.Clock) *Pulse { return &Pulse{clock: clock, last: clock()} }

// Run keeps the pulse until ctx ends.
func (p *Pulse) Run(ctx context.Context) error {
	tick := time.NewTicker(pulsePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			p.Beat()
		}
	}
}

// Beat notes that the process runs.
func (p *Pulse) Beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beatLocked()
}

func (p *Pulse) beatLocked() time.Time {
	now := p.clock()
	p.nap = p.nap.after(p.last, now)
	p.last = now
	return now
}

// Absent says, at the start of a process, since when nobody did its work. at is in epoch milliseconds.
func (p *Pulse) Absent(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nap = nap{slept: time.UnixMilli(at), woke: p.beatLocked()}
}

// Woke is when the process last began to run again; zero when it never stopped.
func (p *Pulse) Woke() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beatLocked()
	return p.nap.woke
}

// AsOf is the time, in epoch milliseconds, as of which deadlines may be judged whose owners have window to meet them: it
// is now, but for that long after waking it is the moment at which the process fell asleep. So a deadline that passed
// meanwhile gets its whole window again, and no more than that.
func (p *Pulse) AsOf(window time.Duration) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nap.asOf(p.beatLocked(), window).UnixMilli()
}

// nap is the last time that a process did not run.
type nap struct{ slept, woke time.Time }

// after is the nap as it is known at now, when the process noted last that it ran at last. The clocks show a sleep
// differently: the monotonic one stands still with the machine, and both go on while only the process is stopped. So
// whichever went further counts.
func (n nap) after(last, now time.Time) nap {
	gone := max(now.Sub(last), now.Round(0).Sub(last.Round(0)))
	if gone < restful {
		return n
	}
	if !n.woke.IsZero() && last.Sub(n.woke) < oneNap {
		last = n.slept
	}
	return nap{slept: last, woke: now}
}

func (n nap) asOf(now time.Time, window time.Duration) time.Time {
	if !n.woke.IsZero() && now.Sub(n.woke) < window {
		return n.slept
	}
	return now
}
