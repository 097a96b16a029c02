package hub

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kici/internal/core/wire"
	"kici/internal/server/auth"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestHandshake(t *testing.T) {
	const (
		request  = `{"type":"auth.request","token":"kat_static","protocolVersion":1}`
		register = `{"type":"agent.register","messageId":"m","agentId":"a","labels":["linux"]}`
	)
	closes := func(code int, reason string) string {
		return fmt.Sprintf("close %d %s", code, reason)
	}
	labelled := func(labels, rest string) string {
		return `{"type":"agent.register","messageId":"m","agentId":"a","labels":[` + labels + `]` + rest + `}`
	}
	tests := []struct {
		name    string
		options []option
		frames  []string
		want    []string // types of answers, with the reason of an auth.failure, and the close
	}{
		{name: "token and registration", frames: []string{request, register}, want: []string{"auth.success", "register.ack"}},
		{name: "a later protocol version is accepted", frames: []string{strings.Replace(request, ":1}", ":7}", 1), register}, want: []string{"auth.success", "register.ack"}},
		{name: "unknown token", frames: []string{strings.Replace(request, "kat_static", "kat_x", 1)}, want: []string{"auth.failure Invalid or expired token", closes(4010, "Authentication failed")}},
		{name: "first frame is something else", frames: []string{register}, want: []string{"auth.failure First message must be auth.request", closes(4010, "Authentication failed")}},
		{name: "first frame is not JSON", frames: []string{"hello"}, want: []string{"auth.failure First message must be auth.request", closes(4010, "Authentication failed")}},
		{name: "auth.request breaks its shape", frames: []string{strings.Replace(request, ":1}", ":0}", 1)}, want: []string{"auth.failure First message must be auth.request", closes(4010, "Authentication failed")}},
		{name: "unknown type first", frames: []string{`{"type":"hello"}`}, want: []string{"auth.failure First message must be auth.request", closes(4010, "Authentication failed")}},
		{name: "no token store", options: []option{func(d *Deps) { d.Tokens = nil }}, frames: []string{request}, want: []string{"auth.failure Server misconfiguration", closes(4010, "Authentication failed")}},
		{name: "unreadable token row", options: []option{failing(auth.ErrTokenState)}, frames: []string{request}, want: []string{"auth.failure Server token state error", closes(4010, "Authentication failed")}},
		{name: "temporary trouble is no failure of the agent", options: []option{failing(errors.New("database is down"))}, frames: []string{request}, want: []string{closes(4006, "Internal error")}},
		{name: "something else than a registration", frames: []string{request, `{"type":"heartbeat","timestamp":1}`}, want: []string{"auth.success", closes(4003, "First message must be agent.register")}},
		{name: "registration breaks its shape", frames: []string{request, `{"type":"agent.register","messageId":"m","agentId":"a"}`}, want: []string{"auth.success", closes(4003, "First message must be agent.register")}},
		{name: "a second auth.request", frames: []string{request, request}, want: []string{"auth.success", closes(4003, "First message must be agent.register")}},
		{name: "empty agent id", frames: []string{request, `{"type":"agent.register","messageId":"m","agentId":"","labels":[]}`}, want: []string{"auth.success", "error", closes(4003, "Invalid message")}},
		{name: "the longest label", options: []option{noAuth}, frames: []string{labelled(`"`+strings.Repeat("l", maxLabel)+`"`, "")}, want: []string{"register.ack"}},
		{name: "a label that is too long", options: []option{noAuth}, frames: []string{labelled(`"linux","`+strings.Repeat("l", maxLabel+1)+`"`, "")}, want: []string{"error", closes(4003, "Invalid message")}},
		{name: "a label is measured in bytes", options: []option{noAuth}, frames: []string{labelled(`"`+strings.Repeat("ä", maxLabel/2+1)+`"`, "")}, want: []string{"error", closes(4003, "Invalid message")}},
		{name: "labels of the longest names of host and agent", options: []option{noAuth}, frames: []string{labelled(`"kici:host:`+strings.Repeat("h", 255)+`","kici:scaler:`+strings.Repeat("s", 256)+`"`, "")}, want: []string{"register.ack"}},
		{name: "no auth.request in time", options: []option{func(d *Deps) { d.Settings.AuthTimeout = time.Millisecond }}, want: []string{closes(4002, "Auth timeout")}},
		{name: "no registration in time", options: []option{func(d *Deps) { d.Settings.RegisterTimeout = time.Millisecond }}, frames: []string{request}, want: []string{"auth.success", closes(4002, "Registration timeout")}},

		{name: "open server: registration", options: []option{noAuth}, frames: []string{register}, want: []string{"register.ack"}},
		{name: "open server: a token is not looked at", options: []option{noAuth, failing(auth.ErrInvalidToken)}, frames: []string{request, register}, want: []string{"auth.success", "register.ack"}},
		{name: "open server: something else", options: []option{noAuth}, frames: []string{`{"type":"heartbeat","timestamp":1}`}, want: []string{closes(4003, "First message must be agent.register")}},
		{name: "open server: no registration in time", options: []option{noAuth, func(d *Deps) { d.Settings.RegisterTimeout = time.Millisecond }}, want: []string{closes(4002, "Registration timeout")}},

		{name: "root without saying so", frames: []string{request, labelled(`"kici:privileged:root"`, ``)}, want: []string{"auth.success", closes(4010, "privileged-root token presented by non-root agent (uid=absent)")}},
		{name: "root that is not", frames: []string{request, labelled(`"kici:privileged:root"`, `,"runningAsUid":1001`)}, want: []string{"auth.success", closes(4010, "privileged-root token presented by non-root agent (uid=1001)")}},
		{name: "root that is", frames: []string{request, labelled(`"kici:privileged:root"`, `,"runningAsUid":0`)}, want: []string{"auth.success", "register.ack"}},
		{name: "a token for root needs root", options: []option{token(auth.AgentToken{ID: "t", MandatoryLabels: []string{rootLabel}})}, frames: []string{request, register}, want: []string{"auth.success", closes(4010, "privileged-root token presented by non-root agent (uid=absent)")}},
		{name: "open server: root honesty holds too", options: []option{noAuth}, frames: []string{labelled(`"kici:privileged:root"`, ``)}, want: []string{closes(4010, "privileged-root token presented by non-root agent (uid=absent)")}},
		{name: "labels beyond the token", options: []option{token(auth.AgentToken{ID: "t", Labels: []string{"linux"}})}, frames: []string{request, labelled(`"linux","gpu","big"`, ``)}, want: []string{"auth.success", closes(4010, "Agent labels exceed token-bound scope: gpu, big")}},
		{name: "a token for no label", options: []option{token(auth.AgentToken{ID: "t", Labels: []string{}})}, frames: []string{request, register}, want: []string{"auth.success", closes(4010, "Agent labels exceed token-bound scope: linux")}},
		{name: "self-reported labels are always allowed", options: []option{token(auth.AgentToken{ID: "t", Labels: []string{"linux"}})}, frames: []string{request, labelled(`"linux","kici:os:linux","kici:arch:x64","kici:host:vm"`, ``)}, want: []string{"auth.success", "register.ack"}},
		{name: "scope comes before identity", options: []option{token(auth.AgentToken{ID: "t", Type: auth.AgentEphemeral, CreatedBy: "b", Labels: []string{}})}, frames: []string{request, register}, want: []string{"auth.success", closes(4010, "Agent labels exceed token-bound scope: linux")}},
		{name: "ephemeral token of another agent", options: []option{token(auth.AgentToken{ID: "t", Type: auth.AgentEphemeral, CreatedBy: "b"})}, frames: []string{request, register}, want: []string{"auth.success", closes(4010, "Ephemeral token bound to a different agentId: expected b, got a")}},
		{name: "bootstrap token of the agent", options: []option{token(auth.AgentToken{ID: "t", Type: auth.AgentEphemeral, CreatedBy: "bootstrap:a"})}, frames: []string{request, register}, want: []string{"auth.success", "register.ack"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.options...)
			p := b.dial(t)
			for _, f := range tt.frames {
				p.raw(f)
			}
			for _, want := range tt.want {
				kind, reason, _ := strings.Cut(want, " ")
				if kind == "close" {
					code, err := strconv.Atoi(reason[:4])
					if err != nil {
						t.Fatal(err)
					}
					p.expectClose(code, reason[5:])
					continue
				}
				m, err := p.read()
				if err != nil {
					t.Fatalf("waiting for %s: %v", want, err)
				}
				if m.MessageType() != kind {
					t.Fatalf("got %s, want %s", m.MessageType(), want)
				}
				if failure, ok := m.(wire.AuthFailure); ok && failure.Reason != reason {
					t.Errorf("reason %q, want %q", failure.Reason, reason)
				}
			}
		})
	}
}

func failing(err error) option {
	return func(d *Deps) { d.Tokens.(*fakeTokens).fail = err }
}

func token(tok auth.AgentToken) option {
	return func(d *Deps) { d.Tokens.(*fakeTokens).tokens["kat_static"] = tok }
}

func TestAnAgentIsStoredWithWhatItSaid(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBenchOn(t, db, token(auth.AgentToken{ID: "t1", MandatoryLabels: []string{"gpu"}}))
		m := agent("forge-01", wire.FeatureFrameAck, "time-travel")
		uid := int64(1001)
		m.Platform, m.Arch, m.Hostname, m.MaxConcurrency, m.RunningAsUID = "darwin", "arm64", "forge", 3, &uid
		m.Properties = map[string]any{"region": "eu"}
		_, ack := b.join(t, m)
		want := wire.RegisterAck{AgentID: "forge-01", Labels: []string{"linux"}, Features: []string{wire.FeatureFrameAck}}
		if diff := cmp.Diff(want, ack); diff != "" {
			t.Error(diff)
		}
		stored, err := fleet.Get(t.Context(), db.Read(), "forge-01")
		if err != nil {
			t.Fatal(err)
		}
		at := b.clock.read().UnixMilli()
		wantAgent := fleet.Agent{
			ID: "forge-01", Labels: []string{"linux"}, MandatoryLabels: []string{"gpu"}, Features: []string{wire.FeatureFrameAck},
			Platform: "darwin", Arch: "arm64", Hostname: "forge", Version: "0.1.24", Lifecycle: fleet.Static, MaxConcurrency: 3,
			Properties: map[string]any{"region": "eu"}, Inventory: fleet.Inventory{RunningAsUID: &uid},
			TokenID: "t1", NodeID: "n1", ConnectionID: b.Connections()[0].ConnectionID, FirstSeenAt: at, LastSeenAt: at,
		}
		if diff := cmp.Diff(wantAgent, stored, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestASingleUseTokenAdmitsOneRegistration(t *testing.T) {
	b := newBench(t, token(auth.AgentToken{ID: "boot", Type: auth.AgentEphemeral, CreatedBy: "bootstrap:a"}))
	late := b.dial(t)
	late.send(wire.AuthRequest{Token: "kat_static", ProtocolVersion: 1})
	expect[wire.AuthSuccess](late)
	p, _ := b.join(t, agent("a"))
	late.send(agent("a"))
	if reason := expect[wire.AuthFailure](late).Reason; reason != wire.ReasonInvalidToken {
		t.Errorf("reason %q", reason)
	}
	late.expectClose(wire.CloseUnauthorized, wire.ReasonAuthFailed)
	p.send(agent("a")) // the one that used it may refresh its registration
	expect[wire.RegisterAck](p)
}

type fakeScalers map[string]Spawn

func (f fakeScalers) Spawned(_ context.Context, agentID string) (Spawn, bool, error) {
	s, ok := f[agentID]
	delete(f, agentID)
	return s, ok, nil
}

func TestAStartedAgentKeepsWhatItWasStartedFor(t *testing.T) {
	b := newBench(t, func(d *Deps) {
		d.Scalers = fakeScalers{"eph-1": {Scaler: "c1", Backend: "container", MandatoryLabels: []string{"big"}, PendingJob: true}}
	})
	p, ack := b.join(t, agent("eph-1"))
	if !ack.ScalerManaged || !ack.PendingDispatch {
		t.Errorf("got %+v", ack)
	}
	again := agent("eph-1")
	again.Labels = []string{"linux", "more"}
	p.send(again)
	if ack := expect[wire.RegisterAck](p); !ack.ScalerManaged || len(ack.Labels) != 2 {
		t.Errorf("got %+v", ack)
	}
	p.settle()
	ready := b.Ready()
	if len(ready) != 1 || !cmp.Equal(ready[0].Mandatory, []string{"big"}) || len(ready[0].Labels) != 2 {
		t.Errorf("ready: %+v", ready)
	}
	if calls := b.engine.seen(); !cmp.Equal(calls, []string{"connected eph-1", "connected eph-1 again"}) {
		t.Errorf("calls %q", calls)
	}
	stored, err := fleet.Get(t.Context(), b.DB.Read(), "eph-1")
	if err != nil || !stored.SingleUse() {
		t.Errorf("stored %+v, %v", stored, err)
	}
}

func TestARepeatedRegistrationPassesTheGatesToo(t *testing.T) {
	b := newBench(t, token(auth.AgentToken{ID: "t", Labels: []string{"linux"}}))
	p, _ := b.join(t, agent("a"))
	m := agent("a")
	m.Labels = []string{"gpu"}
	p.send(m)
	p.expectClose(wire.CloseUnauthorized, "Agent labels exceed token-bound scope: gpu")
}

func TestAConnectionStaysWithItsAgent(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	p.send(agent("b"))
	expect[wire.ErrorFrame](p)
	p.expectClose(wire.CloseInvalid, wire.ReasonInvalid)
}

func TestAnAgentIDBelongsToItsToken(t *testing.T) {
	b := newBench(t)
	b.join(t, agent("a"))
	p := b.dial(t)
	p.send(wire.AuthRequest{Token: "kat_other", ProtocolVersion: 1})
	expect[wire.AuthSuccess](p)
	p.send(agent("a"))
	p.expectClose(wire.CloseInvalid, wire.ReasonCollision)
	if n := len(b.Ready()); n != 1 {
		t.Errorf("%d agents are ready", n)
	}
}

func TestJobsThatAreNoLongerTheAgentsAreCancelled(t *testing.T) {
	b := newBench(t)
	b.engine.cancels = []wire.JobCancel{{MessageID: "c", RunID: "r", JobID: "j1", Reason: wire.ReasonNotAssigned}}
	m := agent("a")
	m.InFlightJobs = []wire.InFlightJob{{JobID: "j1", RunID: "r"}, {JobID: "j2", RunID: "r"}}
	p, _ := b.join(t, m)
	if got := expect[wire.JobCancel](p); got.JobID != "j1" || got.Reason != wire.ReasonNotAssigned {
		t.Errorf("got %+v", got)
	}
	b.engine.await(t, "connected a j1 j2")
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	b := newBench(t, func(d *Deps) { d.Settings.MaxConnections = 1 })
	b.join(t, agent("a"))
	if _, _, err := dialRaw(t, b); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error = %v", err)
	}
}

func TestPagesOfOtherSitesCannotConnect(t *testing.T) {
	b := newBench(t, noAuth)
	if _, _, err := dialRaw(t, b, "https://evil.example.test"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("error = %v", err)
	}
}
