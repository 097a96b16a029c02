package hub

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"kici/internal/core/wire"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// ask calls a method of the agent API.
func (p *peer) ask(method, params string) wire.APIResponse {
	p.t.Helper()
	p.send(wire.APIRequest{RequestID: "q", Method: method, Params: []byte(params)})
	return expect[wire.APIResponse](p)
}

// rebootOf is until when the host of an agent is expected back, relative to now; 0 when it does not reboot.
func (b *bench) rebootOf(t *testing.T, id string) time.Duration {
	t.Helper()
	a, err := fleet.Get(t.Context(), b.DB.Read(), id)
	if err != nil {
		t.Fatal(err)
	}
	if a.RebootUntil == 0 {
		return 0
	}
	return time.UnixMilli(a.RebootUntil).Sub(b.clock.read())
}

func TestAnAgentWhoseHostRebootsIsOfferedNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBenchOn(t, db)
		p, _ := b.join(t, agent("a"))
		b.join(t, agent("b"))
		b.awaitReady(t)
		for params, want := range map[string]time.Duration{"": 15 * time.Minute, `{}`: 15 * time.Minute, `{"deadlineMs":60000.5}`: time.Minute} {
			if got := p.ask("host.requestReboot", params); got.Error != "" || string(got.Result) != "{}" {
				t.Fatalf("params %q: %q %s", params, got.Error, got.Result)
			}
			if got := b.rebootOf(t, "a"); got != want {
				t.Errorf("params %q: its host is awaited for %v, want %v", params, got, want)
			}
			if got := ready(b); !slices.Equal(got, []string{"b"}) {
				t.Errorf("params %q: ready are %q", params, got)
			}
			if got := p.ask("host.cancelReboot", "{}"); got.Error != "" || string(got.Result) != "{}" || b.rebootOf(t, "a") != 0 {
				t.Errorf("cancel: %q %s", got.Error, got.Result)
			}
			b.awaitPoke(t)
			if got := ready(b); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("after the cancel ready are %q", got)
			}
		}
	})
}

func TestARequestForAReboot(t *testing.T) {
	b := newBench(t, func(d *Deps) { d.Settings.OwnHost = "own" })
	const bounds = "host.requestReboot: deadlineMs must be from 1000 to 86400000 milliseconds"
	p, _ := b.join(t, agent("a"))
	own, _ := b.join(t, agent("own"))
	for _, tt := range []struct {
		p            *peer
		params, want string
	}{
		{p, `{"deadlineMs":999}`, bounds},
		{p, `{"deadlineMs":86400001}`, bounds},
		{p, `{"deadlineMs":1e300}`, bounds},
		{p, `{"deadlineMs":"soon"}`, "host.requestReboot: deadlineMs must be a number of milliseconds"},
		{own, `{}`, "refusing to reboot the orchestrator host"},
	} {
		t.Run(fmt.Sprint(tt.want, " ", tt.params), func(t *testing.T) {
			if got := tt.p.ask("host.requestReboot", tt.params); got.Error != tt.want {
				t.Errorf("got %q", got.Error)
			}
		})
	}
	for _, id := range []string{"a", "own"} {
		if got := b.rebootOf(t, id); got != 0 {
			t.Errorf("the host of %s is awaited for %v", id, got)
		}
	}
}

func TestAHostThatIsNotBackInTimeIsOfferedJobsAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBenchOn(t, db)
		p, _ := b.join(t, agent("a"))
		b.awaitReady(t)
		p.ask("host.requestReboot", `{"deadlineMs":5000}`)
		b.turn(t, 4999*time.Millisecond)
		if got := ready(b); len(got) != 0 || b.rebootOf(t, "a") != time.Millisecond {
			t.Errorf("ready are %q", got)
		}
		b.turn(t, time.Millisecond)
		if got := ready(b); len(got) != 1 || b.rebootOf(t, "a") != 0 {
			t.Errorf("ready are %q, the host is awaited for %v", got, b.rebootOf(t, "a"))
		}
	})
}

// The flag is that of the connection that asked: a host whose agent connects anew is back.
func TestAnAgentThatConnectsAnewIsOfferedJobs(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	b.awaitReady(t)
	p.ask("host.requestReboot", `{}`)
	id := b.connectionID(t, "a")
	b.join(t, agent("a"))
	b.awaitGone(t, id)
	b.awaitReady(t)
}

// Who waits for a host that is about to reboot must not find it there before it has.
func TestAHostThatIsAboutToRebootIsNotThere(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBenchOn(t, db)
		p, _ := b.join(t, agent("a"))
		b.awaitReady(t)
		entry := func() (e apiHost) {
			t.Helper()
			if err := json.Unmarshal(p.ask("inventory.get", `{"agentId":"a"}`).Result, &e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		if e := entry(); e.Status != "ready" || e.RebootUntil != "" {
			t.Errorf("before: %+v", e)
		}
		p.ask("host.requestReboot", `{"deadlineMs":5000}`)
		if e := entry(); e.Status != "unreachable" || e.RebootUntil == "" {
			t.Errorf("asked to reboot: %+v", e)
		}
		p.ask("host.cancelReboot", `{}`)
		if e := entry(); e.Status != "ready" || e.RebootUntil != "" {
			t.Errorf("not any more: %+v", e)
		}
	})
}
