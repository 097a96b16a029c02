//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"kici/internal/core/wire"
)

// patience is how long a test waits for something that must happen. Nothing is judged by it but a hang.
const patience = time.Minute

// allFeatures are those of our own server.
var allFeatures = []string{wire.FeatureFrameAck, wire.FeatureStartFence, wire.FeatureFastBeat, wire.FeatureArtifacts}

// fakeServer accepts agents on a real socket; the test plays the server's part.
type fakeServer struct {
	t     testing.TB
	url   string
	conns chan *peer
}

func newFakeServer(t testing.TB) *fakeServer {
	s := &fakeServer{t: t, conns: make(chan *peer, 16)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		conn.SetReadLimit(wire.MaxFrame)
		p := &peer{t: t, conn: conn, changed: make(chan struct{}), gone: make(chan struct{}), gate: make(chan struct{})}
		close(p.gate)
		s.conns <- p
		p.read()
	}))
	t.Cleanup(srv.Close)
	s.url = "ws" + strings.TrimPrefix(srv.URL, "http")
	return s
}

// accept waits for the next connection.
func (s *fakeServer) accept() *peer {
	s.t.Helper()
	select {
	case p := <-s.conns:
		s.t.Cleanup(func() { p.conn.CloseNow() })
		return p
	case <-time.After(patience):
		s.t.Fatal("no agent connected")
		return nil
	}
}

// peer is one connection as the server sees it. Every frame is decoded strictly.
type peer struct {
	t    testing.TB
	conn *websocket.Conn

	mu      sync.Mutex
	frames  []wire.Message
	raws    []string
	taken   int // frames that expect has passed
	changed chan struct{}
	gone    chan struct{}
	closed  error
	gate    chan struct{} // reading waits for it to be closed
}

func (p *peer) read() {
	defer close(p.gone)
	for {
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		<-gate
		_, raw, err := p.conn.Read(context.Background())
		p.mu.Lock()
		if err != nil {
			p.closed = err
			p.mu.Unlock()
			return
		}
		m, err := wire.DecodeFromAgent(raw)
		if err != nil {
			p.t.Errorf("the agent sent %s: %v", raw, err)
		} else {
			p.frames, p.raws = append(p.frames, m), append(p.raws, string(raw))
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
}

// stopReading fills the agent's socket; the result lets the reading go on.
func (p *peer) stopReading() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.gate = gate
	return func() { close(gate) }
}

// expect waits for the next frame of the type that fits and passes over what comes before it.
func expect[M wire.Message](p *peer, fits ...func(M) bool) M {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		for p.taken < len(p.frames) {
			m, ok := p.frames[p.taken].(M)
			p.taken++
			if ok && (len(fits) == 0 || fits[0](m)) {
				p.mu.Unlock()
				return m
			}
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.gone:
			p.t.Fatalf("the connection ended while waiting for %T: %v\n%s", *new(M), p.closed, p.transcript())
		case <-deadline:
			p.t.Fatalf("no %T came:\n%s", *new(M), p.transcript())
		}
	}
}

// seen waits until a frame of the type that fits has come, at whatever place.
func seen[M wire.Message](p *peer, fits func(M) bool) {
	p.t.Helper()
	p.mu.Lock()
	taken := p.taken
	p.taken = 0
	p.mu.Unlock()
	expect(p, fits)
	p.mu.Lock()
	p.taken = max(p.taken, taken)
	p.mu.Unlock()
}

// heard gives the frames that have come, decoded and as they came. More may come meanwhile.
func (p *peer) heard() (frames []wire.Message, raws []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.frames), slices.Clone(p.raws)
}

// all lists the frames of a type that have come.
func all[M wire.Message](p *peer) (list []M) {
	frames, _ := p.heard()
	for _, f := range frames {
		if m, ok := f.(M); ok {
			list = append(list, m)
		}
	}
	return list
}

func (p *peer) transcript() string {
	_, raws := p.heard()
	var b strings.Builder
	for _, r := range raws {
		fmt.Fprintf(&b, "  %.300s\n", r)
	}
	return b.String()
}

func (p *peer) send(m wire.Message) {
	p.t.Helper()
	raw, err := wire.Encode(m)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.conn.Write(context.Background(), websocket.MessageText, raw); err != nil {
		p.t.Fatalf("send %T: %v", m, err)
	}
}

func (p *peer) ack(id string) { p.t.Helper(); p.send(wire.Ack{MessageID: id}) }

// register takes the agent's registration and confirms it with these features.
func (p *peer) register(features ...string) wire.AgentRegister {
	p.t.Helper()
	r := expect[wire.AgentRegister](p)
	p.send(wire.RegisterAck{AgentID: r.AgentID, Labels: r.Labels, Features: features})
	return r
}

// cut ends the connection without a word.
func (p *peer) cut() {
	p.conn.CloseNow()
	<-p.gone
}

// testAgent is an agent that runs until the test ends.
type testAgent struct {
	*Agent
	t    testing.TB
	stop context.CancelFunc
	done chan error
	log  *lockedBuffer

	reboots     chan struct{} // one for each reboot of the machine
	rebootFails atomic.Bool
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startAgent starts an agent whose runner plays the named scene; see runner_test.go.
func startAgent(t testing.TB, url, scene string, change ...func(*Config)) *testAgent {
	t.Helper()
	dir := t.TempDir()
	cfg := Config{
		OrchestratorURL: url,
		AgentID:         "agent-1",
		TempDir:         filepath.Join(dir, "tmp"),
		CacheDir:        filepath.Join(dir, "cache"),
		RunnerCommand:   []string{os.Args[0], "__scene", scene},
		Environ:         os.Environ(),
		ExecutionMode:   "bare-metal", // in a microVM the agent would close an address of this machine
	}
	for _, c := range change {
		c(&cfg)
	}
	if err := os.MkdirAll(cfg.TempDir, 0o700); err != nil {
		t.Fatal(err)
	}
	out := &lockedBuffer{}
	a, err := New(cfg, slog.New(slog.NewTextHandler(io.MultiWriter(out), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ta := &testAgent{Agent: a, t: t, stop: cancel, done: make(chan error, 1), log: out, reboots: make(chan struct{}, 8)}
	a.pause = func(int, float64) time.Duration { return time.Millisecond }
	a.guardMargin = time.Millisecond
	a.rebootMachine = func() error {
		ta.reboots <- struct{}{}
		if ta.rebootFails.Load() {
			return errors.New("the machine does not want to")
		}
		return nil
	}
	a.spareLife = 0
	force := make(chan struct{})
	go func() { ta.done <- a.serveUntil(ctx, force) }()
	t.Cleanup(func() {
		if j := a.running(); j != nil {
			j.cancel()
		}
		cancel()
		close(force)
		select {
		case <-ta.done:
		case <-time.After(patience):
			t.Error("the agent does not end")
		}
		if t.Failed() {
			t.Logf("log of the agent:\n%s", out)
		}
		if left, _ := filepath.Glob(filepath.Join(cfg.TempDir, "*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return ta
}

// taken is a job as tests see it.
type taken struct {
	done   <-chan struct{}
	cancel func()
}

// running is the agent's job, nil while it is idle.
func (a *Agent) running() *taken {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.job == nil {
		return nil
	}
	j := a.job
	return &taken{done: j.Done(), cancel: func() { j.Cancel("", true, 0) }}
}

// ended waits for the agent to end by itself.
func (a *testAgent) ended() error {
	a.t.Helper()
	select {
	case err := <-a.done:
		a.done <- err
		return err
	case <-time.After(patience):
		a.t.Fatal("the agent does not end")
		return nil
	}
}

// dispatch makes a job without a checkout. config is merged into its configuration.
func dispatch(job string, config map[string]any, change ...func(*wire.JobDispatch)) wire.JobDispatch {
	conf := map[string]any{"workflowName": "ci", "name": "build", "baseJobName": "build", "checkout": false,
		"source": map[string]any{"file": ".kici/workflows/ci.ts"}, "event": map[string]any{"type": "push", "payload": map[string]any{}}}
	for k, v := range config {
		conf[k] = v
	}
	raw, err := json.Marshal(conf)
	if err != nil {
		panic(err)
	}
	d := wire.JobDispatch{MessageID: "d-" + job, RunID: "run-1", JobID: job, Ref: "main", JobConfig: raw, Timestamp: 1}
	for _, c := range change {
		c(&d)
	}
	return d
}

// terminal waits for the terminal status of the job.
func terminal(p *peer) (wire.JobStatus, wire.JobData) {
	p.t.Helper()
	m := expect(p, func(m wire.JobStatus) bool { return m.State.Terminal() })
	return m, wire.ParseJobData(m.Data)
}

// lines is the log of one step as it came.
func lines(p *peer, step int) (list []string) {
	for _, c := range all[wire.LogChunk](p) {
		if c.StepIndex == step {
			list = append(list, c.Lines...)
		}
	}
	return list
}
