package engine

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// PurgeOthers forgets the ended runs of every routing key but one, and tells how many runs and jobs went. What still goes on
// stays, as does a run that was repeated by one that does.
func (e *Engine) PurgeOthers(ctx context.Context, routingKey string, keepers []RunKeeper) (runs, jobs int, err error) {
	for {
		batch, err := store.Texts(ctx, e.db.Read(), selectOthers, routingKey, forgetBatch)
		if err != nil {
			return runs, jobs, fmt.Errorf("find runs of other routing keys: %w", err)
		}
		before := runs
		for _, runID := range batch {
			went, had, err := e.purge(ctx, runID, keepers)
			if err != nil {
				return runs, jobs, fmt.Errorf("purge run %s: %w", runID, err)
			}
			if went {
				runs, jobs = runs+1, jobs+had
			}
		}
		if runs == before { // of a full batch, too: what is left is being repeated right now
			return runs, jobs, nil
		}
	}
}

func (e *Engine) purge(ctx context.Context, runID string, keepers []RunKeeper) (went bool, jobs int, err error) {
	err = e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM execution_jobs WHERE run_id = $1", runID).Scan(&jobs); err != nil {
			return err
		}
		went, err = e.forgetTx(ctx, tx, runID, e.clock.Millis(), keepers)
		return err
	})
	return went, jobs, err
}

const selectOthers = `SELECT run_id FROM execution_runs r WHERE completed_at IS NOT NULL AND routing_key <> $1
    AND NOT EXISTS (SELECT 1 FROM execution_runs c WHERE c.parent_run_id = r.run_id) ORDER BY created_at LIMIT $2`
