package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/engine"
	"kici/internal/server/logs"
	"kici/internal/server/timeline"
)

// applyContext bounds the time that a frame may take in the store. It does not end with the connection: what an agent
// has sent is applied even when it leaves at once.
func (c *conn) applyContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.hub.ctx, c.hub.Settings.ApplyTimeout)
}

// apply takes a frame of a registered agent, or several words about one job. Several that cannot be taken together are
// taken one after the other.
func (c *conn) apply(frames ...wire.Message) error {
	if len(frames) > 1 && c.together(frames) {
		return nil
	}
	for _, m := range frames {
		if err := c.applyOne(m); err != nil {
			return err
		}
	}
	return nil
}

// together takes several words about one job at once, and reports whether it did.
func (c *conn) together(words []wire.Message) bool {
	ctx, cancel := c.applyContext()
	defer cancel()
	jobID, _ := jobOfWord(words[0])
	if o, err := c.ownership(ctx, jobID); err != nil || o.Past && answers(words) { // an answer that comes too late is answered
		return false
	}
	return c.reported(ctx, words...) == nil
}

// withLog takes words about a job and the only thing that its log says in between at once, and reports whether it did.
func (c *conn) withLog(chunks, words []wire.Message) bool {
	if len(chunks) != 1 || len(words) == 0 {
		return false
	}
	ctx, cancel := c.applyContext()
	defer cancel()
	m, ok := chunks[0].(wire.LogChunk)
	o, err := c.ownership(ctx, m.JobID)
	if !ok || err != nil || o.Past || c.awaitEnd(ctx, words) != nil {
		return false
	}
	if !c.hub.Logs.AppendAlong(ctx, chunkOf(o, m), func(along logs.Along) error {
		return c.hub.Engine.ReportedAlong(ctx, c.name(), o, along, words...)
	}) {
		return false
	}
	c.acknowledgeChunk(m)
	c.taken(words)
	return true
}

// applyOne takes one frame. When the store fails, the frame stays unacknowledged and the connection is closed, so that the
// agent sends it again; see poisoned for a frame that would fail every time.
func (c *conn) applyOne(m wire.Message) error {
	ctx, cancel := c.applyContext()
	defer cancel()
	err := c.handle(ctx, m)
	if err == nil || errors.Is(err, errRefused) {
		return err
	}
	if errors.Is(err, engine.ErrNotOwner) {
		return c.violation(m.MessageType())
	}
	if c.poisoned(ctx, m, err) {
		return nil
	}
	c.hub.Log.Error("frame not applied, the agent will send it again", "agent", c.name(), "type", m.MessageType(), "err", err)
	return c.refuse(wire.CloseInternal, wire.ReasonInternal)
}

func (c *conn) handle(ctx context.Context, m wire.Message) error {
	switch m := m.(type) {
	case wire.Heartbeat, wire.ConfigAck, wire.FleetBundleChunk, wire.FleetBundleError:
		return nil // signs of life, and answers to what was not asked
	case wire.AgentRegister:
		return c.register(m)
	case wire.AuthRequest:
		c.answer(wire.ErrorFrame{Code: wire.CodeInvalidMessage, Message: wire.TextInvalidMessage})
		return c.refuse(wire.CloseInvalid, wire.ReasonInvalid)
	case wire.AgentStatus:
		c.hub.reported(c, m.ActiveJobs)
		return nil
	case wire.AgentLog:
		c.hub.Log.Info("agent log", "agent", c.name(), "lines", excerpt(m.Lines))
		return nil
	case wire.AgentMetrics:
		c.hub.keepMetrics(c, m)
		return nil
	case wire.JobAck:
		return c.jobAck(ctx, m)
	case wire.JobReject:
		return c.jobReject(ctx, m)
	case wire.JobStatus, wire.StepStatus:
		return c.reported(ctx, m)
	case wire.LogChunk:
		return c.logChunk(ctx, m)
	case wire.JobHeartbeat:
		return c.owner(ctx, m.JobID, func(engine.Owned) error { return c.hub.Engine.JobBeat(ctx, c.name(), m) })
	case wire.RunEvent:
		return c.runEvent(ctx, m)
	case wire.JobContext:
		return c.jobContext(ctx, m)
	}
	return c.bridge(ctx, m)
}

// ownership is what the engine said of a job a moment ago.
type ownership struct {
	engine.Owned
	until time.Time
}

// A busy step sends hundreds of chunks a second: what the engine says of its job holds for a moment. The engine itself
// decides again whenever a frame changes something.
const (
	ownershipLife = 2 * time.Second
	maxOwnerships = 64
)

func (c *conn) ownership(ctx context.Context, jobID string) (engine.Owned, error) {
	if c.withdrawn[jobID] {
		return engine.Owned{JobID: jobID, Past: true}, nil
	}
	now := c.hub.Clock()
	if known, ok := c.owned[jobID]; ok && now.Before(known.until) {
		return known.Owned, nil
	}
	if o, ok := c.given.take(jobID, now); ok {
		c.own(o)
		return o, nil
	}
	o, err := c.hub.Engine.Owned(ctx, c.name(), strings.Clone(jobID)) // what is kept must not hold the whole frame
	if err != nil || o.Past {
		delete(c.owned, jobID)
		return o, err
	}
	c.own(o)
	return o, nil
}

// own keeps for a while that a job is the agent's.
func (c *conn) own(o engine.Owned) { c.owned = owning(c.owned, o, c.hub.Clock()) }

func owning(owned map[string]ownership, o engine.Owned, now time.Time) map[string]ownership {
	if owned == nil || len(owned) >= maxOwnerships {
		owned = map[string]ownership{}
	}
	owned[o.JobID] = ownership{Owned: o, until: now.Add(ownershipLife)}
	return owned
}

// given are jobs that this node has just claimed for the agent and sent to it, until it answers: nobody need look whose they are.
type given struct {
	mu   sync.Mutex
	jobs map[string]ownership
}

func (g *given) note(o engine.Owned, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs = owning(g.jobs, o, now)
}

func (g *given) take(jobID string, now time.Time) (o engine.Owned, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.jobs[jobID]
	delete(g.jobs, jobID)
	return known.Owned, ok && now.Before(known.until)
}

// owner runs do for frames about a job that is the agent's. Frames about a job that once was the agent's are dropped.
func (c *conn) owner(ctx context.Context, jobID string, do func(engine.Owned) error) error {
	o, err := c.ownership(ctx, jobID)
	if err != nil || o.Past {
		return err
	}
	return do(o)
}

// violation counts a frame about somebody else's job.
func (c *conn) violation(typ string) error {
	now := c.hub.Clock()
	c.hub.Log.Warn("frame about a job of another agent", "agent", c.name(), "type", typ)
	recent := c.violations[:0]
	for _, at := range c.violations {
		if now.Sub(at) < c.hub.Settings.ViolationWindow {
			recent = append(recent, at)
		}
	}
	c.violations = append(recent, now)
	if len(c.violations) >= c.hub.Settings.Violations {
		return c.refuse(wire.CloseGoingAway, wire.ReasonOwnership)
	}
	return nil
}

// jobAck takes the acceptance of a dispatch. One that comes too late is answered by a cancel and never acknowledged,
// since an agent with start-fence takes the acknowledgement for the permission to start.
func (c *conn) jobAck(ctx context.Context, m wire.JobAck) error {
	ack, err := c.hub.Engine.Acked(ctx, c.name(), m.RunID, m.JobID)
	notOwner := errors.Is(err, engine.ErrNotOwner)
	if err != nil && !notOwner {
		return err
	}
	if notOwner || ack.Fenced {
		c.cancelStray(m.RunID, m.JobID)
		return err
	}
	if ack.Job.JobID != "" {
		c.own(ack.Job)
	}
	c.acknowledge(m.MessageID)
	return nil
}

func (c *conn) cancelStray(runID, jobID string) {
	c.answer(wire.JobCancel{MessageID: newID(), RunID: runID, JobID: jobID, Reason: wire.ReasonNotAssigned})
}

// jobReject takes the refusal of a dispatch. The agent is held off before the job is offered again, or it would get the
// same job at once.
func (c *conn) jobReject(ctx context.Context, m wire.JobReject) error {
	c.hub.holdOff(c, m.Reason)
	delete(c.owned, m.JobID)
	if err := c.hub.Engine.Rejected(ctx, c.name(), m.JobID, m.Reason); err != nil {
		return err
	}
	c.hub.Poke.Wake()
	c.acknowledge(m.MessageID)
	return nil
}

// reported takes what the agent says of the state of a job and of its steps.
func (c *conn) reported(ctx context.Context, words ...wire.Message) error {
	if err := c.awaitEnd(ctx, words); err != nil {
		return err
	}
	jobID, _ := jobOfWord(words[0])
	err := c.owner(ctx, jobID, func(job engine.Owned) error { return c.hub.Engine.Reported(ctx, c.name(), job, words...) })
	if err == nil {
		c.taken(words)
	}
	return err
}

// awaitEnd waits, before the end of a job is taken, until everything that the job asked for has been done: a cache that it filled
// is there for the next job.
func (c *conn) awaitEnd(ctx context.Context, words []wire.Message) error {
	if jobID, _ := jobOfWord(words[0]); ends(words) {
		return c.awaitLane(ctx, jobID)
	}
	return nil
}

// taken acknowledges words about a job that have been taken, or dropped since the job is the agent's no more: they would be sent
// for ever otherwise.
func (c *conn) taken(words []wire.Message) {
	for _, word := range words {
		if about, _ := aboutOf(word); about.messageID != "" {
			c.acknowledge(about.messageID)
		}
	}
	if jobID, _ := jobOfWord(words[0]); ends(words) {
		delete(c.owned, jobID)
		c.hub.freed(c, jobID)
	}
}

func (c *conn) logChunk(ctx context.Context, m wire.LogChunk) error {
	o, err := c.ownership(ctx, m.JobID)
	if err != nil {
		return err
	}
	if !o.Past && len(m.Lines) > 0 {
		if err := c.hub.Logs.Append(ctx, chunkOf(o, m)); err != nil {
			return fmt.Errorf("store log of job %s: %w", m.JobID, err)
		}
	}
	c.acknowledgeChunk(m)
	return nil
}

func chunkOf(o engine.Owned, m wire.LogChunk) logs.Chunk {
	return logs.Chunk{RunID: o.RunID, JobID: o.JobID, JobName: o.JobName, StepIndex: m.StepIndex, MessageID: m.MessageID, At: m.Timestamp,
		Lines: m.Lines}
}

func (c *conn) runEvent(ctx context.Context, m wire.RunEvent) error {
	if m.JobID == "" { // nobody can tell whether the run is any of the agent's business
		return nil
	}
	return c.owner(ctx, m.JobID, func(o engine.Owned) error {
		c.hub.telemetry.add(&timeline.Event{RunID: o.RunID, JobID: o.JobID, At: m.TimestampMs, Type: strings.Clone(m.EventType),
			Source: "agent", DurationMs: m.DurationMs, Metadata: slices.Clone(m.Metadata)}, nil)
		return nil
	})
}

func (c *conn) jobContext(ctx context.Context, m wire.JobContext) error {
	if s := c.agent.Load().spawn; s != nil {
		raw, err := json.Marshal(map[string]string{"backendType": s.Backend, "scalerName": s.Scaler})
		if err != nil {
			return err
		}
		m.Context.ScalerContext = raw
	}
	return c.owner(ctx, m.JobID, func(o engine.Owned) error {
		c.hub.telemetry.add(nil, &surroundings{runID: o.RunID, jobID: o.JobID, at: c.hub.Clock.Millis(), env: m.Context})
		return nil
	})
}

// maxAgentLog bounds the bytes of an agent's own log that one record of the server's log carries.
const maxAgentLog = 16 << 10

// excerpt joins lines up to maxAgentLog.
func excerpt(lines []string) string {
	text := strings.Join(lines, "\n")
	if len(text) > maxAgentLog {
		text = ci.CleanText(text[:maxAgentLog]) + "…"
	}
	return text
}

// holdOff stops offering work to an agent that refused some: until it has room again, or for good when it drains.
func (h *Hub) holdOff(c *conn, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.hold != wire.RejectDraining {
		c.hold = reason
	}
}

// freed ends the hold-off of a busy agent one of whose jobs has ended.
func (h *Hub) freed(c *conn, jobID string) {
	h.mu.Lock()
	if c.hold == wire.RejectBusy {
		c.hold = ""
	}
	delete(c.withdrawn, jobID)
	h.mu.Unlock()
	h.Poke.Wake()
}

// release lets an agent be offered work again that need not end a job after all.
func (h *Hub) release(c *conn, jobID string) {
	h.mu.Lock()
	delete(c.withdrawn, jobID)
	h.mu.Unlock()
	h.Poke.Wake()
}

// reported takes an agent's own count of its jobs. It is advice: it ends a hold-off and wakes the dispatcher, whose
// truth is the queue.
func (h *Hub) reported(c *conn, active int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.active = active
	if active == 0 {
		clear(c.withdrawn)
		if c.hold == wire.RejectBusy {
			c.hold = ""
		}
	}
	if active < c.agent.Load().maxConcurrency {
		h.Poke.Wake()
	}
}
