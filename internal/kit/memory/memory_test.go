package memory_test

import (
	"runtime"
	"runtime/debug"
	"testing"

	"kici/internal/kit/memory"
)

func TestGarbageStaysInProportion(t *testing.T) {
	for _, tt := range []struct {
		alive uint64
		want  int
	}{{0, 100}, {64 << 20, 100}, {128 << 20, 50}, {200 << 20, 32}, {4 << 30, 25}, {1 << 62, 25}} {
		if got := memory.Percent(tt.alive); got != tt.want {
			t.Errorf("%d bytes live: %d percent, want %d", tt.alive, got, tt.want)
		}
	}
}

func TestThePercentageFollowsWhatLives(t *testing.T) {
	t.Setenv("GOGC", "")
	stop := memory.Bound()
	much := make([]byte, 128<<20)
	for i := range 100 { // finalizers run beside the program, some time after the collection
		runtime.GC()
		runtime.Gosched()
		if percent := debug.SetGCPercent(-1); percent < 60 {
			debug.SetGCPercent(percent)
			break
		} else if debug.SetGCPercent(percent); i == 99 {
			t.Errorf("the percentage is still %d", percent)
		}
	}
	runtime.KeepAlive(much)
	stop()
	if percent := debug.SetGCPercent(100); percent != 100 {
		t.Errorf("after the stop it is %d", percent)
	}
}

func TestWhoeverSetGOGCIsLeftAlone(t *testing.T) {
	t.Setenv("GOGC", "300")
	before := debug.SetGCPercent(300)
	defer debug.SetGCPercent(before)
	memory.Bound()()
	if percent := debug.SetGCPercent(300); percent != 300 {
		t.Errorf("it was set to %d", percent)
	}
}
