// Package memory bounds what a long-running process leaves to its garbage collector. Go lets garbage grow to as much as
// lives. While little lives, that has the collector run all the time under load; once thousands of agents are connected, it
// costs a lot of memory.
package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// usual is the percentage of Go itself, for as long as no more lives than plenty.
	usual  = 100
	plenty = 64 << 20
	// harvest is how much garbage may gather while it comes so fast that the collector would run more than once a second.
	harvest = 32 << 20
	// least bounds how often the collector runs: at four times what it would do by itself.
	least = 25
	// change is from where on another percentage is worth the moment for which the program stands still to set it.
	change = 5
)

// What the last collection left, and what was allocated since the process began, in bytes.
const (
	live      = "/gc/heap/live:bytes"
	allocated = "/gc/heap/allocs:bytes"
)

// Percent is how much garbage may gather, as a percentage of what lives, where so many bytes are allocated a second: about
// as much as lives, up to plenty, or what comes in a second, up to harvest.
func Percent(alive, rate uint64) int {
	alive = max(alive, 1<<20) // the collector has a least of its own
	garbage := max(min(alive, plenty), min(rate, harvest))
	return max(least, int(usual*garbage/alive))
}

// Bound sets the percentage anew after each collection, until stop is called. It leaves alone whoever set GOGC.
func Bound() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	b := &bound{set: usual, since: time.Now()}
	b.wait()
	return func() {
		b.stopped.Store(true)
		debug.SetGCPercent(usual)
	}
}

// bound is what the percentage is set to. Its fields are owned by the runtime's goroutine for finalizers.
type bound struct {
	set     int
	since   time.Time // of the collection before
	sum     uint64    // allocated until then
	stopped atomic.Bool
}

// wait has adjust called at the end of the next collection: nothing else tells of it.
func (b *bound) wait() {
	sign := new(*bound) // has a pointer, so it shares its memory with nothing that would keep it alive
	*sign = b
	runtime.SetFinalizer(sign, func(s **bound) { (*s).adjust() })
}

func (b *bound) adjust() {
	if b.stopped.Load() {
		return
	}
	sample := []metrics.Sample{{Name: live}, {Name: allocated}}
	metrics.Read(sample)
	percent := Percent(sample[0].Value.Uint64(), b.rate(sample[1].Value.Uint64()))
	if percent >= b.set+change || percent <= b.set-change {
		debug.SetGCPercent(percent)
		b.set = percent
	}
	b.wait()
}

// rate is how much was allocated a second between two collections.
func (b *bound) rate(sum uint64) uint64 {
	now := time.Now()
	seconds := max(now.Sub(b.since).Seconds(), 1e-3)
	grown := sum - b.sum
	b.since, b.sum = now, sum
	return uint64(float64(grown) / seconds)
}
