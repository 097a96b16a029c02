package hub

import (
	"context"
	"errors"

	"kici/internal/core/wire"
	"kici/internal/server/cache"
	"kici/internal/server/engine"
)

// noArtifacts is what a job reads where nothing keeps artifacts.
const noArtifacts = "Artifact storage not configured on this orchestrator"

// artifact answers a question about an artifact, in the order of the job's frames and beside the reader. What is refused
// is answered with the reason.
func (c *conn) artifact(ctx context.Context, jobID string, refused func(text string) wire.Message,
	do func(context.Context, engine.Owned) (wire.Message, error)) error {
	job, ok, err := c.owns(ctx, jobID, refused(errNotOwner))
	if err != nil || !ok {
		return err
	}
	if c.hub.Cache == nil {
		c.answer(refused(noArtifacts))
		return nil
	}
	c.aside(job.JobID, func(ctx context.Context) {
		answer, err := c.stillOwned(ctx, job, do)
		if refusal, ok := errors.AsType[*cache.Refusal](err); ok {
			answer = refused(refusal.Message)
		} else if errors.Is(err, engine.ErrNotOwner) {
			answer = refused(errNotOwner)
		} else if err != nil {
			c.hub.Log.Warn("artifact not kept", "agent", c.name(), "run", job.RunID, "job", job.JobID, "err", err)
			answer = refused(apiTrouble)
		}
		c.answer(answer)
	})
	return nil
}

// stillOwned asks once more whose the job is: a connection believes it for a moment after it was told, and what an attempt
// that has been given up still sends must not become the job's artifact.
func (c *conn) stillOwned(ctx context.Context, job engine.Owned, do func(context.Context, engine.Owned) (wire.Message, error)) (wire.Message, error) {
	if err := c.ownedStill(ctx, job); err != nil {
		return nil, err
	}
	return do(ctx, job)
}

func (c *conn) ownedStill(ctx context.Context, job engine.Owned) error {
	now, err := c.hub.Engine.Owned(ctx, c.name(), job.JobID)
	if err == nil && now.Past {
		err = engine.ErrNotOwner
	}
	return err
}
