package servertest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/kit/service"
)

// redial is the pause of an agent between two connections.
const redial = 10 * time.Millisecond

// Agent runs nothing: it answers every dispatch as a job of one step that succeeds at once. With the features frame-ack
// and start-fence it keeps what is not acknowledged, plays it again after every reconnection, and starts nothing before
// its job.ack is acknowledged; without them it sends each frame once.
type Agent struct {
	ID       string
	Labels   []string // {"linux"} when empty
	Slots    int
	Features []string
	Chunks   int // log chunks of a job, of one line each
	Ledger   *Ledger
	// Silent leaves dispatches unanswered.
	Silent bool
	// Hold lets a started job run on until Release.
	Hold bool

	home *Home
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	conn   *websocket.Conn // nil while disconnected
	wake   service.Poke    // there is something to write
	out    [][]byte        // to be written on conn
	owed   []owed          // frames that are not acknowledged, in order
	jobs   []wire.InFlightJob
	begun  map[string]bool    // jobs of this life that have started
	held   []wire.InFlightJob // jobs that have started and run on
	closes []int              // codes with which connections ended
}

// owed is a frame that the server has not acknowledged.
type owed struct {
	id   string
	raw  []byte
	m    wire.Message
	conn *websocket.Conn // on which it was written last
}

// Ledger is what agents did, over all their lives.
type Ledger struct {
	tell func(what string)

	mu     sync.Mutex
	starts map[string]int      // by job
	lines  map[string][]string // acknowledged log lines by job
}

// NewLedger makes a ledger. tell, which may be nil, is called for everything that happens: dispatch, start, chunk, end,
// ack. It must not block.
func NewLedger(tell func(what string)) *Ledger {
	if tell == nil {
		tell = func(string) {}
	}
	return &Ledger{tell: tell, starts: map[string]int{}, lines: map[string][]string{}}
}

// Employ runs the agent until the test ends or it is killed. It comes back whenever it loses the server.
func (h *Home) Employ(t testing.TB, a *Agent) *Agent {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a.home, a.stop, a.done = h, cancel, make(chan struct{})
	a.wake, a.begun = service.NewPoke(), map[string]bool{}
	if a.Ledger == nil {
		a.Ledger = NewLedger(nil)
	}
	if len(a.Labels) == 0 {
		a.Labels = []string{"linux"}
	}
	go func() {
		defer close(a.done)
		for ctx.Err() == nil {
			a.connect(ctx)
			service.Sleep(ctx, redial)
		}
	}()
	t.Cleanup(a.Kill)
	return a
}

// Kill ends the agent as the death of its process does: the connection breaks, and everything it knew is gone.
func (a *Agent) Kill() {
	a.stop()
	<-a.done
}

// Closes gives the codes with which the server closed this agent's connections, oldest first; 1006 for a cut.
func (a *Agent) Closes() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.closes)
}

// connect serves one connection until it ends.
func (a *Agent) connect(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, a.home.AgentURL(), &websocket.DialOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // the server is down
	}
	conn.SetReadLimit(wire.MaxFrame)
	var writer sync.WaitGroup
	writer.Go(func() { a.write(ctx, conn) })
	defer writer.Wait()
	defer cancel()
	defer conn.CloseNow()
	a.greet(conn)
	for {
		_, raw, err := conn.Read(ctx)
		if err != nil {
			a.disconnected(err)
			return
		}
		m, err := wire.DecodeFromServer(raw)
		if err != nil {
			panic(fmt.Sprintf("the server sent an invalid frame: %v", err))
		}
		a.handle(conn, m)
	}
}

func (a *Agent) disconnected(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn, a.out = nil, nil
	code := websocket.CloseStatus(err)
	if code < 0 {
		code = websocket.StatusAbnormalClosure
	}
	a.closes = append(a.closes, int(code))
}

// write is the connection's writer.
func (a *Agent) write(ctx context.Context, conn *websocket.Conn) {
	for {
		a.mu.Lock()
		var batch [][]byte
		if a.conn == conn {
			batch, a.out = a.out, nil
		}
		a.mu.Unlock()
		for _, raw := range batch {
			if conn.Write(ctx, websocket.MessageText, raw) != nil {
				return // the reader sees the end, too
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
	}
}

// greet begins the handshake.
func (a *Agent) greet(conn *websocket.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = conn
	a.sendLocked(wire.AuthRequest{Token: a.home.Token, ProtocolVersion: wire.Version})
	a.sendLocked(wire.AgentRegister{MessageID: uuid.NewString(), AgentID: a.ID, Labels: a.Labels, MaxConcurrency: max(a.Slots, 1),
		Features: a.Features, InFlightJobs: slices.Clone(a.jobs)})
}

func (a *Agent) sendLocked(m wire.Message) {
	raw, err := wire.Encode(m)
	if err != nil {
		panic(err) // every message of this file can be encoded
	}
	a.out = append(a.out, raw)
	a.wake.Wake()
}

func (a *Agent) keeps() bool { return slices.Contains(a.Features, wire.FeatureFrameAck) }

// oweLocked sends a frame that is kept until it is acknowledged.
func (a *Agent) oweLocked(id string, m wire.Message) {
	if !a.keeps() {
		a.sendLocked(m)
		return
	}
	raw, err := wire.Encode(m)
	if err != nil {
		panic(err)
	}
	a.owed = append(a.owed, owed{id: id, raw: raw, m: m, conn: a.conn})
	if a.conn != nil {
		a.out = append(a.out, raw)
		a.wake.Wake()
	}
}

func (a *Agent) handle(conn *websocket.Conn, m wire.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != conn {
		return
	}
	switch m := m.(type) {
	case wire.RegisterAck:
		for i := range a.owed {
			a.owed[i].conn = conn
			a.out = append(a.out, a.owed[i].raw)
		}
		a.wake.Wake()
	case wire.JobDispatch:
		a.dispatched(m)
	case wire.Ack:
		a.acknowledged(conn, m)
	case wire.JobCancel:
		a.cancelled(m)
	}
}

func (a *Agent) dispatched(m wire.JobDispatch) {
	a.Ledger.tell("dispatch")
	if a.Silent {
		return
	}
	known := slices.ContainsFunc(a.jobs, func(j wire.InFlightJob) bool { return j.JobID == m.JobID })
	ack := wire.JobAck{MessageID: uuid.NewString(), RunID: m.RunID, JobID: m.JobID, Timestamp: now()}
	if !known {
		a.jobs = append(a.jobs, wire.InFlightJob{RunID: m.RunID, JobID: m.JobID})
	}
	a.oweLocked(ack.MessageID, ack)
	if !a.keeps() {
		a.start(m.RunID, m.JobID)
	}
}

// acknowledged forgets what the server has, and starts the job whose acceptance it was.
func (a *Agent) acknowledged(conn *websocket.Conn, m wire.Ack) {
	a.Ledger.tell("ack")
	at := slices.IndexFunc(a.owed, func(o owed) bool { return o.id == m.MessageID })
	if at < 0 {
		return
	}
	named := a.owed[at].m
	var rest []owed
	for i, o := range a.owed {
		through := m.Through && i < at && o.conn == conn && sameLog(o.m, named)
		if i != at && !through {
			rest = append(rest, o)
			continue
		}
		if chunk, ok := o.m.(wire.LogChunk); ok {
			a.Ledger.keep(chunk)
		}
	}
	a.owed = rest
	switch named := named.(type) {
	case wire.JobAck:
		a.start(named.RunID, named.JobID)
	case wire.JobStatus:
		if named.State.Terminal() {
			a.forget(named.JobID)
		}
	}
}

func sameLog(a, b wire.Message) bool {
	x, ok := a.(wire.LogChunk)
	y, also := b.(wire.LogChunk)
	return ok && also && x.JobID == y.JobID && x.StepIndex == y.StepIndex
}

func (l *Ledger) keep(c wire.LogChunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[c.JobID] = append(l.lines[c.JobID], c.Lines...)
}

func (a *Agent) forget(jobID string) {
	a.jobs = slices.DeleteFunc(a.jobs, func(j wire.InFlightJob) bool { return j.JobID == jobID })
	delete(a.begun, jobID)
}

// cancelled gives a job up that is no longer this agent's. Agents without frame-ack say so of one that they have.
func (a *Agent) cancelled(m wire.JobCancel) {
	if !a.keeps() && slices.ContainsFunc(a.jobs, func(j wire.InFlightJob) bool { return j.JobID == m.JobID }) {
		a.reportJob(m.RunID, m.JobID, ci.JobCancelled, "")
	}
	a.forget(m.JobID)
	a.owed = slices.DeleteFunc(a.owed, func(o owed) bool { return jobOf(o.m) == m.JobID })
}

func jobOf(m wire.Message) string {
	switch m := m.(type) {
	case wire.JobAck:
		return m.JobID
	case wire.JobStatus:
		return m.JobID
	case wire.StepStatus:
		return m.JobID
	case wire.LogChunk:
		return m.JobID
	}
	return ""
}

// start is the whole life of a job. A job that runs already is not started again.
func (a *Agent) start(runID, jobID string) {
	if a.begun[jobID] {
		return
	}
	a.begun[jobID] = true
	a.Ledger.begin(jobID)
	a.reportJob(runID, jobID, ci.JobRunning, "")
	a.reportStep(runID, jobID, ci.StepRunning)
	for i := range a.Chunks {
		m := wire.LogChunk{MessageID: uuid.NewString(), RunID: runID, JobID: jobID, Lines: []string{fmt.Sprint("line ", i)}, Timestamp: now()}
		a.oweLocked(m.MessageID, m)
		a.Ledger.tell("chunk")
	}
	if a.Hold {
		a.held = append(a.held, wire.InFlightJob{RunID: runID, JobID: jobID})
		return
	}
	a.end(runID, jobID)
}

// end reports the success of a job.
func (a *Agent) end(runID, jobID string) {
	a.reportStep(runID, jobID, ci.StepSuccess)
	a.reportJob(runID, jobID, ci.JobSuccess, `{"durationMs":1,"stepResults":[{"name":"s","status":"success","durationMs":1}]}`)
	if !a.keeps() {
		a.forget(jobID)
	}
	a.Ledger.tell("end")
}

// Release ends the jobs that were held, and holds no more.
func (a *Agent) Release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.held {
		a.end(j.RunID, j.JobID)
	}
	a.Hold, a.held = false, nil
}

func (a *Agent) reportJob(runID, jobID string, state ci.JobStatus, data string) {
	m := wire.JobStatus{MessageID: uuid.NewString(), RunID: runID, JobID: jobID, State: state, Timestamp: now()}
	if data != "" {
		m.Data = json.RawMessage(data)
	}
	a.oweLocked(m.MessageID, m)
}

func (a *Agent) reportStep(runID, jobID string, state ci.StepStatus) {
	m := wire.StepStatus{MessageID: uuid.NewString(), RunID: runID, JobID: jobID, StepName: "s", State: state, Timestamp: now()}
	a.oweLocked(m.MessageID, m)
}

func now() int64 { return time.Now().UnixMilli() }

// Starts gives how often every job was started.
func (l *Ledger) Starts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.starts)
}

// Lines gives the acknowledged log lines of every job, in the order of their acknowledgement.
func (l *Ledger) Lines() map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := maps.Clone(l.lines)
	for job, lines := range out {
		out[job] = slices.Clone(lines)
	}
	return out
}

func (l *Ledger) begin(jobID string) {
	l.mu.Lock()
	l.starts[jobID]++
	l.mu.Unlock()
	l.tell("start")
}
