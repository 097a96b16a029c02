package memory_test

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"kici/internal/kit/memory"
)

func TestGarbageStaysInProportion(t *testing.T) {
	for _, tt := range []struct {
		alive, rate uint64
		want        int
	}{
		{0, 0, 100}, {8 << 20, 0, 100}, {64 << 20, 0, 100}, {128 << 20, 0, 50}, {200 << 20, 0, 32}, {4 << 30, 0, 25}, {1 << 62, 0, 25},
		{8 << 20, 8 << 20, 100}, {8 << 20, 12 << 20, 150}, {8 << 20, 1 << 40, 400}, {0, 1 << 40, 3200}, {32 << 20, 1 << 40, 100},
		{128 << 20, 1 << 40, 50},
	} {
		if got := memory.Percent(tt.alive, tt.rate); got != tt.want {
			t.Errorf("%d bytes live, %d a second: %d percent, want %d", tt.alive, tt.rate, got, tt.want)
		}
	}
}

// percentage is what the collector goes by.
func percentage() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestThePercentageFollowsWhatLives(t *testing.T) {
	t.Setenv("GOGC", "")
	stop := memory.Bound()
	much := make([]byte, 128<<20)
	for i := 0; percentage() >= 60; i++ { // finalizers run beside the program, some time after the collection
		if i == 100 {
			t.Fatalf("the percentage is still %d", percentage())
		}
		runtime.GC()
		runtime.Gosched()
	}
	runtime.KeepAlive(much)
	stop()
	if got := percentage(); got != 100 {
		t.Errorf("after the stop it is %d", got)
	}
}

func TestGarbageThatComesFastMayGather(t *testing.T) {
	t.Setenv("GOGC", "")
	defer memory.Bound()()
	var last []byte
	for i := 0; percentage() < 150; i++ {
		if i == 100_000 {
			t.Fatalf("the percentage is still %d", percentage())
		}
		last = make([]byte, 1<<20)
	}
	runtime.KeepAlive(last)
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
