package events

import (
	"context"
	"errors"
	"time"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// unknownJob is what an agent reads about a job whose run is gone.
const unknownJob = "Unknown job context"

// Emit stores what a job tells others; the job is its agent's. It has committed when it returns. Who tells it follows
// from the job, never from the frame. An answer with an error is for the job to read; RequestID is left to the caller.
func (r *Room) Emit(ctx context.Context, job engine.Owned, m wire.EventEmit) (wire.EventEmitResponse, error) {
	from, err := engine.SourceOf(ctx, r.DB.Read(), job.RunID)
	if errors.Is(err, engine.ErrRunNotFound) {
		return wire.EventEmitResponse{Error: unknownJob}, nil
	}
	if err != nil {
		return wire.EventEmitResponse{}, err
	}
	e := Event{Name: m.EventName, Payload: m.Payload, OrgID: from.OrgID, Source: sourceOf(from, job.JobID), ChainDepth: from.ChainDepth + 1}
	if m.Target != nil {
		e.TargetRepos = m.Target.Repos
	}
	var answer wire.EventEmitResponse
	err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		answer.DeliveryID, err = r.EmitTx(ctx, tx, e)
		return err
	})
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return r.refused(e, refusal), nil
	}
	return answer, err
}

// handLife is how long an event that a person tells is kept at most: whoever does so waits for what comes of it.
const handLife = time.Hour

// EmitByHand stores what a person tells others: no run caused it, and it is the first of a chain. It has committed when
// it returns its id. Error: *Refusal.
func (r *Room) EmitByHand(ctx context.Context, e Event) (id string, err error) {
	e.ChainDepth, e.life = 0, min(handLife, r.Settings.TTL)
	err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		id, err = r.EmitTx(ctx, tx, e)
		return err
	})
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.reason != "" {
		r.Dropped(refusal.reason, 1)
	}
	return id, err
}

// refused answers an event that was not taken. A chain that was cut is news; a flood is counted only.
func (r *Room) refused(e Event, why *Refusal) wire.EventEmitResponse {
	if why.reason != "" {
		r.Dropped(why.reason, 1)
	}
	if why.reason == reasonChainDepth {
		r.Log.Warn("event not written", "event", e.Name, "run", e.Source.RunID, "job", e.Source.JobID, "err", why)
	}
	return wire.EventEmitResponse{Error: why.Error()}
}

func sourceOf(from engine.Source, jobID string) Source {
	return Source{RoutingKey: from.RoutingKey, Repo: from.Repo, Workflow: from.Workflow, RunID: from.RunID, JobID: jobID}
}
