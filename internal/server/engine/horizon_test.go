package engine

import (
	"errors"
	"testing"
	"time"
)

// TestAHorizonHidesNothing asks at moments one after the other, between which something comes and goes.
func TestAHorizonHidesNothing(t *testing.T) {
	const window = 10 * time.Second
	broken := errors.New("broken")
	var h horizon
	for _, step := range []struct {
		name   string
		now    int64
		asOf   int64 // 0: now
		first  int64 // what the database says is due first
		err    error
		looked bool
		want   bool
	}{
		{name: "nothing is there", now: 1_000, looked: true},
		{name: "what came meanwhile has its window before it", now: 10_999, first: 11_500},
		{name: "it may be due now", now: 11_000, first: 11_500, looked: true},
		{name: "not before its time", now: 11_499, first: 11_500},
		{name: "its time has come", now: 11_500, first: 11_500, looked: true, want: true},
		{name: "it could not be ended", now: 11_501, first: 11_500, looked: true, want: true},
		{name: "nobody is blamed for a time in which nothing ran", now: 80_000, asOf: 11_000, first: 11_500},
		{name: "an error tells nothing", now: 80_000, err: broken, looked: true},
		{name: "so it is asked again", now: 80_001, first: 12_000, looked: true, want: true},
		{name: "the next is far away", now: 80_002, first: 500_000, looked: true},
		{name: "a new one could come before", now: 90_002, first: 500_000, looked: true},
	} {
		asOf, looked := step.asOf, false
		if asOf == 0 {
			asOf = step.now
		}
		got, err := h.reached(asOf, step.now, window, func() (int64, error) {
			looked = true
			return step.first, step.err
		})
		if got != step.want || looked != step.looked || !errors.Is(err, step.err) {
			t.Errorf("%s: due %v, looked %v, %v", step.name, got, looked, err)
		}
	}
}

// TestAHorizonIsNoFartherThanOthersSee is about servers that were told of other windows.
func TestAHorizonIsNoFartherThanOthersSee(t *testing.T) {
	var h horizon
	nothing := func() (int64, error) { return 0, nil }
	if _, err := h.reached(1, 1, time.Hour, nothing); err != nil {
		t.Fatal(err)
	}
	later := 1 + sight.Milliseconds()
	due, err := h.reached(later, later, time.Hour, func() (int64, error) { return later, nil })
	if err != nil || !due {
		t.Errorf("due %v, %v", due, err)
	}
}
