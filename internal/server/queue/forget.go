package queue

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// ForgetRunTx deletes the rows and the attempts of the jobs of a run.
func ForgetRunTx(ctx context.Context, tx *store.Tx, runID string, jobs []string) error {
	if err := store.DeleteAll(ctx, tx, "DELETE FROM dispatch_queue WHERE id", jobs); err != nil {
		return fmt.Errorf("forget queue of run %s: %w", runID, err)
	}
	if err := store.DeleteAll(ctx, tx, "DELETE FROM dispatch_attempts WHERE job_id", jobs); err != nil {
		return fmt.Errorf("forget attempts of run %s: %w", runID, err)
	}
	return nil
}
