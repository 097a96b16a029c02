package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/label"
	"kici/internal/kit/service"
	"kici/internal/server/dispatch"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestADrainingNodeGivesOutNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux"), agent("b", 1, "linux")}}
		b := newBench(t, db, hub, fakeSecrets{})
		b.register("first", on("linux"))
		b.pass()
		if !b.d.Drain(true) || b.d.Drain(true) || !b.d.Draining() {
			t.Error("the first drain is a change, the second is none")
		}
		b.register("second", on("linux"))
		if sent := b.pass(); len(sent) != 0 {
			t.Errorf("sent %v", sent)
		}
		for _, said := range []int{0, 3} { // what agents say may be more than the queue knows, and less
			hub.active = said
			if n, err := b.d.Running(t.Context()); err != nil || n != max(said, 1) {
				t.Errorf("%d jobs run, %v", n, err)
			}
		}
		if !b.d.Drain(false) || b.d.Drain(false) || b.d.Draining() {
			t.Error("the first resume is a change, the second is none")
		}
		if d := cmp.Diff([]string{"b second"}, b.pass()); d != "" {
			t.Errorf("sent after resuming (-want +got):\n%s", d)
		}
	})
}

func TestResumingWakesTheLoop(t *testing.T) {
	db := storetest.SQLite(t)
	hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}, arrived: make(chan string, 1)}
	b := newBench(t, db, hub, fakeSecrets{})
	b.register("j", on("linux"))
	b.d.Drain(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.d.Run(ctx) }()
	b.d.Drain(false)
	if got := <-hub.arrived; got != "a j" {
		t.Errorf("dispatched %q", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

func TestTheDepthIsCountedUnderEachLabel(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db, &fakeHub{agents: []dispatch.Agent{agent("a", 1, "mac")}}, fakeSecrets{})
		b.register("both", on("linux", "x64"))
		b.register("one", on("linux"))
		b.register("none", label.Selector{Pin: "nobody"})
		b.register("with a", on("mac"))
		b.pass()
		b.now.Add(4000)
		want := dispatch.Depth{Pending: 3, Dispatched: 1, ByLabel: map[string]int{"linux": 2, "x64": 1}, OldestAge: 4003 * time.Millisecond}
		if d := cmp.Diff(want, b.sample(t)); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(want, b.d.Depth()); d != "" {
			t.Errorf("kept: %s", d)
		}
	})
}

// sample takes one sample of the queue.
func (b *bench) sample(t *testing.T) (got dispatch.Depth) {
	t.Helper()
	if err := b.d.Watcher(func(d dispatch.Depth) { got = d })(t.Context()); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAQueueThatStaysDeepIsReportedOnce(t *testing.T) {
	db := storetest.SQLite(t)
	var log bytes.Buffer
	d, err := dispatch.New(dispatch.Deps{DB: db, Clock: func() time.Time { return time.UnixMilli(2000) }, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Hub: &fakeHub{}, Poke: service.NewPoke(), Settings: dispatch.Settings{NodeID: "n", Poll: time.Hour, PressureAt: 2}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, db, &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}, fakeSecrets{})
	b.d = d
	b.register("1", on("linux"))
	b.register("2", on("linux"))
	// What happens before each sample, and what the sample then says.
	steps := []struct {
		pressed bool
		before  func()
	}{
		{false, func() {}}, // once is a burst
		{true, func() {}},
		{true, func() {}},
		{false, func() { b.fail(t, "1") }},
		{false, func() { b.register("3", on("linux")) }},
		{true, func() {}},
	}
	var latest dispatch.Depth
	turn := d.Watcher(func(d dispatch.Depth) { latest = d })
	for i, step := range steps {
		step.before()
		if err := turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if latest.Pressed != step.pressed {
			t.Errorf("sample %d: pressed %v", i, latest.Pressed)
		}
	}
	if n := strings.Count(log.String(), "queue.backpressure.sustained"); n != 2 {
		t.Errorf("%d warnings, want one for each time: %s", n, &log)
	}
	if n := strings.Count(log.String(), "queue.backpressure.recovered"); n != 1 {
		t.Errorf("%d recoveries, want one: %s", n, &log)
	}
}

func (b *bench) fail(t *testing.T, job string) {
	t.Helper()
	if err := b.e.CannotDispatch(t.Context(), job, "no_agent", "test"); err != nil {
		t.Fatal(err)
	}
}

// TestADrainInTheMidstOfAPassIsHeeded drains when a pass has looked at the agents already: whoever drains a node and hears that
// nothing runs on it may stop it.
func TestADrainInTheMidstOfAPassIsHeeded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}
		b := newBench(t, db, hub, fakeSecrets{})
		b.register("j", on("linux"))
		hub.meanwhile = func() { b.d.Drain(true) }
		if sent := b.pass(); len(sent) != 0 {
			t.Errorf("a node that drains sent %v", sent)
		}
		b.d.Drain(false)
		if sent := b.pass(); len(sent) != 1 {
			t.Errorf("sent %v once it works again", sent)
		}
	})
}
