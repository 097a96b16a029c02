package cache

import (
	"context"
	"errors"
	"fmt"

	"kici/internal/server/store"
)

// ForgetRunTx removes what belongs to one run alone: its artifacts, the caches that it did not share, and what it began to
// put. Blobs go with a later sweep, once no link leads to them. What runs share stays, whoever made it.
func (c *Cache) ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error {
	list, err := entries(ctx, tx, selectOfRun, runID)
	for _, e := range list {
		err = errors.Join(err, c.remove(ctx, tx, e))
	}
	if err != nil {
		return fmt.Errorf("forget caches of run %s: %w", runID, err)
	}
	uploads, err := uploadsOf(ctx, tx, selectUploadsOfRun, runID)
	for _, u := range uploads {
		err = errors.Join(err, c.abandon(ctx, tx, u))
	}
	if err != nil {
		return fmt.Errorf("forget uploads of run %s: %w", runID, err)
	}
	return nil
}

const selectOfRun = `SELECT ` + entryColumns + ` FROM cache_entries WHERE run_id = $1 AND run_id <> ''`

const selectUploadsOfRun = `SELECT id, path, target FROM cache_uploads WHERE run_id = $1 AND run_id <> ''`
