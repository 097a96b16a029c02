package events

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// ForgetRunTx deletes the events that a run and its jobs told of.
func (r *Room) ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error {
	_, lost, err := remove(ctx, tx, deleteOfRun, runID)
	if err != nil {
		return fmt.Errorf("forget events of run %s: %w", runID, err)
	}
	if lost > 0 {
		tx.After(func() { r.Dropped(reasonExpired, lost) })
	}
	return nil
}

const deleteOfRun = `DELETE FROM kici_events WHERE source_run_id = $1 RETURNING processed OR dlq_at IS NOT NULL`
