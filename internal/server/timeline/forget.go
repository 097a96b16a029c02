package timeline

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// ForgetRunTx deletes what happened in a run and the surroundings of its jobs.
func ForgetRunTx(ctx context.Context, tx *store.Tx, runID string, jobs []string) error {
	if err := tx.Do(ctx, "DELETE FROM run_events WHERE run_id = $1", runID); err != nil {
		return fmt.Errorf("forget events of run %s: %w", runID, err)
	}
	if err := store.DeleteAll(ctx, tx, "DELETE FROM job_contexts WHERE job_id", jobs); err != nil {
		return fmt.Errorf("forget contexts of run %s: %w", runID, err)
	}
	return nil
}
