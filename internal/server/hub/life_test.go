package hub

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/auth"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func ready(b *bench) (ids []string) {
	for _, a := range b.Ready() {
		ids = append(ids, a.ID)
	}
	return ids
}

// turn is one turn of the monitor after some time, in which the process ran.
func (b *bench) turn(t *testing.T, after time.Duration) {
	t.Helper()
	for ; after > time.Second; after -= time.Second {
		b.clock.advance(time.Second)
		b.Pulse.Beat()
	}
	b.clock.advance(after)
	if err := b.watch(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// awaitLog waits until the poke of the dispatcher is due.
func (b *bench) awaitPoke(t *testing.T) {
	t.Helper()
	select {
	case <-b.Poke:
	case <-time.After(patience):
		t.Fatal("the dispatcher was not woken")
	}
}

// connectionID is the id of an agent's connection, whose end awaitGone can wait for from now on.
func (b *bench) connectionID(t *testing.T, agentID string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.agents[agentID]
	if c == nil {
		t.Fatalf("agent %s is not connected", agentID)
	}
	b.ends[c.id] = c.done
	return c.id
}

// TestALostConnectionIsTold tells one that broke from one that its agent closed in order.
func TestALostConnectionIsTold(t *testing.T) {
	ways := map[string]func(ws *websocket.Conn) error{
		"lost": func(ws *websocket.Conn) error { return ws.CloseNow() },
		"left": func(ws *websocket.Conn) error { return ws.Close(websocket.StatusNormalClosure, wire.ReasonAgentLeaves) },
	}
	for told, end := range ways {
		t.Run(told, func(t *testing.T) { testLostConnection(t, told, end) })
	}
}

func testLostConnection(t *testing.T, told string, end func(*websocket.Conn) error) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBenchOn(t, db)
		p, _ := b.join(t, agent("a"))
		b.awaitPoke(t)
		id := b.connectionID(t, "a")
		if err := end(p.ws); err != nil {
			t.Fatal(err)
		}
		b.engine.await(t, told+" a "+id)
		if got := ready(b); len(got) != 0 {
			t.Errorf("ready: %q", got)
		}
		stored, err := fleet.Get(t.Context(), db.Read(), "a")
		if err != nil || stored.Connected() {
			t.Errorf("stored %+v, %v", stored, err)
		}
	})
}

func TestANewerConnectionReplacesTheOlder(t *testing.T) {
	b := newBench(t)
	old, _ := b.join(t, agent("a"))
	oldID := b.connectionID(t, "a")
	young, _ := b.join(t, agent("a"))
	old.expectClose(wire.CloseGoingAway, wire.ReasonSuperseded)
	old.ws.CloseNow()
	b.awaitGone(t, oldID)
	young.settle()
	if got := ready(b); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("ready: %q", got)
	}
	stored, err := fleet.Get(t.Context(), b.DB.Read(), "a")
	if err != nil || !stored.Connected() {
		t.Errorf("stored %+v, %v", stored, err)
	}
	youngID := b.connectionID(t, "a")
	young.ws.CloseNow()
	b.engine.await(t, "lost a "+youngID)
	for _, call := range b.engine.seen() {
		if strings.Contains(call, oldID) {
			t.Errorf("the late end of the older connection was told: %s", call)
		}
	}
}

// awaitGone waits until a connection has left the hub, and everybody has been told.
func (b *bench) awaitGone(t *testing.T, id string) {
	t.Helper()
	select {
	case <-b.ends[id]:
	case <-time.After(patience):
		t.Fatal("the connection did not end")
	}
}

func TestALossThatTheStoreDidNotTakeIsToldAgain(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	id := b.connectionID(t, "a")
	b.engine.setFail(errors.New("database is down"))
	p.ws.CloseNow()
	b.awaitGone(t, id)
	b.turn(t, time.Second)
	b.engine.setFail(nil)
	b.turn(t, time.Second)
	b.turn(t, time.Second)
	want := []string{"connected a", "lost a " + id, "lost a " + id, "lost a " + id}
	if diff := cmp.Diff(want, b.engine.seen()); diff != "" {
		t.Error(diff)
	}
}

func TestAnAgentThatCameBackWasNotLost(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	id := b.connectionID(t, "a")
	b.engine.setFail(errors.New("database is down"))
	p.ws.CloseNow()
	b.awaitGone(t, id)
	b.engine.setFail(nil)
	p, _ = b.join(t, agent("a"))
	p.settle()
	b.turn(t, time.Second)
	want := []string{"connected a", "lost a " + id, "connected a"}
	if diff := cmp.Diff(want, b.engine.seen()); diff != "" {
		t.Error(diff)
	}
}

func TestSilence(t *testing.T) {
	tests := []struct {
		name     string
		features []string
		asleep   time.Duration // the whole process, before the turns
		turns    []time.Duration
		dead     bool
	}{
		{"three minutes are too long", nil, 0, []time.Duration{100 * time.Second, 81 * time.Second}, true},
		{"less is only unhealthy", nil, 0, []time.Duration{100 * time.Second, 79 * time.Second}, false},
		{"twenty seconds are too long for a fast heart", []string{wire.FeatureFastBeat}, 0, []time.Duration{15 * time.Second, 6 * time.Second}, true},
		{"a fast heart may skip a beat", []string{wire.FeatureFastBeat}, 0, []time.Duration{15 * time.Second, 4 * time.Second}, false},
		{"a server that stood still heard nobody", nil, 10 * time.Minute, []time.Duration{0}, false},
		{"so everybody has the whole time again", nil, 10 * time.Minute, []time.Duration{0, 179 * time.Second}, false},
		{"and no more", nil, 10 * time.Minute, []time.Duration{0, 181 * time.Second}, true},
		{"the same for a fast heart", []string{wire.FeatureFastBeat}, time.Minute, []time.Duration{0, 19 * time.Second}, false},
		{"which is lost like any other then", []string{wire.FeatureFastBeat}, time.Minute, []time.Duration{0, 21 * time.Second}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(d *Deps) { d.Settings.MonitorEvery = time.Minute })
			p, _ := b.join(t, agent("a", tt.features...))
			p.settle()
			b.awaitIdle(t, "a")
			b.clock.advance(tt.asleep)
			for _, after := range tt.turns {
				b.turn(t, after)
			}
			if tt.dead {
				p.expectClose(wire.CloseHeartbeat, wire.ReasonHeartbeatTimeout)
				b.engine.await(t, "lost a")
				return
			}
			p.send(wire.Heartbeat{Timestamp: 1})
			p.settle()
		})
	}
}

// awaitIdle waits until the reader of an agent's connection waits for the next frame.
func (b *bench) awaitIdle(t *testing.T, agentID string) {
	t.Helper()
	c := b.current(agentID)
	for deadline := time.Now().Add(patience); c.busy.Load(); {
		if time.Now().After(deadline) {
			t.Fatal("the reader does not come to rest")
		}
	}
}

func TestAnyFrameIsASignOfLife(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	for range 3 {
		b.turn(t, 100*time.Second)
		p.settle()
		b.awaitIdle(t, "a")
	}
	at := b.clock.read().UnixMilli()
	if got := b.Connections()[0].LastSeenAt; got != at {
		t.Errorf("last seen %d, want %d", got, at)
	}
	b.turn(t, 0)
	stored, err := fleet.Get(t.Context(), b.DB.Read(), "a")
	if err != nil || stored.LastSeenAt != at {
		t.Errorf("stored %d, want %d (%v)", stored.LastSeenAt, at, err)
	}
}

func TestARevokedTokenEndsItsConnections(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	other := b.dial(t)
	other.send(wire.AuthRequest{Token: "kat_other", ProtocolVersion: 1})
	expect[wire.AuthSuccess](other)
	kicked := make(chan int)
	go func() { kicked <- b.KickToken(context.Background(), "static") }()
	if reason := expect[wire.AuthFailure](p).Reason; reason != "Token revoked" {
		t.Errorf("reason %q", reason)
	}
	p.expectClose(wire.CloseUnauthorized, "Token revoked")
	if n := <-kicked; n != 1 {
		t.Errorf("kicked %d", n)
	}
	b.engine.await(t, "lost a")
	other.send(agent("b"))
	expect[wire.RegisterAck](other)
}

func TestAnExpiredTokenEndsItsConnections(t *testing.T) {
	expires := int64(1_795_987_358_000 + 60_000)
	b := newBench(t, token(auth.AgentToken{ID: "t", Type: auth.AgentEphemeral, CreatedBy: "a", ExpiresAt: &expires}))
	p, _ := b.join(t, agent("a"))
	b.turn(t, 59*time.Second)
	p.settle()
	b.turn(t, time.Second)
	expect[wire.AuthFailure](p)
	p.expectClose(wire.CloseUnauthorized, "Token revoked")
}

func TestStopSendsAgentsElsewhere(t *testing.T) {
	b := newBench(t)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, _ := b.join(t, agent("a"))
	waiting := b.dial(t) // in the middle of its handshake
	p.settle()
	stopped := make(chan struct{})
	go func() {
		b.Stop(context.Background())
		close(stopped)
	}()
	p.expectClose(wire.CloseGoingAway, "Server shutting down")
	waiting.expectClose(wire.CloseGoingAway, "Server shutting down")
	<-stopped
	if calls := b.engine.seen(); len(calls) != 1 {
		t.Errorf("calls %q", calls) // its jobs stay its own
	}
	stored, err := fleet.Get(t.Context(), b.DB.Read(), "a")
	if err != nil || stored.Connected() {
		t.Errorf("stored %+v, %v", stored, err)
	}
	if _, _, err := dialRaw(t, b); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error = %v", err)
	}
}

// Agents without frame-ack send nothing twice.
func TestStopHearsWhatAgentsHaveSent(t *testing.T) {
	const frames = 2000
	b := newBench(t)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, _ := b.join(t, agent("a"))
	b.engine.give("a", "j")
	for range frames {
		p.send(wire.JobStatus{MessageID: "m", RunID: "r", JobID: "j", State: ci.JobRunning, Timestamp: 1})
	}
	stopped := make(chan struct{})
	go func() {
		b.Stop(context.Background())
		close(stopped)
	}()
	p.expectClose(wire.CloseGoingAway, "Server shutting down")
	<-stopped
	if n := len(b.engine.seen()); n != frames+1 {
		t.Errorf("%d calls, want the registration and %d reports", n, frames)
	}
}

func TestStartForgetsTheConnectionsOfItsLastLife(t *testing.T) {
	db := storetest.SQLite(t)
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return fleet.Seen(ctx, tx, fleet.Agent{ID: "a", NodeID: "n1", ConnectionID: "c", LastSeenAt: 1})
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchOn(t, db)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored, err := fleet.Get(t.Context(), db.Read(), "a")
	if err != nil || stored.Connected() {
		t.Errorf("stored %+v, %v", stored, err)
	}
}

func TestTheLatestMetricsAreKept(t *testing.T) {
	b := newBench(t)
	p, _ := b.join(t, agent("a"))
	one, two := 1.0, 2.0
	for _, v := range []*float64{&one, &two} {
		p.send(wire.AgentMetrics{MessageID: "m", AgentID: "a", Metrics: []wire.Metric{{Name: "kici_agent_jobs_total", Type: "counter", Value: v}}})
	}
	p.settle()
	want := []AgentMetrics{{AgentID: "a", Scaler: "stateful", Metrics: []wire.Metric{{Name: "kici_agent_jobs_total", Type: "counter", Value: &two}}}}
	if diff := cmp.Diff(want, b.Metrics()); diff != "" {
		t.Error(diff)
	}
	id := b.connectionID(t, "a")
	p.ws.CloseNow()
	b.awaitGone(t, id)
	b.turn(t, 30*time.Second)
	if len(b.Metrics()) != 1 {
		t.Error("metrics are gone too early")
	}
	b.turn(t, time.Second)
	if len(b.Metrics()) != 0 {
		t.Error("metrics outlive their agent")
	}
}
