package queue

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// ForgetRunTx deletes the rows of a run and the attempts of its jobs.
func ForgetRunTx(ctx context.Context, tx *store.Tx, runID string, jobs []string) error {
	if err := tx.Do(ctx, "DELETE FROM dispatch_queue WHERE run_id = $1", runID); err != nil {
		return fmt.Errorf("forget queue of run %s: %w", runID, err)
	}
	if err := store.DeleteAll(ctx, tx, "DELETE FROM dispatch_attempts WHERE job_id", jobs); err != nil {
		return fmt.Errorf("forget attempts of run %s: %w", runID, err)
	}
	return nil
}
