package queue

import (
	"context"

	"kici/internal/server/store"
)

// Withdraw takes a row back from its agent and out of the line. The job gets a new row when it may run again; its
// attempts so far stay known.
func Withdraw(ctx context.Context, tx *store.Tx, jobID, why string, now int64) error {
	err := tx.DoOne(ctx, store.ErrUnchanged, "DELETE FROM dispatch_queue WHERE id = $1 AND status IN ('dispatched', 'recovering')", jobID)
	if err != nil {
		return err
	}
	return endAttempt(ctx, tx, jobID, why, now)
}
