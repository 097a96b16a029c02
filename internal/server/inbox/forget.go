package inbox

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// ForgetRunTx takes the name of a run from the row of the delivery that started it.
func ForgetRunTx(ctx context.Context, tx *store.Tx, orgID, deliveryID, runID string) error {
	err := tx.Do(ctx, "UPDATE event_log SET run_id = NULL WHERE org_id = $1 AND delivery_id = $2 AND run_id = $3", orgID, deliveryID, runID)
	if err != nil {
		return fmt.Errorf("forget run %s of delivery %s: %w", runID, deliveryID, err)
	}
	return nil
}
