package engine

import (
	"context"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// SecretOutputs keeps what jobs give to their dependants in secret, as long as their run goes on.
type SecretOutputs interface {
	// NewRunKey makes the key pair for which agents seal the outputs of a run, its private half as it is stored. Both are ""
	// when nothing is kept.
	NewRunKey() (public, private string, err error)
	// StoreOutputsTx takes the outputs of a job as its agent sealed them, opens them with the private key of the run, and names
	// those that it had to drop.
	StoreOutputsTx(ctx context.Context, tx *store.Tx, runID, jobID, private string, sealed map[string]wire.SecretOutput) (dropped []string, err error)
	// ForgetRunTx deletes the outputs of a run.
	ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error
}

// runKey is a key pair of a run, the private half as it is stored. It stands in the row of the run from its beginning to its
// end.
type runKey struct{ public, private string }

// newRunKey makes the key of a run whose jobs may have secret outputs.
func (e *Engine) newRunKey() (k runKey, err error) {
	if e.outputs != nil {
		k.public, k.private, err = e.outputs.NewRunKey()
	}
	return k, err
}

// RunPublicKey gives a run that began without a key one, since its server had no keyring then, and tells the public half.
// Whatever node asks, it has one. It is "" for a run that has ended, whose jobs give nothing any more.
func (e *Engine) RunPublicKey(ctx context.Context, runID string) (public string, err error) {
	k, err := e.newRunKey()
	if err == nil {
		err = e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			if err := tx.Do(ctx, giveRunKey, runID, nullText(k.public), nullText(k.private), e.clock.Millis()); err != nil {
				return err
			}
			// Another node may have been faster.
			return tx.All(ctx, store.Ask{Query: selectPublicKey, Args: []any{runID}, Row: func(r store.Row) error { return r.Scan(&public) }})
		})
	}
	if err != nil {
		return "", fmt.Errorf("give run %s a key: %w", runID, err)
	}
	return public, nil
}

// RunKeyMade tells when the key of a run was made, exists=false when the run has none, as after its end.
func (e *Engine) RunKeyMade(ctx context.Context, runID string) (at int64, exists bool, err error) {
	err = e.db.Read().All(ctx, store.Ask{Query: selectKeyMade, Args: []any{runID}, Row: func(r store.Row) error {
		exists = true
		return r.Scan(&at)
	}})
	if err != nil {
		return 0, false, fmt.Errorf("look for the key of run %s: %w", runID, err)
	}
	return at, exists, nil
}

// RotateRunKeys seals the private keys of runs with the current master key.
func (e *Engine) RotateRunKeys(ctx context.Context, keys secrets.Resealer) (secrets.Resealed, error) {
	done, err := sealedRunKeys.Rotate(ctx, e.db, keys, 0)
	if err != nil {
		return done, fmt.Errorf("rotate keys of runs: %w", err)
	}
	return done, nil
}

// keepSecretOutputs stores the secret outputs of a job that succeeded, before anything follows from its end.
func (e *Engine) keepSecretOutputs(ctx context.Context, tx *store.Tx, runID string, m wire.JobStatus) error {
	if m.State != ci.JobSuccess || len(m.SecretOutputs) == 0 || e.outputs == nil {
		return nil
	}
	var private string
	if err := tx.QueryRowContext(ctx, selectPrivateKey, runID).Scan(&private); err != nil {
		return fmt.Errorf("read the key of run %s: %w", runID, err)
	}
	dropped, err := e.outputs.StoreOutputsTx(ctx, tx, runID, m.JobID, private, m.SecretOutputs)
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

// sealedRunKeys are few and each is young: rows do not say of which version they are, and all are sealed anew.
var sealedRunKeys = secrets.Sealed{Keys: 1,
	Page: `SELECT run_id, sealed_private_key FROM execution_runs
WHERE sealed_private_key IS NOT NULL AND run_id > $2 ORDER BY run_id LIMIT $1`,
	Update: `UPDATE execution_runs SET sealed_private_key = $1 WHERE sealed_private_key = $2 AND run_id = $3`,
	Place:  func([]string) string { return secrets.RunKeyPlace }}

const (
	giveRunKey = `UPDATE execution_runs SET public_key = $2, sealed_private_key = $3, key_made_at = $4
WHERE run_id = $1 AND public_key IS NULL AND completed_at IS NULL`

	selectPublicKey  = `SELECT coalesce(public_key, '') FROM execution_runs WHERE run_id = $1`
	selectPrivateKey = `SELECT coalesce(sealed_private_key, '') FROM execution_runs WHERE run_id = $1`
	selectKeyMade    = `SELECT coalesce(key_made_at, created_at) FROM execution_runs WHERE run_id = $1 AND public_key IS NOT NULL`
)
