package cluster

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestANapShowsInWhicheverClockWentFurther(t *testing.T) {
	begin := time.Now() // with a monotonic reading
	tests := []struct {
		name string
		now  time.Time
		nap  bool
	}{
		{"a beat in time", begin.Add(time.Second), false},
		{"a busy moment", begin.Add(4 * time.Second), false},
		{"a stopped process: both clocks go on", begin.Add(time.Minute), true},
		{"a machine that slept: only the wall clock goes on", wallOnly(begin, time.Hour), true},
		{"a clock that was set back", wallOnly(begin, -time.Hour), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := nap{}.after(begin, tt.now)
			if got.woke.IsZero() == tt.nap {
				t.Errorf("got %+v", got)
			}
			if tt.nap && !got.slept.Equal(begin) {
				t.Errorf("fell asleep at %v, want %v", got.slept, begin)
			}
		})
	}
}

// wallOnly is a time as a process sees it whose monotonic clock has stood still while the wall clock moved by d.
func wallOnly(t time.Time, d time.Duration) time.Time {
	return t.Round(0).Add(d) // without a monotonic reading only the wall counts
}

func TestDeadlinesThatPassedInANapHaveTheirWindowAgain(t *testing.T) {
	s := time.Second
	at := func(d time.Duration) time.Time { return time.UnixMilli(0).Add(d) }
	one := nap{slept: at(100 * s), woke: at(400 * s)}
	tests := []struct {
		name   string
		nap    nap
		now    time.Duration
		window time.Duration
		want   time.Duration
	}{
		{"never asleep", nap{}, 500 * s, 120 * s, 500 * s},
		{"just woken", one, 400 * s, 120 * s, 100 * s},
		{"within the window", one, 519 * s, 120 * s, 100 * s},
		{"the window is over", one, 520 * s, 120 * s, 520 * s},
		{"a short window is over sooner", one, 411 * s, 10 * s, 411 * s},
		{"a second nap soon after is part of the first", one.after(at(405*s), at(500*s)), 510 * s, 120 * s, 100 * s},
		{"a second nap much later is one of its own", one.after(at(900*s), at(1000*s)), 1010 * s, 120 * s, 900 * s},
	}
	for _, tt := range tests {
		if got := tt.nap.asOf(at(tt.now), tt.window); !got.Equal(at(tt.want)) {
			t.Errorf("%s: as of %v, want %v", tt.name, got.Sub(at(0)), tt.want)
		}
	}
}

func TestAPulseThatRunsKnowsNoNap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPulse(time.Now)
		done := make(chan error)
		ctx := t.Context()
		go func() { done <- p.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		if woke := p.Woke(); !woke.IsZero() {
			t.Errorf("woke at %v", woke)
		}
		if now := p.AsOf(time.Hour); now != time.Now().UnixMilli() {
			t.Errorf("as of %d, want now", now)
		}
		go func() { <-done }()
	})
}

func TestAPulseThatStoodStillSaysSo(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	p := NewPulse(func() time.Time { return now })
	now = now.Add(time.Hour)
	if got := p.AsOf(2 * time.Minute); got != 1_000_000 {
		t.Errorf("as of %d, want the moment before", got)
	}
	if got := p.Woke(); !got.Equal(now) {
		t.Errorf("woke at %v, want now", got)
	}
	for range 119 {
		now = now.Add(time.Second)
		p.Beat()
	}
	if got := p.AsOf(2 * time.Minute); got != 1_000_000 {
		t.Errorf("as of %d within the window", got)
	}
	now = now.Add(time.Second)
	if got := p.AsOf(2 * time.Minute); got != now.UnixMilli() {
		t.Errorf("as of %d behind the window", got)
	}
}

func TestAnAbsenceIsANapToo(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	p := NewPulse(func() time.Time { return now })
	p.Absent(400_000)
	if got := p.AsOf(time.Minute); got != 400_000 {
		t.Errorf("as of %d", got)
	}
}
