package secrets

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/kit/seal"
	"kici/internal/server/store"
)

// maxOutputs bounds the secret outputs of one job. Further ones are dropped.
const maxOutputs = 256

// RunKeyPlace is where private keys of runs lie, for their envelopes.
const RunKeyPlace = "ephemeral-private-key"

func outputPlace(runID string) string { return "secret-output:" + runID }

// NewRunKey makes the key pair of a run, for which agents seal its secret outputs: the public half is the base64 of its
// SubjectPublicKeyInfo, the private one is sealed. Making it takes longer than a transaction should. Without a keyring both
// are "".
func (s *Store) NewRunKey() (public, private string, err error) {
	if s.keys == nil {
		return "", "", nil
	}
	pair, err := seal.NewKeyPair()
	if err == nil {
		private, _, err = s.keys.Seal([]byte(pair.Private), RunKeyPlace)
	}
	if err != nil {
		return "", "", fmt.Errorf("make the key of a run: %w", err)
	}
	return pair.Public, private, nil
}

// AskForJob asks for the key of a job's run, "" when it has none yet, and whether the job's organisation has secrets that all of
// its jobs get.
func AskForJob(jobID string, public *string, flat *bool) store.Ask {
	return store.Ask{Query: selectForJob, Args: []any{jobID, DefaultScope, sentinel}, Row: func(r store.Row) error { return r.Scan(public, flat) }}
}

// StoreOutputsTx takes the secret outputs that a job's agent sealed for the key of its run, and keeps them for the jobs that
// need it. What cannot be decrypted, named or kept is dropped, since a job that succeeded does not fail for it; the names
// come back, sorted.
func (s *Store) StoreOutputsTx(ctx context.Context, tx *store.Tx, runID, jobID, runKey string, sealed map[string]wire.SecretOutput) (dropped []string, err error) {
	keys := slices.Sorted(maps.Keys(sealed))
	if s.keys == nil {
		return keys, nil
	}
	private, err := s.keys.Open(runKey, RunKeyPlace)
	if err != nil {
		return keys, nil
	}
	open := opener{private: string(private), agreed: map[string]seal.Agreement{}}
	for i, key := range keys {
		value, err := open.output(key, sealed[key])
		if err != nil || i >= maxOutputs {
			dropped = append(dropped, key)
			continue
		}
		if err := s.putOutput(ctx, tx, runID, jobID, key, value); err != nil {
			return nil, fmt.Errorf("store secret outputs of job %s: %w", jobID, err)
		}
	}
	return dropped, nil
}

func (s *Store) putOutput(ctx context.Context, tx *store.Tx, runID, jobID, key string, value []byte) error {
	envelope, version, err := s.keys.Seal(value, outputPlace(runID))
	if err != nil {
		return err
	}
	if err = tx.Do(ctx, upsertOutput, runID, jobID, key, envelope, version, s.clock.Millis()); err != nil {
		return err
	}
	return tx.Do(ctx, insertOutputName, runID, jobID, key)
}

// opener opens the outputs of one job. Its agent uses one key for all of them.
type opener struct {
	private string
	agreed  map[string]seal.Agreement // by the agent's public key
}

func (o opener) output(key string, sealed wire.SecretOutput) ([]byte, error) {
	if key == "" || utf8.RuneCountInString(key) > maxName || key != ci.CleanText(key) {
		return nil, fmt.Errorf("%w: output must be named by 1 to %d characters", ErrInvalid, maxName)
	}
	agreed, known := o.agreed[sealed.AgentPublicKey]
	if !known {
		var err error
		if agreed, err = seal.Agree(o.private, sealed.AgentPublicKey, seal.RunOutputs); err != nil {
			return nil, err
		}
		o.agreed[sealed.AgentPublicKey] = agreed
	}
	value, err := agreed.Open(sealed.Encrypted)
	if err != nil {
		return nil, err
	}
	return value, checkValue(string(value))
}

// OutputsOf gives the secret outputs of a run's jobs by key, for a job that needs them. Of equal keys the one of the job
// that is named last counts.
func (s *Store) OutputsOf(ctx context.Context, runID string, jobs []string) (map[string]string, error) {
	if len(jobs) == 0 || s.keys == nil {
		return map[string]string{}, nil
	}
	chosen, err := s.chooseOutputs(ctx, runID, jobs)
	if err != nil {
		return nil, fmt.Errorf("read secret outputs of run %s: %w", runID, err)
	}
	values := make(map[string]string, len(chosen))
	for key, o := range chosen {
		value, err := s.keys.Open(o.envelope, outputPlace(runID))
		if err != nil {
			return nil, fmt.Errorf("read secret output %s of run %s: %w", key, runID, err)
		}
		values[key] = string(value)
	}
	return values, nil
}

// output is one sealed secret output.
type output struct {
	place    int // of its job among those that were asked for
	envelope string
}

func (s *Store) chooseOutputs(ctx context.Context, runID string, jobs []string) (map[string]output, error) {
	places := make(map[string]int, len(jobs))
	for i, id := range jobs {
		places[id] = i
	}
	rows, err := s.db.Read().QueryContext(ctx, selectOutputs, runID)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	chosen := map[string]output{}
	for rows.Next() {
		var jobID, key string
		var o output
		if err := rows.Scan(&jobID, &key, &o.envelope); err != nil {
			return nil, err
		}
		place, asked := places[jobID]
		if before, there := chosen[key]; !asked || there && before.place > place {
			continue
		}
		o.place = place
		chosen[key] = o
	}
	return chosen, rows.Err()
}

// ForgetRunTx deletes the secret outputs of a run, in the transaction that ends it. Their names stay as long as the run is
// kept; see Names.
func (s *Store) ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error {
	if err := tx.Do(ctx, deleteOutputs, runID); err != nil {
		return fmt.Errorf("forget secrets of run %s: %w", runID, err)
	}
	return nil
}

const (
	selectForJob = `SELECT coalesce(r.public_key, ''),
		EXISTS (SELECT 1 FROM scoped_secrets s WHERE s.org_id = r.org_id AND s.scope = $2 AND s.key <> $3)
		FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id WHERE j.job_id = $1`
	upsertOutput = `INSERT INTO run_secret_outputs (run_id, job_id, output_key, encrypted_value, key_version, created_at)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (run_id, job_id, output_key) DO UPDATE SET encrypted_value = $4, key_version = $5, created_at = $6`
	insertOutputName = `INSERT INTO run_secret_output_names (run_id, job_id, output_key) VALUES ($1, $2, $3)
		ON CONFLICT (run_id, job_id, output_key) DO NOTHING`
	selectOutputs = `SELECT job_id, output_key, encrypted_value FROM run_secret_outputs WHERE run_id = $1`
	deleteOutputs = `DELETE FROM run_secret_outputs WHERE run_id = $1`
)
