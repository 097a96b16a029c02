package secrets

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/seal"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// dying seals some envelopes and then no more, as a process that is killed.
type dying struct {
	*seal.Keyring
	left int
}

var errKilled = errors.New("killed")

func (d *dying) Reseal(envelope, aad string) (string, error) {
	if d.left--; d.left < 0 {
		return "", errKilled
	}
	return d.Keyring.Reseal(envelope, aad)
}

// manyOutputs stores n secret outputs of a run.
func manyOutputs(t *testing.T, db *store.DB, s *Store, n int) {
	t.Helper()
	must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		for i := range n {
			if err := s.putOutput(ctx, tx, "run", "job", fmt.Sprintf("KEY%d", i), []byte("v")); err != nil {
				return err
			}
		}
		return nil
	}))
}

func versions(t *testing.T, db *store.DB, table string) map[int64]int {
	t.Helper()
	rows, err := db.Read().QueryContext(t.Context(), "SELECT key_version, count(*) FROM "+table+" GROUP BY key_version")
	must(t, err)
	defer rows.Close()
	out := map[int64]int{}
	for rows.Next() {
		var version int64
		var n int
		must(t, rows.Scan(&version, &n))
		out[version] = n
	}
	must(t, rows.Err())
	return out
}

func TestAnInterruptedRotationGoesOn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const n = resealBatch + 100
		manyOutputs(t, db, newStore(t, db), n)
		both := keyring(t, keyB, keyA)
		done, err := sealedOutputs.Rotate(t.Context(), db, &dying{both, resealBatch + 50}, 2)
		if !errors.Is(err, errKilled) || done.Done != resealBatch {
			t.Errorf("interrupted: %+v, %v", done, err)
		}
		if d := cmp.Diff(map[int64]int{2: resealBatch, 1: 100}, versions(t, db, "run_secret_outputs")); d != "" {
			t.Error(d)
		}
		s := New(db, both, func() time.Time { return start })
		if values, err := s.OutputsOf(t.Context(), "run", []string{"job"}); err != nil || len(values) != n {
			t.Errorf("in the middle of it %d values: %v", len(values), err)
		}
		done, err = sealedOutputs.Rotate(t.Context(), db, both, 2)
		if err != nil || done.Done != 100 {
			t.Errorf("taken up again: %+v, %v", done, err)
		}
		s = New(db, keyring(t, keyB, ""), func() time.Time { return start })
		if values, err := s.OutputsOf(t.Context(), "run", []string{"job"}); err != nil || len(values) != n {
			t.Errorf("by the new key %d values: %v", len(values), err)
		}
		s = newStore(t, db)
		if values, err := s.OutputsOf(t.Context(), "run", []string{"job"}); !errors.Is(err, seal.ErrUnreadable) {
			t.Errorf("by the old key %d values: %v", len(values), err)
		}
	})
}

func TestOneSecretThatCannotBeReadKeepsAllOfThem(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		for i := range resealBatch + 1 {
			must(t, s.Set(t.Context(), ann, "o", "s", fmt.Sprintf("K%03d", i), "v"))
		}
		exec(t, db, "UPDATE scoped_secrets SET key = 'K999' WHERE key = 'K500'") // another place than it was sealed for
		manyOutputs(t, db, s, 2)
		exec(t, db, "UPDATE run_secret_outputs SET encrypted_value = 'damaged' WHERE output_key = 'KEY1'")
		both := New(db, keyring(t, keyB, keyA), func() time.Time { return start })
		if _, err := both.Rotate(t.Context(), ann, 2); !errors.Is(err, seal.ErrUnreadable) {
			t.Errorf("rotated: %v", err)
		}
		if d := cmp.Diff(map[int64]int{1: resealBatch + 1}, versions(t, db, "scoped_secrets")); d != "" {
			t.Error(d)
		}
		must(t, both.Delete(t.Context(), ann, "o", "s", "K999"))
		got, err := both.Rotate(t.Context(), ann, 2)
		must(t, err)
		if d := cmp.Diff(Rotated{Secrets: resealBatch, RunOutputs: Resealed{Done: 1, Skipped: 1}}, got); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(map[int64]int{1: 1, 2: 1}, versions(t, db, "run_secret_outputs")); d != "" {
			t.Error(d)
		}
		entries, err := both.Audit(t.Context(), AuditFilter{Action: "rotateKey", Limit: 10})
		must(t, err)
		if len(entries) != 1 || entries[0].Context != "*" || entries[0].UserID != ann.UserID {
			t.Errorf("audited as %+v", entries)
		}
	})
}

func TestWhatIsStoredDuringARotationIsLeftAlone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		must(t, newStore(t, db).Set(t.Context(), ann, "o", "s", "K", "old"))
		both := keyring(t, keyB, keyA)
		must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			rows, err := sealedSecrets.page(ctx, tx, 2, make([]string, 3))
			if err != nil {
				return err
			}
			s := New(db, both, func() time.Time { return start })
			if err := s.put(ctx, tx, upsertSecret, "o", "s", "K", "new"); err != nil {
				return err
			}
			return sealedSecrets.reseal(ctx, tx, both, 2, rows[0])
		}))
		got, err := New(db, keyring(t, keyB, ""), func() time.Time { return start }).Resolve(t.Context(), "o", []string{"s"})
		if err != nil || got["K"] != "new" {
			t.Errorf("%v, %v", got, err)
		}
	})
}
