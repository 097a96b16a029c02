package secrets

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"kici/internal/server/store"
)

// Output is a secret output that a run has at this moment.
type Output struct {
	JobID     string
	Key       string
	CreatedAt int64  // epoch ms
	Value     string // "" unless it was revealed
	Err       error  // why it was not, for people
	envelope  string
}

// Outputs lists the secret outputs of a run that goes on, by job and key, without their values. A key narrows the list to
// those of that name.
func (s *Store) Outputs(ctx context.Context, runID, key string) ([]Output, error) {
	rows, err := s.db.Read().QueryContext(ctx, selectOutputList, runID, key)
	if err != nil {
		return nil, fmt.Errorf("list secret outputs of run %s: %w", runID, err)
	}
	defer rows.Close()
	var all []Output
	for rows.Next() {
		var o Output
		if err := rows.Scan(&o.JobID, &o.Key, &o.envelope, &o.CreatedAt); err != nil {
			return nil, fmt.Errorf("list secret outputs of run %s: %w", runID, err)
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Output) int { return cmp.Or(cmp.Compare(a.JobID, b.JobID), cmp.Compare(a.Key, b.Key)) })
	return all, rows.Err()
}

// Reveal lists them with their values. The audit log tells of it before anybody sees one: without its row there are none.
func (s *Store) Reveal(ctx context.Context, by Actor, runID, key string) ([]Output, error) {
	if s.keys == nil {
		return nil, ErrNotConfigured
	}
	all, err := s.Outputs(ctx, runID, key)
	if err != nil {
		return nil, err
	}
	e := AuditEntry{Action: "secret-outputs.reveal", Context: "run:" + runID, RoutingKey: by.RoutingKey, Outcome: outcomeAllowed,
		RunID: runID, UserID: by.UserID, Role: by.Role}
	for i, o := range all {
		e.Keys = append(e.Keys, o.Key)
		value, err := s.keys.Open(o.envelope, outputPlace(runID))
		if err != nil {
			all[i].Err = fmt.Errorf("it cannot be read with the present master key: %w", err)
		}
		all[i].Value = string(value)
	}
	slices.Sort(e.Keys)
	e.Keys = slices.Compact(e.Keys)
	if err := s.audit(ctx, e); err != nil {
		return nil, fmt.Errorf("reveal secret outputs of run %s: %w", runID, err)
	}
	return all, nil
}

// Names keeps how the secret outputs of runs are called, which may be told when their values are long gone.
type Names struct{}

// ForgetRunTx deletes the names of a run that is forgotten.
func (Names) ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error {
	if err := tx.Do(ctx, deleteOutputNames, runID); err != nil {
		return fmt.Errorf("forget names of secret outputs of run %s: %w", runID, err)
	}
	return nil
}

const (
	selectOutputList = `SELECT job_id, output_key, encrypted_value, created_at FROM run_secret_outputs
		WHERE run_id = $1 AND ($2 = '' OR output_key = $2)`
	deleteOutputNames = `DELETE FROM run_secret_output_names WHERE run_id = $1`
)
