package hub

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/server/auth"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/logs"
)

// The rooms that a server puts together fit each other.
var (
	_ dispatch.Hub = (*Hub)(nil)
	_ Engine       = (*engine.Engine)(nil)
	_ Tokens       = (*auth.Tokens)(nil)
	_ Logs         = (*logs.Store)(nil)
)

func TestDispatchCancelAndDrop(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	p.settle()
	frame := wire.JobDispatch{MessageID: "d", RunID: "r", JobID: "j", JobConfig: []byte(`{"name":"unit"}`)}
	id := b.Ready()[0].ConnectionID
	if err := b.Dispatch(t.Context(), id, "build", frame); err != nil {
		t.Fatal(err)
	}
	if got := expect[wire.JobDispatch](p); string(got.JobConfig) != `{"name":"unit"}` {
		t.Errorf("got %+v", got)
	}
	huge := wire.JobDispatch{MessageID: "d", RunID: "r", JobID: "j", JobConfig: json.RawMessage(`{"name":"` + strings.Repeat("x", wire.MaxFrame) + `"}`)}
	if err := b.Dispatch(t.Context(), id, "build", huge); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("a frame that the agent would not read: %v", err)
	}
	cancel := wire.JobCancel{MessageID: "c", RunID: "r", JobID: "j", Reason: "enough", Force: true}
	if !b.Send("a", cancel) {
		t.Error("the agent is said not to be connected")
	}
	if diff := cmp.Diff(cancel, expect[wire.JobCancel](p)); diff != "" {
		t.Error(diff)
	}
	if !b.Drop("a", wire.ReasonDispatchAckTimeout) {
		t.Error("the agent is said not to be connected")
	}
	if got := ready(b); len(got) > 0 {
		t.Errorf("a dropped agent is ready")
	}
	if err := b.Dispatch(t.Context(), id, "build", frame); err == nil {
		t.Error("a closing connection took a dispatch")
	}
	p.expectClose(wire.CloseNoAck, "dispatch ack timeout")
	if b.Send("nobody", cancel) || b.Drop("nobody", "x") {
		t.Error("an agent that never came is said to be connected")
	}
}

func TestReadyIsInTheOrderOfNames(t *testing.T) {
	b := newBench(t, noAuth)
	for _, id := range []string{"b2", "a", "B1"} {
		m := agent(id)
		m.MaxConcurrency = 2
		p, _ := b.join(t, m)
		p.settle()
	}
	if got := ready(b); !cmp.Equal(got, []string{"a", "B1", "b2"}) {
		t.Errorf("ready: %q", got)
	}
	if got := b.Ready()[0].MaxConcurrency; got != 2 {
		t.Errorf("max concurrency %d", got)
	}
}

func TestRefusalsHoldOff(t *testing.T) {
	reject := func(reason string) wire.Message {
		return wire.JobReject{MessageID: "m", RunID: "r", JobID: "j", Reason: reason, Timestamp: 1}
	}
	idle := wire.AgentStatus{MessageID: "m", AgentID: "a"}
	tests := []struct {
		name   string
		frames []wire.Message
		ready  bool
	}{
		{"busy", []wire.Message{reject("busy")}, false},
		{"busy with something", []wire.Message{reject("busy"), wire.AgentStatus{MessageID: "m", AgentID: "a", ActiveJobs: 1}}, false},
		{"busy no longer", []wire.Message{reject("busy"), idle}, true},
		{"busy until its job ended", []wire.Message{reject("busy"), status("mine", "m", "failed")}, true},
		{"a running job frees nobody", []wire.Message{reject("busy"), status("mine", "m", "running")}, false},
		{"draining", []wire.Message{reject("draining")}, false},
		{"draining is for good", []wire.Message{reject("draining"), idle, reject("busy"), status("mine", "m", "success"), agent("a")}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.engine.give("a", "mine", "j")
			p, _ := b.join(t, agent("a"))
			for _, f := range tt.frames {
				p.send(f)
			}
			p.settle()
			if got := len(ready(b)) == 1; got != tt.ready {
				t.Errorf("ready = %v", got)
			}
			b.engine.await(t, "rejected j")
		})
	}
}

// TestAnAgentIsHeldOffBeforeItsJobCanBeOfferedAgain looks at the hub at the very moment in which an agent's job is given
// back: as soon as that has committed, the dispatcher may look for somebody to have it, and this agent still ends it.
func TestAnAgentIsHeldOffBeforeItsJobCanBeOfferedAgain(t *testing.T) {
	tests := []struct {
		name string
		call string // of the engine, in which the job is given back
		act  func(p *peer)
	}{
		{"it is busy", "rejected j", func(p *peer) {
			p.send(wire.JobReject{MessageID: "m", RunID: "r", JobID: "j", Reason: wire.RejectBusy, Timestamp: 1})
		}},
		{"it drains", "rejected j", func(p *peer) {
			p.send(wire.JobReject{MessageID: "m", RunID: "r", JobID: "j", Reason: wire.RejectDraining, Timestamp: 1})
		}},
		{"its run has no place in its group", "report j", func(p *peer) {
			p.send(wire.ConcurrencyReport{MessageID: "m", RunID: "r", JobID: "j", Group: "g"})
		}},
		{"it leaves", "left a", func(p *peer) { _ = p.ws.Close(websocket.StatusNormalClosure, wire.ReasonAgentLeaves) }},
		{"its connection breaks", "lost a", func(p *peer) { _ = p.ws.CloseNow() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			groups := &fakeConcurrency{answer: wire.ConcurrencyAck{Action: wire.ConcurrencyWait, Reason: "in line"}}
			b := newBench(t, func(d *Deps) { d.Concurrency = groups })
			groups.during = func() { _ = b.engine.note("report j") }
			b.engine.give("a", "j")
			p, _ := b.join(t, agent("a"))
			p.settle()
			id := b.Ready()[0].ConnectionID
			offered := make(chan bool, 1)
			b.engine.mu.Lock()
			b.engine.refuse = func(call string) error {
				if strings.HasPrefix(call, tt.call) {
					offered <- b.Takes(id) || len(b.Ready()) > 0
				}
				return nil
			}
			b.engine.mu.Unlock()
			tt.act(p)
			b.engine.await(t, tt.call)
			if <-offered {
				t.Error("the agent is offered work while its job is given back")
			}
		})
	}
}

// TestAnAgentWhoseJobGoesOnIsOfferedWorkAgain is the other end of that: the agent is held off only for the question.
func TestAnAgentWhoseJobGoesOnIsOfferedWorkAgain(t *testing.T) {
	groups := &fakeConcurrency{answer: wire.ConcurrencyAck{Action: wire.ConcurrencyProceed}}
	b := newBench(t, func(d *Deps) { d.Concurrency = groups })
	b.engine.give("a", "j")
	m := agent("a")
	m.MaxConcurrency = 2
	p, _ := b.join(t, m)
	b.awaitPoke(t) // registered
	p.send(wire.ConcurrencyReport{MessageID: "m", RunID: "r", JobID: "j", Group: "g"})
	b.awaitPoke(t)
	if got := ready(b); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("ready: %q", got)
	}
	p.send(status("j", "1", "running"))
	b.engine.await(t, "job j running")
}

func TestTheDispatcherIsWokenWhenAnAgentHasRoom(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	m := agent("a")
	m.MaxConcurrency = 2
	p, _ := b.join(t, m)
	b.awaitPoke(t) // registered
	p.send(status("j", "1", "success"))
	b.awaitPoke(t)
	p.send(wire.AgentStatus{MessageID: "2", AgentID: "a", ActiveJobs: 1})
	b.awaitPoke(t)
	p.send(wire.JobReject{MessageID: "3", RunID: "r", JobID: "j", Reason: "busy", Timestamp: 1})
	b.awaitPoke(t) // the job goes to another agent
	p.send(wire.AgentStatus{MessageID: "4", AgentID: "a"})
	b.awaitPoke(t)
}

func TestWhoKnowsUnroutable(t *testing.T) {
	tests := []struct {
		version  string
		features []string
		want     bool
	}{
		{"", nil, false},
		{"0.1.24", nil, false},
		{"0.1.3", nil, false},
		{"0.1.25", nil, true},
		{"1.0.0-rc.1", nil, true},
		{"weird", nil, false},
		{"0.0.1", []string{wire.FeatureFrameAck}, true},
		{"0.1.24", []string{wire.FeatureFastBeat}, false},
	}
	for _, tt := range tests {
		if got := newer(tt.version, tt.features); got != tt.want {
			t.Errorf("%q %q: %v", tt.version, tt.features, got)
		}
	}
}
