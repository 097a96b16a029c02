package hub

import (
	"context"
	"errors"

	"kici/internal/core/wire"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// Resume takes up the connections of this node again after other nodes may have taken it for dead: they marked its
// agents as disconnected and let their jobs wait for them. An agent that has connected elsewhere meanwhile is let go.
func (h *Hub) Resume(ctx context.Context) error {
	h.mu.Lock()
	open := make([]*conn, 0, len(h.agents))
	for _, c := range h.agents {
		open = append(open, c)
	}
	h.mu.Unlock()
	var failed error
	for _, c := range open {
		failed = errors.Join(failed, h.resume(ctx, c))
	}
	h.Poke.Wake()
	h.Arrived.Wake()
	return failed
}

func (h *Hub) resume(ctx context.Context, c *conn) error {
	lock := h.registeringLock(c.name())
	lock.Lock()
	defer lock.Unlock()
	h.mu.Lock()
	current := h.agents[c.name()] == c
	h.mu.Unlock()
	if !current {
		return nil
	}
	var mine bool
	err := h.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		mine, err = fleet.Return(ctx, tx, c.name(), c.id)
		return err
	})
	if err != nil {
		return err
	}
	if !mine {
		h.Log.Info("agent is connected to another node, connection closed", "agent", c.name(), "connection", c.id)
		c.close(wire.CloseGoingAway, wire.ReasonSuperseded)
		return nil
	}
	return h.retake(ctx, c)
}

// retake gives an agent back the jobs that it answered for and whose connection never broke. One that it has ended
// meanwhile is on its way in a frame that comes after this.
func (h *Hub) retake(ctx context.Context, c *conn) error {
	rows, err := queue.OfAgent(ctx, h.DB.Read(), c.name())
	if err != nil {
		return err
	}
	var held []wire.InFlightJob
	for _, row := range rows {
		if row.Started || row.AckDeadline == 0 {
			held = append(held, wire.InFlightJob{JobID: row.JobID, RunID: row.RunID})
		}
	}
	cancels, err := h.Engine.Connected(ctx, c.name(), held, false)
	for _, one := range cancels {
		c.answer(one)
	}
	return err
}
