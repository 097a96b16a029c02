package secrets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"kici/internal/kit/seal"
	"kici/internal/server/store"
)

// resealBatch bounds the rows that are read at once, and those of a transaction where not all rows have to be in one.
const resealBatch = 500

// Resealer opens an envelope, and seals what it holds for the same place with the current key.
type Resealer interface {
	Reseal(envelope, aad string) (string, error)
}

// Sealed describes a table of sealed values, for their passage to another master key. The statements belong to the room
// that owns the table.
type Sealed struct {
	// Page reads the rows whose version is below $1 by their key: at most $2, the key after $3 and so on. It gives the
	// columns of the key, texts all of them, and the envelope.
	Page string
	// Update stores the envelope $1 of the version $2 in the row that still has the envelope $3, of the key $4 and so on:
	// what somebody stored meanwhile is under the new key already.
	Update string
	Keys   int                       // columns of the key
	Place  func(key []string) string // for which the envelope was sealed
	// Latest reads the highest version there is. It is "" where rows say none: the statements take none then, and what stands
	// behind it in their order moves up.
	Latest string
}

// Resealed counts the values of a table.
type Resealed struct {
	Done    int
	Skipped int // they cannot be read: their key is lost, or they are damaged. They stay as they are
}

// sealedRow is a value by the key of its row.
type sealedRow struct {
	key      []string
	envelope string
}

// Rotate seals every value that is of an earlier version with the current key. Each batch is a transaction, so one that
// was interrupted goes on with the next call. What cannot be read is skipped.
func (t Sealed) Rotate(ctx context.Context, db *store.DB, keys Resealer, version int64) (total Resealed, err error) {
	for after := make([]string, t.Keys); after != nil; {
		rows, err := t.page(ctx, db.Read(), version, after) // a long look for a few rows keeps no writer waiting
		if err != nil {
			return total, err
		}
		var part Resealed
		err = db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			part = Resealed{}
			for _, row := range rows {
				err := t.reseal(ctx, tx, keys, version, row)
				switch {
				case errors.Is(err, seal.ErrUnreadable):
					part.Skipped++
				case err != nil:
					return err
				default:
					part.Done++
				}
			}
			return nil
		})
		if err != nil {
			return total, err
		}
		after = next(rows)
		total.Done, total.Skipped = total.Done+part.Done, total.Skipped+part.Skipped
	}
	return total, nil
}

// rotateTx is Rotate in one transaction that one unreadable value ends.
func (t Sealed) rotateTx(ctx context.Context, tx *store.Tx, keys Resealer, version int64) (done int, err error) {
	for after := make([]string, t.Keys); after != nil; {
		rows, err := t.page(ctx, tx, version, after)
		if err != nil {
			return 0, err
		}
		for _, row := range rows {
			if err := t.reseal(ctx, tx, keys, version, row); err != nil {
				return 0, err
			}
		}
		done, after = done+len(rows), next(rows)
	}
	return done, nil
}

// next is the key after which the next page begins, nil after the last one.
func next(rows []sealedRow) []string {
	if len(rows) < resealBatch {
		return nil
	}
	return rows[len(rows)-1].key
}

func (t Sealed) page(ctx context.Context, q store.Querier, version int64, after []string) ([]sealedRow, error) {
	args := append(t.versioned(version), resealBatch)
	for _, k := range after {
		args = append(args, k)
	}
	rows, err := q.QueryContext(ctx, t.Page, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []sealedRow
	for rows.Next() {
		r := sealedRow{key: make([]string, t.Keys)}
		into := make([]any, t.Keys, t.Keys+1)
		for i := range r.key {
			into[i] = &r.key[i]
		}
		if err := rows.Scan(append(into, &r.envelope)...); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

func (t Sealed) reseal(ctx context.Context, tx *store.Tx, keys Resealer, version int64, r sealedRow) error {
	envelope, err := keys.Reseal(r.envelope, t.Place(r.key))
	if err != nil {
		return err
	}
	args := append([]any{envelope}, append(t.versioned(version), r.envelope)...)
	for _, k := range r.key {
		args = append(args, k)
	}
	return tx.Do(ctx, t.Update, args...)
}

// versioned is the version where the statements take one.
func (t Sealed) versioned(version int64) []any {
	if t.Latest == "" {
		return nil
	}
	return []any{version}
}

// Version is the highest version of a key in the table, 0 when it is empty.
func (t Sealed) Version(ctx context.Context, db *store.DB) (int64, error) {
	var version sql.NullInt64
	err := db.Read().QueryRowContext(ctx, t.Latest).Scan(&version)
	return version.Int64, err
}

// Rotated counts what of this room was sealed anew.
type Rotated struct {
	Secrets    int
	RunOutputs Resealed
}

// KeyVersion is the highest version of a key in the tables of this room, 0 when they are empty.
func (s *Store) KeyVersion(ctx context.Context) (version int64, err error) {
	for _, t := range []Sealed{sealedSecrets, sealedOutputs} {
		v, err := t.Version(ctx, s.db)
		if err != nil {
			return 0, fmt.Errorf("read key versions: %w", err)
		}
		version = max(version, v)
	}
	return version, nil
}

// Rotate seals everything in this room that is of an earlier version with the current key. Secrets change in one
// transaction, all or none, with their row in the audit log: one that cannot be read is an error, before anybody takes the
// previous key away.
func (s *Store) Rotate(ctx context.Context, by Actor, version int64) (r Rotated, err error) {
	err = s.change(ctx, by, "rotateKey", "*", nil, func(ctx context.Context, tx *store.Tx) error {
		r.Secrets, err = sealedSecrets.rotateTx(ctx, tx, s.keys, version)
		return err
	})
	if err != nil {
		return r, err
	}
	if r.RunOutputs, err = sealedOutputs.Rotate(ctx, s.db, s.keys, version); err != nil {
		return r, fmt.Errorf("rotate secret outputs: %w", err)
	}
	return r, nil
}

var (
	sealedSecrets = Sealed{Keys: 3, Latest: `SELECT max(key_version) FROM scoped_secrets`,
		Page: `SELECT org_id, scope, key, encrypted_value FROM scoped_secrets
			WHERE key_version < $1 AND (org_id, scope, key) > ($3, $4, $5) ORDER BY org_id, scope, key LIMIT $2`,
		Update: `UPDATE scoped_secrets SET encrypted_value = $1, key_version = $2
			WHERE encrypted_value = $3 AND org_id = $4 AND scope = $5 AND key = $6`,
		Place: func(key []string) string { return place(key[0], key[1], key[2]) }}

	sealedOutputs = Sealed{Keys: 3, Latest: `SELECT max(key_version) FROM run_secret_outputs`,
		Page: `SELECT run_id, job_id, output_key, encrypted_value FROM run_secret_outputs
			WHERE key_version < $1 AND (run_id, job_id, output_key) > ($3, $4, $5) ORDER BY run_id, job_id, output_key LIMIT $2`,
		Update: `UPDATE run_secret_outputs SET encrypted_value = $1, key_version = $2
			WHERE encrypted_value = $3 AND run_id = $4 AND job_id = $5 AND output_key = $6`,
		Place: func(key []string) string { return outputPlace(key[0]) }}
)
