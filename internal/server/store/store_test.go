package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var errRollback = errors.New("roll back")

func TestWriteCommitsOrRollsBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		put := func(id string, result error) (woken bool) {
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				tx.After(func() { woken = true })
				// Placeholders reused and out of order must mean the same on both engines.
				if _, err := tx.ExecContext(ctx, "INSERT INTO nodes (id, started_at, seen_at) VALUES ($2, $1, $1)", 7, id); err != nil {
					t.Fatal(err)
				}
				return result
			})
			if !errors.Is(err, result) {
				t.Fatalf("Write = %v, want %v", err, result)
			}
			return woken
		}
		if !put("kept", nil) {
			t.Error("a committed transaction did not wake anybody")
		}
		if put("dropped", errRollback) {
			t.Error("a rolled-back transaction woke somebody")
		}
		var n, seen int
		if err := db.Read().QueryRowContext(t.Context(), "SELECT count(*), max(seen_at) FROM nodes").Scan(&n, &seen); err != nil {
			t.Fatal(err)
		}
		if n != 1 || seen != 7 {
			t.Errorf("%d rows, seen %d; want 1 row, seen 7", n, seen)
		}
	})
}

func TestIsUnique(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		insert := func() error {
			return db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO nodes (id, started_at, seen_at) VALUES ('a', 1, 1)")
				return err
			})
		}
		if err := insert(); err != nil {
			t.Fatal(err)
		}
		if err := insert(); !store.IsUnique(err) {
			t.Errorf("second insert: %v is not told as a unique violation", err)
		}
		if store.IsUnique(errRollback) {
			t.Error("an unrelated error is told as a unique violation")
		}
	})
}

func TestOpenTwiceMigratesOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a?b#c%.db") // characters that mean something in a file: URI
	for range 2 {
		db, err := store.Open(t.Context(), store.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenRefusesNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kici.db")
	db, err := store.Open(t.Context(), store.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO schema_migrations (version, name) VALUES (9999, 'later')")
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), store.Options{Path: path}); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("Open = %v, want %v", err, store.ErrNewerSchema)
	}
}

func TestOpenRefusesOtherURLs(t *testing.T) {
	for _, url := range []string{"mysql://u:hunter2@h/db", "postgres://u:hunter2@h:notaport/db"} {
		_, err := store.Open(t.Context(), store.Options{URL: url})
		if err == nil {
			t.Errorf("%q was accepted", url)
		}
	}
}
