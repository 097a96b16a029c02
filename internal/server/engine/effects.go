package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/kit/service"
	"kici/internal/server/outbox"
	"kici/internal/server/store"
)

// runTopic is the outbox topic of what one run's transaction means for another run. The target is that run.
const runTopic = "run"

// runEffect is a command on another run: one of its kinds.
type runEffect struct {
	Cancel   *ci.Reason `json:"cancel,omitempty"`   // the run makes room for another
	GiveSlot string     `json:"giveSlot,omitempty"` // a job whose run has its place in its group now
	// RejectHold is a hold that a newer job replaces, for the reason Why.
	RejectHold string     `json:"rejectHold,omitempty"`
	Why        *ci.Reason `json:"why,omitempty"`
}

// effectTick is how often commands on runs are looked for without a wake-up.
const effectTick = time.Second

// effectBatch bounds one look.
const effectBatch = 200

func (e *Engine) tellRun(ctx context.Context, tx *store.Tx, runID string, effect runEffect, now int64) error {
	tx.After(e.follow.Wake)
	return outbox.Put(ctx, tx, runTopic, runID, effect, now)
}

// Follow is the loop that applies what the end or the beginning of one run means for others.
func (e *Engine) Follow(ctx context.Context) error {
	return service.Every(ctx, e.log, "run effects", effectTick, e.follow, e.FollowOnce)
}

// FollowOnce is one turn of Follow.
func (e *Engine) FollowOnce(ctx context.Context) error {
	due, err := outbox.Due(ctx, e.db.Read(), runTopic, e.clock.Millis(), effectBatch)
	if err != nil {
		return err
	}
	return each(ctx, due, func(effect outbox.Effect) error {
		if err := e.followOne(ctx, effect); err != nil {
			return fmt.Errorf("effect on run %s: %w", effect.Target, err)
		}
		return nil
	})
}

// followOne applies an effect and removes it in one transaction, so it happens once whichever node is faster.
func (e *Engine) followOne(ctx context.Context, effect outbox.Effect) error {
	var what runEffect
	if err := json.Unmarshal(effect.Payload, &what); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		mine, err := outbox.Done(ctx, tx, effect.ID)
		if err != nil || !mine {
			return err
		}
		if what.RejectHold != "" {
			run, h, err := lockHold(ctx, tx, what.RejectHold)
			if err != nil {
				return err
			}
			return e.resolve(ctx, tx, run, h, ci.HoldRejected, "server", what.Why, e.clock.Millis())
		}
		return e.command(ctx, tx, effect.Target, func(ctx context.Context, tx *store.Tx, run lifecycle.Run, now int64) (lifecycle.Outcome, error) {
			if what.Cancel != nil {
				open, err := loadOpen(ctx, tx, run.ID)
				return lifecycle.CancelRun(run, open, lifecycle.Cancel{By: "server", Reason: *what.Cancel, At: now}, now), err
			}
			job, err := loadJob(ctx, tx, what.GiveSlot)
			return lifecycle.SlotGiven(job), err
		})
	})
}
