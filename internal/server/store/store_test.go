package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

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

func TestWritersThatWaitShareACommitAndFailAlone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const writers = 40
		results := make(chan error, writers)
		for i := range writers {
			go func() {
				results <- func() (err error) {
					defer func() {
						if p := recover(); p != nil {
							err = fmt.Errorf("panic: %v", p)
						}
					}()
					return db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
						_, err := tx.ExecContext(ctx, "INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, 1, 1)", fmt.Sprint("n", i))
						switch {
						case err != nil:
							return err
						case i%4 == 0:
							return errRollback
						case i%10 == 3:
							panic("on purpose")
						case i%7 == 5:
							return tx.DoOne(ctx, errRollback, "DELETE FROM nodes WHERE id = 'nobody'")
						}
						return nil
					})
				}()
			}()
		}
		kept := 0
		for range writers {
			if err := <-results; err == nil {
				kept++
			}
		}
		var rows int
		if err := db.Read().QueryRowContext(t.Context(), "SELECT count(*) FROM nodes").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows != kept || kept != writers-10-4-3 {
			t.Errorf("%d rows, %d writers succeeded, want %d of both", rows, kept, writers-10-4-3)
		}
	})
}

func TestWritersThatComeMeanwhileShareTheCommitAndFailAlone(t *testing.T) {
	db := storetest.SQLite(t)
	add := func(ctx context.Context, tx *store.Tx, id string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, 1, 1)", id)
		return err
	}
	for _, first := range []error{nil, errRollback} {
		synctest.Test(t, func(t *testing.T) {
			inside, release := make(chan struct{}), make(chan struct{})
			ends := map[string]error{"first": first, "bad": errRollback, "good": nil, "bad, too": errRollback, "worse": errRollback, "good, too": nil}
			results := map[string]chan error{}
			for id := range ends {
				results[id] = make(chan error, 1)
			}
			go func() {
				results["first"] <- db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					close(inside)
					<-release
					return errors.Join(add(ctx, tx, "first"), first)
				})
			}()
			<-inside
			for _, id := range []string{"bad", "good", "bad, too", "worse", "good, too"} {
				go func() {
					results[id] <- db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
						return errors.Join(add(ctx, tx, id), ends[id])
					})
				}()
				synctest.Wait() // it stands in line
			}
			close(release)
			for id, want := range ends {
				if err := <-results[id]; !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", id, err, want)
				}
			}
		})
		kept, err := store.Texts(t.Context(), db.Read(), "SELECT id FROM nodes ORDER BY id")
		want := []string{"first", "good", "good, too"}
		if first != nil {
			want = want[1:]
		}
		if err != nil || !slices.Equal(kept, want) {
			t.Errorf("first ends with %v: %v, %v are stored, want %v", first, kept, err, want)
		}
		if err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM nodes")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// An engine without room undoes the whole batch, also when the one that met it goes on as if nothing had happened.
func TestABatchThatTheEngineUndoesIsStoredForNobody(t *testing.T) {
	db := storetest.SQLite(t)
	for _, broken := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			inside, release := make(chan struct{}), make(chan struct{})
			results := make(chan error, 4)
			for i := range cap(results) {
				go func() {
					results <- db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
						if i == 0 {
							close(inside)
							<-release
						}
						err := tx.Do(ctx, "INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, 1, 1)", fmt.Sprint(i))
						if i == broken {
							err = errors.Join(err, tx.Do(ctx, "ROLLBACK"))
						}
						return err
					})
				}()
				if i == 0 {
					<-inside
				}
				synctest.Wait() // the others stand in line
			}
			close(release)
			for range cap(results) {
				if err := <-results; err == nil {
					t.Errorf("a writer is told that its row is stored, number %d broke the batch", broken)
				}
			}
		})
		if got := nodes(t, db); len(got) > 0 {
			t.Errorf("number %d broke the batch: %v are stored", broken, got)
		}
	}
}

func TestWriteThatIsGivenUpWhileItWaitsDoesNothing(t *testing.T) {
	db := storetest.SQLite(t)
	ctx, cancel := context.WithCancel(t.Context())
	inside, release := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		first <- db.Write(t.Context(), func(context.Context, *store.Tx) error {
			close(inside)
			<-release
			return nil
		})
	}()
	<-inside
	second := make(chan error, 1)
	go func() {
		second <- db.Write(ctx, func(context.Context, *store.Tx) error {
			t.Error("a transaction that was given up ran")
			return nil
		})
	}()
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("second = %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := db.Write(t.Context(), func(context.Context, *store.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestWhatIsRefusedIsToldFromWhatIsUnavailable(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		try := func(ctx context.Context, query string) error {
			return db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.ExecContext(ctx, query)
				return err
			})
		}
		null := try(t.Context(), "INSERT INTO nodes (id, started_at, seen_at) VALUES ('a', 1, NULL)")
		if !store.IsRefused(null) || store.IsUnavailable(null) {
			t.Errorf("a broken constraint: %v", null)
		}
		wrong := try(t.Context(), "no statement")
		if store.IsRefused(wrong) || store.IsUnavailable(wrong) || wrong == nil {
			t.Errorf("a broken statement is neither: %v", wrong)
		}
	})
}
