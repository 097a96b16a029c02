package engine

import (
	"context"
	"errors"

	"kici/internal/decide/lifecycle"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// reboots tells whether the host of an agent is about to reboot now. One that was started for a piece of work never comes back,
// whatever its host does.
func (e *Engine) reboots(agent fleet.Agent) bool {
	return !agent.SingleUse() && agent.RebootsAt(e.clock.Millis())
}

// hostIsBack ends the reboot of a host whose agent has registered on a new connection, once its jobs are settled.
func (e *Engine) hostIsBack(ctx context.Context, agent fleet.Agent) error {
	if agent.RebootUntil == 0 {
		return nil
	}
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error { return fleet.EndReboot(ctx, tx, agent.ID) })
}

// recoveryExpired ends the wait for an agent that did not come back.
func (e *Engine) recoveryExpired(ctx context.Context, row queue.Row) error {
	agent, err := fleet.Get(ctx, e.db.Read(), row.AgentID)
	if err != nil && !errors.Is(err, fleet.ErrUnknown) {
		return err
	}
	reboots := err == nil && !agent.Connected() && e.reboots(agent)
	return e.onJob(ctx, row.JobID, func(run lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
		return lifecycle.RecoveryExpired(run, job, reboots, now)
	})
}
