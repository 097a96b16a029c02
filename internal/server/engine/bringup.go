package engine

import (
	"context"

	"kici/internal/decide/lifecycle"
	"kici/internal/server/store"
)

// broughtUp takes the bring-ups of an agent that has connected out of the queue.
func (e *Engine) broughtUp(ctx context.Context, agentID string) error {
	waiting, err := store.Texts(ctx, e.db.Read(), selectBringUps, agentID)
	if err != nil {
		return err
	}
	for _, jobID := range waiting {
		err := e.onJob(ctx, jobID, func(_ lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
			return lifecycle.Needless(job, agentID, now)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const selectBringUps = `SELECT job_id FROM execution_jobs WHERE brings_up = $1 AND completed_at IS NULL AND status = 'pending' ORDER BY created_at, job_id`
