package engine

import (
	"context"
	"errors"

	"kici/internal/server/store"
)

// repeatPause is how long a run that was repeated is not repeated again, milliseconds: a double click makes one run.
const repeatPause = 5000

// ErrRepeated says that a run was repeated a moment ago.
var ErrRepeated = errors.New("the run was repeated a moment ago")

// admitRepetition locks the run that a new one repeats: two repetitions that are asked for at once come one after the
// other, and it is not forgotten meanwhile.
func admitRepetition(ctx context.Context, tx *store.Tx, r Registration, now int64) error {
	var id string
	err := tx.QueryRowContext(ctx, "SELECT run_id FROM execution_runs WHERE run_id = $1"+tx.ForUpdate(), r.ParentRunID).Scan(&id)
	if isNoRows(err) {
		return ErrRunNotFound
	}
	if err != nil {
		return err
	}
	var repeated bool
	err = tx.QueryRowContext(ctx, selectRecentRepetition, r.ParentRunID, r.RunID, now-repeatPause).Scan(&repeated)
	if err == nil && repeated {
		return ErrRepeated
	}
	return err
}

// selectRecentRepetition leaves out the run itself, which may be registered twice.
const selectRecentRepetition = `SELECT EXISTS (SELECT 1 FROM execution_runs WHERE parent_run_id = $1 AND run_id <> $2 AND created_at > $3)`
