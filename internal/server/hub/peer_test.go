package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"kici/internal/core/wire"
	"kici/internal/kit/service"
	"kici/internal/server/auth"
	"kici/internal/server/cluster"
	"kici/internal/server/engine"
	"kici/internal/server/logs"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// patience bounds every wait of a test; nothing that works takes so long.
const patience = 20 * time.Second

// fakeEngine is an engine whose jobs belong to whom a test says. It notes every call as one line.
type fakeEngine struct {
	mu       sync.Mutex
	owners   map[string]string // job id: agent id
	past     map[string]bool
	fenced   map[string]bool
	cancels  []wire.JobCancel
	fail     error                   // of every call, while set
	reported chan wire.JobStatus     // nil, or takes the ends of jobs
	refuse   func(call string) error // of one call; nil refuses none
	gate     chan struct{}           // nil, or gives leave to take what is said of a job
	calls    []string
	changed  chan struct{}
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{owners: map[string]string{}, past: map[string]bool{}, fenced: map[string]bool{}, changed: make(chan struct{})}
}

func (e *fakeEngine) note(call string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, call)
	close(e.changed)
	e.changed = make(chan struct{})
	if e.refuse != nil {
		return errors.Join(e.fail, e.refuse(call))
	}
	return e.fail
}

func (e *fakeEngine) give(agent string, jobs ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, j := range jobs {
		e.owners[j] = agent
	}
}

func (e *fakeEngine) setFail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = err
}

// seen lists the calls so far.
func (e *fakeEngine) seen() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

// await waits for a call that begins so.
func (e *fakeEngine) await(t *testing.T, prefix string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		e.mu.Lock()
		found := slices.ContainsFunc(e.calls, func(c string) bool { return strings.HasPrefix(c, prefix) })
		changed := e.changed
		e.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no call %q among %q", prefix, e.seen())
		}
	}
}

func (e *fakeEngine) Owned(_ context.Context, agentID, jobID string) (engine.Owned, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return engine.Owned{}, e.fail
	}
	if e.owners[jobID] != agentID {
		return engine.Owned{}, engine.ErrNotOwner
	}
	return engine.Owned{RunID: "run-of-" + jobID, JobID: jobID, JobName: "name-of-" + jobID, Past: e.past[jobID]}, nil
}

func (e *fakeEngine) Acked(ctx context.Context, agentID, _, jobID string) (engine.Ack, error) {
	job, err := e.Owned(ctx, agentID, jobID)
	if err != nil {
		return engine.Ack{}, err
	}
	return engine.Ack{Fenced: e.isFenced(jobID), Job: job}, e.note("acked " + jobID)
}

func (e *fakeEngine) isFenced(jobID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fenced[jobID]
}

func (e *fakeEngine) Rejected(_ context.Context, _, jobID, reason string) error {
	return e.note("rejected " + jobID + " " + reason)
}

func (e *fakeEngine) JobReported(_ context.Context, _ string, m wire.JobStatus) error {
	if e.reported != nil && m.State.Terminal() {
		e.reported <- m
	}
	return e.note("job " + m.JobID + " " + string(m.State))
}

func (e *fakeEngine) Reported(ctx context.Context, agentID string, _ engine.Owned, words ...wire.Message) error {
	if e.gate != nil {
		if err := e.note(fmt.Sprint(len(words), " words")); err != nil {
			return err
		}
		<-e.gate
	}
	for _, word := range words {
		var err error
		switch m := word.(type) {
		case wire.JobAck:
			if e.isFenced(m.JobID) {
				return engine.ErrNotOwner
			}
			err = e.note("acked " + m.JobID)
		case wire.JobStatus:
			err = e.JobReported(ctx, agentID, m)
		case wire.StepStatus:
			err = e.note("step " + m.JobID + " " + m.StepName + " " + string(m.State))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *fakeEngine) ReportedAlong(ctx context.Context, agentID string, of engine.Owned, along func(context.Context, *store.Tx) error, words ...wire.Message) error {
	if err := e.Reported(ctx, agentID, of, words...); err != nil {
		return err
	}
	return along(ctx, nil)
}

func (e *fakeEngine) JobBeat(_ context.Context, _ string, m wire.JobHeartbeat) error {
	return e.note("beat " + m.JobID)
}

func (e *fakeEngine) Connected(_ context.Context, agentID string, inFlight []wire.InFlightJob, fresh bool) ([]wire.JobCancel, error) {
	call := "connected " + agentID
	if !fresh {
		call += " again"
	}
	for _, j := range inFlight {
		call += " " + j.JobID
	}
	e.mu.Lock()
	cancels := e.cancels
	e.mu.Unlock()
	return cancels, e.note(call)
}

func (e *fakeEngine) Lost(_ context.Context, agentID, connectionID string, left bool) error {
	if left {
		return e.note("left " + agentID + " " + connectionID)
	}
	return e.note("lost " + agentID + " " + connectionID)
}

// fakeTokens knows the tokens that a test gives it.
type fakeTokens struct {
	mu       sync.Mutex
	tokens   map[string]auth.AgentToken
	fail     error
	consumed map[string]bool
}

func (f *fakeTokens) Agent(_ context.Context, token string) (auth.AgentToken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return auth.AgentToken{}, f.fail
	}
	found, ok := f.tokens[token]
	if !ok {
		return auth.AgentToken{}, auth.ErrInvalidToken
	}
	return found, nil
}

func (f *fakeTokens) ConsumeTx(_ context.Context, _ *store.Tx, id string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	used := f.consumed[id]
	f.consumed[id] = true
	return !used, nil
}

// fakeLogs keeps chunks.
type fakeLogs struct {
	mu     sync.Mutex
	chunks []logs.Chunk
	fail   error
	along  atomic.Int64 // chunks that came with what is said of their job
}

func (f *fakeLogs) Append(_ context.Context, c logs.Chunk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		f.chunks = append(f.chunks, c)
	}
	return f.fail
}

// AppendAlong takes the chunk of a step that has none yet.
func (f *fakeLogs) AppendAlong(ctx context.Context, c logs.Chunk, write func(logs.Along) error) (stored bool) {
	f.mu.Lock()
	known := slices.ContainsFunc(f.chunks, func(k logs.Chunk) bool { return k.JobID == c.JobID && k.StepIndex == c.StepIndex })
	f.mu.Unlock()
	return !known && write(func(context.Context, *store.Tx) error {
		f.along.Add(1)
		return f.Append(ctx, c)
	}) == nil
}

func (f *fakeLogs) lines() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.chunks {
		all = append(all, c.Lines...)
	}
	return all
}

// manualClock is a clock that a test moves.
type manualClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *manualClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// bench is a hub with fakes around it, served over a real socket.
type bench struct {
	*Hub
	engine *fakeEngine
	tokens *fakeTokens
	logs   *fakeLogs
	clock  *manualClock
	url    string
	ends   map[string]chan struct{} // of connections, by id; the test's
}

type option func(*Deps)

func noAuth(d *Deps) { d.Settings.NoAuth = true }

// newBench makes a hub that is not started: its monitor turns when the test says so. By default agents need a token;
// "kat_static" belongs to a static one.
func newBench(t *testing.T, options ...option) *bench {
	t.Helper()
	return newBenchOn(t, storetest.SQLite(t), options...)
}

func newBenchOn(t *testing.T, db *store.DB, options ...option) *bench {
	t.Helper()
	b := &bench{
		engine: newFakeEngine(), logs: &fakeLogs{}, clock: &manualClock{now: time.UnixMilli(1_795_987_358_000)}, ends: map[string]chan struct{}{},
		tokens: &fakeTokens{consumed: map[string]bool{}, tokens: map[string]auth.AgentToken{
			"kat_static": {ID: "static", Type: auth.AgentStatic},
			"kat_other":  {ID: "other", Type: auth.AgentStatic},
		}},
	}
	settings := DefaultSettings()
	settings.NodeID, settings.MonitorEvery = "n1", time.Hour
	d := Deps{
		DB: db, Clock: b.clock.read, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Engine: b.engine, Tokens: b.tokens, Logs: b.logs, Poke: service.NewPoke(), Arrived: service.NewPoke(),
		Pulse: cluster.NewPulse(b.clock.read), Settings: settings,
	}
	for _, o := range options {
		o(&d)
	}
	b.Hub = New(d)
	server := httptest.NewServer(b.Hub)
	b.url = "ws" + strings.TrimPrefix(server.URL, "http")
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // connections that a test leaves open are cut
		b.Stop(ctx)
		server.Close()
	})
	return b
}

// peer is the other end of a connection.
type peer struct {
	t  *testing.T
	ws *websocket.Conn
}

func (b *bench) dial(t *testing.T) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, b.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(wire.MaxFrame)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &peer{t: t, ws: ws}
}

func (p *peer) raw(frame string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := p.ws.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		p.t.Fatalf("write %.80s: %v", frame, err)
	}
}

func (p *peer) send(m wire.Message) {
	p.t.Helper()
	raw, err := wire.Encode(m)
	if err != nil {
		p.t.Fatal(err)
	}
	p.raw(string(raw))
}

func (p *peer) read() (wire.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, raw, err := p.ws.Read(ctx)
	if err != nil {
		return nil, err
	}
	m, err := wire.DecodeFromServer(raw)
	_, free := m.(wire.APIResponse) // whose result is any JSON
	if !json.Valid(raw) || !free && strings.Contains(string(raw), ":null") {
		p.t.Errorf("frame with null or not JSON: %s", raw)
	}
	return m, err
}

// expect reads one frame and requires its type.
func expect[M wire.Message](p *peer) M {
	p.t.Helper()
	m, err := p.read()
	if err != nil {
		p.t.Fatalf("waiting for a frame: %v", err)
	}
	want, ok := m.(M)
	if !ok {
		p.t.Fatalf("got %T %+v, want %T", m, m, want)
	}
	return want
}

// expectClose reads until the connection ends and requires code and reason. Frames before it are errors.
func (p *peer) expectClose(code int, reason string) {
	p.t.Helper()
	m, err := p.read()
	if err == nil {
		p.t.Fatalf("got %T %+v, want close %d", m, m, code)
	}
	ce, ok := errors.AsType[websocket.CloseError](err)
	if !ok {
		p.t.Fatalf("connection ended with %v, want close %d %q", err, code, reason)
	}
	if int(ce.Code) != code || ce.Reason != reason {
		p.t.Fatalf("closed with %d %q, want %d %q", ce.Code, ce.Reason, code, reason)
	}
}

// join is a handshake to the end.
func (b *bench) join(t *testing.T, m wire.AgentRegister) (*peer, wire.RegisterAck) {
	t.Helper()
	p := b.dial(t)
	if !b.Settings.NoAuth {
		p.send(wire.AuthRequest{Token: "kat_static", ProtocolVersion: 1})
		expect[wire.AuthSuccess](p)
	}
	p.send(m)
	return p, expect[wire.RegisterAck](p)
}

func agent(id string, features ...string) wire.AgentRegister {
	return wire.AgentRegister{MessageID: "register-" + id, AgentID: id, Labels: []string{"linux"}, Version: "0.1.24", Features: features}
}

// settle waits until everything sent before on this connection has been applied: the answer to a request comes after it.
func (p *peer) settle() {
	p.t.Helper()
	p.send(wire.APIRequest{RequestID: "settle", Method: "settle"})
	for {
		m, err := p.read()
		if err != nil {
			p.t.Fatalf("waiting for the connection to settle: %v", err)
		}
		if answer, ok := m.(wire.APIResponse); ok && answer.RequestID == "settle" {
			return
		}
	}
}

func decodeAny(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("decode %q: %v", raw, err)
	}
	return v
}
