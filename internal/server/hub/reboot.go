package hub

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

const (
	methodRequestReboot = "host.requestReboot"
	methodCancelReboot  = "host.cancelReboot"
)

// Bounds of the time for which the reboot of a host is awaited.
const (
	minReboot = time.Second
	maxReboot = 24 * time.Hour
)

// requestReboot notes that the agent's host reboots: from now on the agent is offered nothing, and the end of its connection
// is no loss. That lasts until the host's agent registers anew, or until the deadline.
func (c *conn) requestReboot(ctx context.Context, raw json.RawMessage) (any, error) {
	var q struct {
		DeadlineMs *float64 `json:"deadlineMs"`
	}
	if own := c.hub.Settings.OwnHost; own != "" && own == c.name() {
		return nil, Refuse("refusing to reboot the orchestrator host")
	}
	if err := decodeParams(raw, &q); err != nil {
		return nil, Refuse("%s: deadlineMs must be a number of milliseconds", methodRequestReboot)
	}
	deadline := c.hub.Settings.RebootDeadline.Milliseconds()
	if q.DeadlineMs != nil {
		if *q.DeadlineMs < float64(minReboot.Milliseconds()) || *q.DeadlineMs > float64(maxReboot.Milliseconds()) {
			return nil, Refuse("%s: deadlineMs must be from %d to %d milliseconds", methodRequestReboot, minReboot.Milliseconds(), maxReboot.Milliseconds())
		}
		deadline = int64(*q.DeadlineMs)
	}
	return struct{}{}, c.awaitReboot(ctx, c.hub.Clock.Millis()+deadline)
}

func (c *conn) awaitReboot(ctx context.Context, until int64) error {
	var noted bool
	err := c.hub.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		noted, err = fleet.AwaitReboot(ctx, tx, c.name(), c.id, until)
		return err
	})
	if err != nil {
		return err
	}
	if !noted {
		return Refuse("%s: the agent has connected anew meanwhile", methodRequestReboot)
	}
	c.setReboot(until)
	c.hub.Log.Info("host of agent is about to reboot", "agent", c.name(), "until", time.UnixMilli(until).UTC())
	return nil
}

// cancelReboot takes a request back. Without one nothing changes.
func (c *conn) cancelReboot(ctx context.Context, _ json.RawMessage) (any, error) {
	err := c.hub.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return fleet.EndReboot(ctx, tx, c.name()) })
	if err != nil {
		return nil, err
	}
	c.setReboot(0)
	c.hub.Log.Info("host of agent does not reboot", "agent", c.name())
	c.hub.Poke.Wake()
	return struct{}{}, nil
}

// setReboot keeps what the fleet knows of the connection's host, for the dispatcher, which asks for every job. Nobody else
// writes it there while the connection lasts: the next one of the agent ends the reboot.
func (c *conn) setReboot(until int64) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.rebootUntil = until
}

// giveUpReboots ends the reboots whose time is up.
func (h *Hub) giveUpReboots(ctx context.Context) error {
	now := h.Clock.Millis()
	due, err := fleet.OverdueReboots(ctx, h.DB.Read(), now)
	if err != nil {
		return err
	}
	var failed error
	for _, id := range due {
		var ended bool
		err := h.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			ended, err = fleet.GiveUpReboot(ctx, tx, id, now)
			return err
		})
		if ended {
			h.Log.Warn("host is not back from its reboot in time", "agent", id)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
