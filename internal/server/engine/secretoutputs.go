package engine

import (
	"context"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/store"
)

// SecretOutputs keeps what jobs give to their dependants in secret, as long as their run goes on.
type SecretOutputs interface {
	// NewRunKey makes the key for which agents seal the outputs of a run, and gives what keeps it with the run; nil when nothing
	// is kept.
	NewRunKey() (keep func(ctx context.Context, tx *store.Tx, runID string) error, err error)
	// StoreOutputsTx takes the outputs of a job as its agent sealed them, and names those that it had to drop.
	StoreOutputsTx(ctx context.Context, tx *store.Tx, runID, jobID string, sealed map[string]wire.SecretOutput) (dropped []string, err error)
	// ForgetRunTx deletes what is kept of a run.
	ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error
}

// newRunKey makes the key of a run whose jobs may have secret outputs.
func (e *Engine) newRunKey(failure *ci.InitFailure) (keep func(ctx context.Context, tx *store.Tx, runID string) error, err error) {
	if e.outputs != nil && failure == nil {
		keep, err = e.outputs.NewRunKey()
	}
	if keep == nil {
		keep = func(context.Context, *store.Tx, string) error { return nil }
	}
	return keep, err
}

// keepSecretOutputs stores the secret outputs of a job that succeeded, before anything follows from its end.
func (e *Engine) keepSecretOutputs(ctx context.Context, tx *store.Tx, runID string, m wire.JobStatus) error {
	if m.State != ci.JobSuccess || len(m.SecretOutputs) == 0 || e.outputs == nil {
		return nil
	}
	dropped, err := e.outputs.StoreOutputsTx(ctx, tx, runID, m.JobID, m.SecretOutputs)
	if len(dropped) > 0 {
		tx.After(func() {
			e.log.Warn("secret outputs dropped: not sealed for this run, or too large", "run", runID, "job", m.JobID, "keys", dropped)
		})
	}
	return err
}

// forgetSecretOutputs deletes them with the end of their run.
func (e *Engine) forgetSecretOutputs(ctx context.Context, tx *store.Tx, runID string) error {
	if e.outputs == nil {
		return nil
	}
	return e.outputs.ForgetRunTx(ctx, tx, runID)
}

// Over tells whether a run has ended, or was never there.
func (e *Engine) Over(ctx context.Context, runID string) (over bool, err error) {
	err = e.db.Read().QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM execution_runs WHERE run_id = $1 AND completed_at IS NULL)`,
		runID).Scan(&over)
	if err != nil {
		return false, fmt.Errorf("look for run %s: %w", runID, err)
	}
	return over, nil
}
