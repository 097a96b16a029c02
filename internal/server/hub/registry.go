package hub

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/kit/collate"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

var seed = maphash.MakeSeed()

func (h *Hub) registeringLock(agentID string) *sync.Mutex {
	return &h.registering[maphash.String(seed, agentID)%uint64(len(h.registering))]
}

// collides tells whether the agent id is live under another token.
func (h *Hub) collides(c *conn, agentID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.agents[agentID]
	return current != nil && current != c && current.token.ID != c.token.ID
}

// install makes a connection the current one of its agent; the one before is closed.
func (h *Hub) install(c *conn, r *registration) {
	h.mu.Lock()
	old := h.agents[r.id]
	c.agent.Store(r)
	h.agents[r.id], h.byID[c.id] = c, c
	c.touched = c.heard.Load() // the fleet has just been written
	delete(h.unsettled, r.id)  // what was lost with the old connection is settled by this one
	if at, ok := h.placeLocked(r.id); ok {
		h.sorted[at] = c
	} else {
		h.sorted = slices.Insert(h.sorted, at, c)
	}
	if old != nil && old != c {
		delete(h.byID, old.id)
	}
	h.mu.Unlock()
	if old != nil && old != c {
		h.Log.Info("agent connected again, older connection closed", "agent", r.id, "old", old.id, "new", c.id)
		old.backlog.supersede()
		old.close(wire.CloseGoingAway, wire.ReasonSuperseded)
	}
}

// placeLocked finds where an agent stands, or would stand, in the order of names. The order is kept rather than made
// anew: comparing names is slow, and after a restart thousands of agents come at once.
func (h *Hub) placeLocked(agentID string) (int, bool) {
	return slices.BinarySearchFunc(h.sorted, agentID, func(c *conn, id string) int { return byName(c.name(), id) })
}

// byName orders names as people do. Names that this order takes for equal are still told apart.
func byName(a, b string) int { return cmp.Or(collate.Compare(a, b), strings.Compare(a, b)) }

func (h *Hub) setReady(c *conn) {
	h.mu.Lock()
	c.ready = true
	h.mu.Unlock()
	h.Poke.Wake()
	h.Arrived.Wake()
}

// departure is a lost connection whose loss has not been taken by the store yet.
type departure struct {
	connection string
	left       bool // the agent closed it in order
	gone       bool // the fleet knows; the engine does not yet
}

// leave takes a connection that has ended out of the hub. Only when it was its agent's current one is anything lost.
func (h *Hub) leave(c *conn) {
	r := c.agent.Load()
	if r == nil {
		h.mu.Lock()
		delete(h.conns, c)
		h.mu.Unlock()
		return
	}
	lock := h.registeringLock(r.id)
	lock.Lock()
	defer lock.Unlock()
	if h.remove(c, r.id) {
		h.Log.Info("agent disconnected", "agent", r.id, "connection", c.id)
		h.settle(h.ctx, r.id, departure{connection: c.id, left: c.left})
	}
}

// remove reports whether the agent is lost with the connection. A node that stops leaves its agents' jobs to them.
func (h *Hub) remove(c *conn, agentID string) (lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
	if h.agents[agentID] != c {
		return false
	}
	delete(h.agents, agentID)
	delete(h.byID, c.id)
	if at, ok := h.placeLocked(agentID); ok {
		h.sorted = slices.Delete(h.sorted, at, at+1)
	}
	h.departLocked(agentID)
	return !h.stopping
}

// settle tells the fleet and the engine of a lost connection. When the store does not take it, the monitor tries again:
// a job whose agent is gone must not wait for its own limit. The agent's registering lock is held.
func (h *Hub) settle(ctx context.Context, agentID string, d departure) {
	ctx, cancel := context.WithTimeout(ctx, h.Settings.ApplyTimeout)
	defer cancel()
	err := h.lose(ctx, agentID, &d)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.unsettled, agentID)
		return
	}
	h.unsettled[agentID] = d
	h.Log.Error("loss of an agent not stored, trying again", "agent", agentID, "err", err)
}

func (h *Hub) lose(ctx context.Context, agentID string, d *departure) error {
	if !d.gone {
		changed := false
		err := h.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			changed, err = fleet.Gone(ctx, tx, agentID, d.connection, h.Clock.Millis())
			return err
		})
		if err != nil || !changed { // not changed: it is connected to another node by now
			return err
		}
		d.gone = true
	}
	return h.Engine.Lost(ctx, agentID, d.connection, d.left)
}

// Ready lists the agents that may be offered work, by name: none once the hub stops. The slice is the caller's.
func (h *Hub) Ready() []dispatch.Agent {
	now := h.Clock.Millis()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		return nil
	}
	out := make([]dispatch.Agent, 0, len(h.sorted))
	for _, c := range h.sorted {
		if !c.takesLocked(now) {
			continue
		}
		r := c.agent.Load()
		out = append(out, dispatch.Agent{
			Agent:        label.Agent{ID: r.id, Labels: r.labels, Mandatory: r.mandatory},
			ConnectionID: c.id, Platform: r.platform, Arch: r.arch, MaxConcurrency: r.maxConcurrency, KnowsUnroutable: r.newer,
		})
	}
	return out
}

// Takes tells whether the agent of that connection may be offered work.
func (h *Hub) Takes(connectionID string) bool {
	now := h.Clock.Millis()
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.byID[connectionID]
	return c != nil && !h.stopping && c.takesLocked(now)
}

func (c *conn) takesLocked(now int64) bool {
	return c.ready && c.hold == "" && len(c.withdrawn) == 0 && c.rebootUntil <= now && !c.isClosing()
}

// Active is the number of jobs that the agents connected to this node said they have.
func (h *Hub) Active() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.agents {
		n += c.active
	}
	return n
}

// Dispatch queues the frame of a job on that connection. It never waits for the agent.
func (h *Hub) Dispatch(_ context.Context, connectionID, jobName string, frame wire.JobDispatch) error {
	h.mu.Lock()
	c := h.byID[connectionID]
	h.mu.Unlock()
	if c == nil {
		return fmt.Errorf("dispatch job %s: %w", frame.JobID, errClosed)
	}
	c.given.note(engine.Owned{RunID: frame.RunID, JobID: frame.JobID, JobName: jobName}, h.Clock())
	if err := c.send(frame); err != nil {
		return fmt.Errorf("dispatch job %s: %w", frame.JobID, err)
	}
	return nil
}

// Send sends a frame that the agent did not ask for, or asked for long ago, and reports whether it is connected here.
func (h *Hub) Send(agentID string, m wire.Message) bool {
	c := h.current(agentID)
	return c != nil && c.send(m) == nil
}

// Drop closes the connection of an agent that left a dispatch unanswered, and reports whether it was connected here. It
// is offered nothing from then on; it may connect anew.
func (h *Hub) Drop(agentID, reason string) bool {
	c := h.current(agentID)
	if c == nil || c.isClosing() {
		return false
	}
	c.close(wire.CloseNoAck, reason)
	return true
}

// current is the connection of an agent. One that registers at this moment is waited for, so that nothing is sent to it
// before its register.ack, and nobody takes it for gone.
func (h *Hub) current(agentID string) *conn {
	lock := h.registeringLock(agentID)
	lock.Lock()
	defer lock.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agents[agentID]
}

// Kick closes, for good, the connections of a token that was revoked or has expired, and reports whether there were any.
func (h *Hub) Kick(tokenID string) bool { return len(h.kickAll(tokenID)) > 0 }

func (h *Hub) kickAll(tokenID string) (kicked []*conn) {
	h.mu.Lock()
	for c := range h.conns {
		if c.token.ID == tokenID {
			kicked = append(kicked, c)
		}
	}
	h.mu.Unlock()
	for _, c := range kicked {
		c.kick()
	}
	return kicked
}

// KickToken does the same, and returns how many there were once they have ended, or when ctx ends.
func (h *Hub) KickToken(ctx context.Context, tokenID string) int {
	kicked := h.kickAll(tokenID)
	for _, c := range kicked {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
	return len(kicked)
}

// kick tells an agent that its token no longer holds.
func (c *conn) kick() {
	c.hub.Log.Warn("agent's token revoked or expired, connection closed", "agent", c.name(), "token", c.token.ID)
	c.answer(wire.AuthFailure{Reason: wire.ReasonTokenRevoked})
	c.close(wire.CloseUnauthorized, wire.ReasonTokenRevoked)
}

// Connection is a registered connection of this node, for people. Times are epoch milliseconds.
type Connection struct {
	AgentID      string
	ConnectionID string
	Remote       string
	Since        int64
	LastSeenAt   int64
	Version      string
	Features     []string
	Hold         string // why it is offered no work: busy, draining, or ""
	ActiveJobs   int    // as the agent said last
	Scaler       string // name of the pool that it belongs to, or ""
}

// Connections lists the registered connections of this node, by agent name.
func (h *Hub) Connections() []Connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Connection, 0, len(h.agents))
	for _, c := range h.sorted {
		r := c.agent.Load()
		one := Connection{
			AgentID: r.id, ConnectionID: c.id, Remote: c.remote, Since: c.since, LastSeenAt: h.wall(c.heard.Load()),
			Version: r.version, Features: r.features, Hold: c.hold, ActiveJobs: c.active,
		}
		if r.spawn != nil {
			one.Scaler = r.spawn.Scaler
		}
		out = append(out, one)
	}
	return out
}

// wall turns a time after the hub's epoch into epoch milliseconds.
func (h *Hub) wall(afterEpoch int64) int64 {
	now := h.Clock()
	return now.UnixMilli() - (int64(now.Sub(h.epoch))-afterEpoch)/1e6
}
