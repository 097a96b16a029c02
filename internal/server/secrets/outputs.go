package secrets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/kit/seal"
	"kici/internal/server/store"
)

// maxOutputs bounds the secret outputs of one job. Further ones are dropped.
const maxOutputs = 256

// orphanAge is how old the key of a run is before anybody asks whether its run still goes on.
const orphanAge = 24 * time.Hour

// runKeyPlace is where private keys of runs lie, for their envelopes.
const runKeyPlace = "ephemeral-private-key"

func outputPlace(runID string) string { return "secret-output:" + runID }

// NewRunKey makes the key pair of a run that is about to begin, and gives what keeps it once the run has its id. Making it takes
// longer than a transaction should. Without a keyring there is nothing to keep, and keep is nil.
func (s *Store) NewRunKey() (keep func(ctx context.Context, tx *store.Tx, runID string) error, err error) {
	if s.keys == nil {
		return nil, nil
	}
	k, err := s.newRunKey()
	if err != nil {
		return nil, fmt.Errorf("make the key of a run: %w", err)
	}
	return func(ctx context.Context, tx *store.Tx, runID string) error {
		if err := s.keepRunKey(ctx, tx, runID, k); err != nil {
			return fmt.Errorf("keep the key of run %s: %w", runID, err)
		}
		return nil
	}, nil
}

// RunPublicKey gives the key for which agents seal the secret outputs of a run: base64 of its SubjectPublicKeyInfo. A run that
// has none, since its end took it or its server had no keyring when it began, is given one; whatever node asks, it has one.
func (s *Store) RunPublicKey(ctx context.Context, runID string) (string, error) {
	if s.keys == nil {
		return "", ErrNotConfigured
	}
	var public string
	err := s.db.Read().QueryRowContext(ctx, selectPublicKey, runID).Scan(&public)
	if errors.Is(err, sql.ErrNoRows) {
		public, err = s.giveRunKey(ctx, runID)
	}
	if err != nil {
		return "", fmt.Errorf("key of run %s: %w", runID, err)
	}
	return public, nil
}

// AskForJob asks for the key of a job's run, "" when it has none yet, and whether the job's organisation has secrets that all of
// its jobs get.
func AskForJob(jobID string, public *string, flat *bool) store.Ask {
	return store.Ask{Query: selectForJob, Args: []any{jobID, DefaultScope, sentinel}, Row: func(r store.Row) error { return r.Scan(public, flat) }}
}

// runKey is a key pair of a run, the private half as it is stored.
type runKey struct {
	public   string
	envelope string
	version  int64
}

func (s *Store) newRunKey() (runKey, error) {
	pair, err := seal.NewKeyPair()
	if err != nil {
		return runKey{}, err
	}
	envelope, version, err := s.keys.Seal([]byte(pair.Private), runKeyPlace)
	return runKey{pair.Public, envelope, version}, err
}

func (s *Store) giveRunKey(ctx context.Context, runID string) (public string, err error) {
	k, err := s.newRunKey()
	if err != nil {
		return "", err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := s.keepRunKey(ctx, tx, runID, k); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, selectPublicKey, runID).Scan(&public) // another node may have been faster
	})
	return public, err
}

// keepRunKey stores a key, unless the run has one.
func (s *Store) keepRunKey(ctx context.Context, tx *store.Tx, runID string, k runKey) error {
	return tx.Do(ctx, insertRunKey, runID, k.public, k.envelope, k.version, s.clock.Millis())
}

// StoreOutputsTx takes the secret outputs that a job's agent sealed for its run, and keeps them for the jobs that need
// it. What cannot be decrypted, named or kept is dropped, since a job that succeeded does not fail for it; the names come
// back, sorted.
func (s *Store) StoreOutputsTx(ctx context.Context, tx *store.Tx, runID, jobID string, sealed map[string]wire.SecretOutput) (dropped []string, err error) {
	keys := slices.Sorted(maps.Keys(sealed))
	private, ok, err := s.privateKey(ctx, tx, runID)
	if err != nil {
		return nil, fmt.Errorf("store secret outputs of job %s: %w", jobID, err)
	}
	if !ok {
		return keys, nil
	}
	open := opener{private: private, agreed: map[string]seal.Agreement{}}
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

// privateKey opens the private key of a run; ok is false when there is none that can be opened.
func (s *Store) privateKey(ctx context.Context, tx *store.Tx, runID string) (private string, ok bool, err error) {
	if s.keys == nil {
		return "", false, nil
	}
	var envelope string
	err = tx.QueryRowContext(ctx, selectPrivateKey, runID).Scan(&envelope)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	plain, err := s.keys.Open(envelope, runKeyPlace)
	return string(plain), err == nil, nil
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

// ForgetRunTx deletes the key and the secret outputs of a run, in the transaction that ends it. Their names stay as long as
// the run is kept; see Names.
func (s *Store) ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error {
	for _, statement := range []string{deleteRunKey, deleteOutputs} {
		if err := tx.Do(ctx, statement, runID); err != nil {
			return fmt.Errorf("forget secrets of run %s: %w", runID, err)
		}
	}
	return nil
}

// ForgetOrphans deletes what runs left behind whose end deleted nothing: a job that was given out in the moment of the
// end makes a key again. over tells whether a run has ended; only keys that are a day old are asked about, batch at a
// time.
func (s *Store) ForgetOrphans(ctx context.Context, batch int, over func(ctx context.Context, runID string) (bool, error)) error {
	before := s.clock().Add(-orphanAge).UnixMilli()
	for last := ""; ; {
		runs, err := s.oldKeys(ctx, before, last, batch)
		if err != nil {
			return fmt.Errorf("find keys of runs that are over: %w", err)
		}
		for _, runID := range runs {
			ended, err := over(ctx, runID)
			if err != nil {
				return fmt.Errorf("find keys of runs that are over: %w", err)
			}
			if !ended {
				continue
			}
			if err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return s.ForgetRunTx(ctx, tx, runID) }); err != nil {
				return err
			}
		}
		if len(runs) < batch {
			return nil
		}
		last = runs[len(runs)-1]
	}
}

func (s *Store) oldKeys(ctx context.Context, before int64, after string, batch int) (runs []string, err error) {
	rows, err := s.db.Read().QueryContext(ctx, selectOldKeys, before, after, batch)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var runID string
		if err := rows.Scan(&runID); err != nil {
			return nil, err
		}
		runs = append(runs, runID)
	}
	return runs, rows.Err()
}

const (
	selectPublicKey = `SELECT public_key FROM run_ephemeral_keys WHERE run_id = $1`
	selectForJob    = `SELECT coalesce(k.public_key, ''),
		EXISTS (SELECT 1 FROM scoped_secrets s WHERE s.org_id = r.org_id AND s.scope = $2 AND s.key <> $3)
		FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id LEFT JOIN run_ephemeral_keys k ON k.run_id = j.run_id
		WHERE j.job_id = $1`
	selectPrivateKey = `SELECT encrypted_private_key FROM run_ephemeral_keys WHERE run_id = $1`
	insertRunKey     = `INSERT INTO run_ephemeral_keys (run_id, public_key, encrypted_private_key, key_version, created_at)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (run_id) DO NOTHING`
	upsertOutput = `INSERT INTO run_secret_outputs (run_id, job_id, output_key, encrypted_value, key_version, created_at)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (run_id, job_id, output_key) DO UPDATE SET encrypted_value = $4, key_version = $5, created_at = $6`
	insertOutputName = `INSERT INTO run_secret_output_names (run_id, job_id, output_key) VALUES ($1, $2, $3)
		ON CONFLICT (run_id, job_id, output_key) DO NOTHING`
	selectOutputs = `SELECT job_id, output_key, encrypted_value FROM run_secret_outputs WHERE run_id = $1`
	deleteRunKey  = `DELETE FROM run_ephemeral_keys WHERE run_id = $1`
	deleteOutputs = `DELETE FROM run_secret_outputs WHERE run_id = $1`
	selectOldKeys = `SELECT run_id FROM run_ephemeral_keys WHERE created_at < $1 AND run_id > $2 ORDER BY run_id LIMIT $3`
)
