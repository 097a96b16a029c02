package hub

import (
	"context"
	"errors"
	"time"

	"kici/internal/core/wire"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

const (
	// touchEvery is how often the fleet learns when an agent was last heard of.
	touchEvery = time.Minute
	// touchBatch bounds the agents of one transaction, so that a large fleet does not hold the only writer for long.
	touchBatch = 500
	// metricsLife is how long the metrics of an agent outlive its connection.
	metricsLife = 30 * time.Second
	// forgetEvery is how often agents that are gone for long are looked for.
	forgetEvery = 10 * time.Minute
	// maxMetrics bounds the series that one agent may have; further ones are cut off.
	maxMetrics = 500
)

// watch is one turn of the monitor.
func (h *Hub) watch(ctx context.Context) error {
	h.checkConnections()
	h.dropMetrics()
	h.retryDepartures(ctx)
	return errors.Join(h.touch(ctx), h.forget(ctx), h.giveUpReboots(ctx))
}

// checkConnections closes connections whose peer is silent for too long, or whose token has expired.
func (h *Hub) checkConnections() {
	woke := h.Pulse.Woke()
	now := h.Clock()
	h.mu.Lock()
	registered := make([]*conn, 0, len(h.agents))
	for _, c := range h.agents {
		registered = append(registered, c)
	}
	h.mu.Unlock()
	for _, c := range registered {
		if expires := c.token.ExpiresAt; expires != nil && *expires <= now.UnixMilli() {
			c.kick()
		} else {
			h.checkSilence(c, now, woke)
		}
	}
}

// checkSilence looks at one connection. While its frame is being applied, or its reader is held back, nobody listens:
// that is no silence of the agent.
func (h *Hub) checkSilence(c *conn, now, woke time.Time) {
	if c.busy.Load() {
		return
	}
	silence := silenceOf(now, h.epoch.Add(time.Duration(c.heard.Load())), woke)
	limit := h.Settings.DeadAfter
	if c.has(wire.FeatureFastBeat) {
		limit = h.Settings.FastDeadAfter
	}
	switch {
	case silence > limit:
		h.Log.Warn("agent is silent, connection closed", "agent", c.name(), "silence", silence)
		c.close(wire.CloseHeartbeat, wire.ReasonHeartbeatTimeout)
	case silence <= min(limit, h.Settings.UnhealthyAfter):
		c.warned = false
	case !c.warned:
		c.warned = true
		h.Log.Warn("agent is silent", "agent", c.name(), "silence", silence)
	}
}

// silenceOf is how long an agent has been silent while somebody listened: a process that did not run heard nobody, so
// silence begins anew when it wakes. woke is zero when it always ran.
func silenceOf(now, heard, woke time.Time) time.Duration {
	if woke.After(heard) {
		heard = woke
	}
	return now.Sub(heard)
}

// retryDepartures tells the store again of lost connections that it did not take.
func (h *Hub) retryDepartures(ctx context.Context) {
	h.mu.Lock()
	waiting := make([]string, 0, len(h.unsettled))
	for id := range h.unsettled {
		waiting = append(waiting, id)
	}
	h.mu.Unlock()
	for _, id := range waiting {
		h.retryDeparture(ctx, id)
	}
}

func (h *Hub) retryDeparture(ctx context.Context, agentID string) {
	lock := h.registeringLock(agentID)
	lock.Lock()
	defer lock.Unlock()
	h.mu.Lock()
	d, ok := h.unsettled[agentID] // the agent may have come back meanwhile
	h.mu.Unlock()
	if ok {
		h.settle(ctx, agentID, d)
	}
}

// touch writes when agents were last heard of, for those whose time in the fleet is old.
func (h *Hub) touch(ctx context.Context) error {
	h.mu.Lock()
	var due []*conn
	for _, c := range h.agents {
		if time.Duration(c.heard.Load()-c.touched) >= touchEvery {
			due = append(due, c)
		}
	}
	h.mu.Unlock()
	for len(due) > 0 {
		batch := due[:min(len(due), touchBatch)]
		due = due[len(batch):]
		seen := make(map[string]int64, len(batch))
		for _, c := range batch {
			c.touched = c.heard.Load()
			seen[c.name()] = h.wall(c.touched)
		}
		err := h.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return fleet.Touch(ctx, tx, seen) })
		if err != nil {
			return err
		}
	}
	return nil
}

// forget removes ephemeral agents that have been gone for long; they are many and none comes back.
func (h *Hub) forget(ctx context.Context) error {
	now := h.Clock()
	if now.Sub(h.forgotten) < forgetEvery {
		return nil
	}
	h.forgotten = now
	before := now.Add(-h.Settings.RosterTTL).UnixMilli()
	return h.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		_, err := fleet.Forget(ctx, tx, before)
		return err
	})
}

// snapshot is the latest metrics of one agent.
type snapshot struct {
	metrics []wire.Metric
	scaler  string
	gone    time.Time // zero while connected
}

// AgentMetrics is what one agent last said of itself.
type AgentMetrics struct {
	AgentID string
	Scaler  string // backend of the scaler that started it, or "stateful"
	Metrics []wire.Metric
}

// Metrics lists the latest metrics of every agent that is connected to this node or left a moment ago.
func (h *Hub) Metrics() []AgentMetrics {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]AgentMetrics, 0, len(h.metrics))
	for id, s := range h.metrics {
		out = append(out, AgentMetrics{AgentID: id, Scaler: s.scaler, Metrics: s.metrics})
	}
	return out
}

func (h *Hub) keepMetrics(c *conn, m wire.AgentMetrics) {
	scaler := "stateful"
	if s := c.agent.Load().spawn; s != nil {
		scaler = s.Backend
	}
	if len(m.Metrics) > maxMetrics {
		m.Metrics = m.Metrics[:maxMetrics]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.agents[c.name()] == c { // a superseded connection has only the past to tell
		h.metrics[c.name()] = snapshot{metrics: m.Metrics, scaler: scaler}
	}
}

// departLocked begins the last moments of an agent's metrics.
func (h *Hub) departLocked(agentID string) {
	if s, ok := h.metrics[agentID]; ok {
		s.gone = h.Clock()
		h.metrics[agentID] = s
	}
}

func (h *Hub) dropMetrics() {
	now := h.Clock()
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, s := range h.metrics {
		if !s.gone.IsZero() && now.Sub(s.gone) > metricsLife {
			delete(h.metrics, id)
		}
	}
}
