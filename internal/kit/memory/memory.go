// Package memory bounds what a long-running process leaves to its garbage collector. Go lets garbage grow to as much as
// lives, which costs little while that is small and a lot of memory once thousands of agents are connected.
package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

const (
	// usual is the percentage of Go itself, for as long as no more lives than plenty.
	usual  = 100
	plenty = 64 << 20
	// least bounds how often the collector runs: at four times what it would do by itself.
	least = 25
	// change is from where on another percentage is worth the moment for which the program stands still to set it.
	change = 5
)

// live is the metric of what the last collection left, in bytes.
const live = "/gc/heap/live:bytes"

// Percent is how much garbage may gather, as a percentage of what lives, so that beyond plenty it stays about as much as
// that.
func Percent(alive uint64) int {
	if alive <= plenty {
		return usual
	}
	return max(least, int(usual*plenty/alive))
}

// Bound sets the percentage anew after each collection, until stop is called. It leaves alone whoever set GOGC.
func Bound() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	b := &bound{set: usual}
	b.wait()
	return func() {
		b.stopped.Store(true)
		debug.SetGCPercent(usual)
	}
}

// bound is what the percentage is set to.
type bound struct {
	set     int // owned by the runtime's goroutine for finalizers
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
	sample := []metrics.Sample{{Name: live}}
	metrics.Read(sample)
	if percent := Percent(sample[0].Value.Uint64()); percent >= b.set+change || percent <= b.set-change {
		debug.SetGCPercent(percent)
		b.set = percent
	}
	b.wait()
}
