package store_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

const insertNode = "INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, 1, 1)"

func nodes(t *testing.T, db *store.DB) []string {
	t.Helper()
	ids, err := store.Texts(t.Context(), db.Read(), "SELECT id FROM nodes ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestWhatNobodyWaitedForIsSeenByWhatFollows(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			for _, id := range []string{"a", "b"} {
				if err := tx.Do(ctx, insertNode, id); err != nil {
					return err
				}
			}
			if err := tx.DoOne(ctx, errRollback, "UPDATE nodes SET seen_at = 5 WHERE id = 'a' AND seen_at = 1"); err != nil {
				return err
			}
			var seen, n int
			if err := tx.QueryRowContext(ctx, "SELECT max(seen_at), count(*) FROM nodes").Scan(&seen, &n); err != nil {
				return err
			}
			if seen != 5 || n != 2 {
				t.Errorf("within the transaction: seen %d, %d rows", seen, n)
			}
			return tx.Do(ctx, "DELETE FROM nodes WHERE id = 'b'")
		})
		if got := nodes(t, db); err != nil || !slices.Equal(got, []string{"a"}) {
			t.Errorf("stored %v, %v", got, err)
		}
	})
}

func TestStatementsThatMustChangeARow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		for _, tt := range []struct {
			statement string
			changes   bool
		}{
			{"INSERT INTO nodes (id, started_at, seen_at) VALUES ('a', 1, 1), ('b', 1, 1), ('c', 1, 1)", true},
			{"INSERT INTO nodes (id, started_at, seen_at) VALUES ('a', 1, 1) ON CONFLICT (id) DO NOTHING", false},
			{"INSERT INTO nodes (id, started_at, seen_at) VALUES ('a', 1, 2) ON CONFLICT (id) DO UPDATE SET seen_at = 2 WHERE nodes.seen_at = 1", true},
			{"INSERT INTO nodes (id, started_at, seen_at) VALUES ('a', 1, 2) ON CONFLICT (id) DO UPDATE SET seen_at = 2 WHERE nodes.seen_at = 1", false},
			{"WITH one AS (SELECT min(id) AS id FROM nodes) DELETE FROM nodes WHERE id IN (SELECT id FROM one)", true},
			{"DELETE FROM nodes WHERE id = 'a' -- which is gone", false},
			{"UPDATE nodes SET seen_at = seen_at -- all that are left", true},
			{"INSERT INTO nodes (id, started_at, seen_at) SELECT 'd', 1, 1 FROM nodes WHERE id = 'a'", false},
		} {
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				return tx.DoOne(ctx, store.ErrUnchanged, tt.statement)
			})
			if changed := err == nil; changed != tt.changes || !changed && (!errors.Is(err, store.ErrUnchanged) || store.IsRefused(err)) {
				t.Errorf("%s: %v", tt.statement, err)
			}
		}
	})
}

func TestATransactionFailsWithAnyOfItsStatements(t *testing.T) {
	twin := func(ctx context.Context, tx *store.Tx) error { return tx.Do(ctx, insertNode, "there") }
	missing := func(ctx context.Context, tx *store.Tx) error {
		return tx.DoOne(ctx, errRollback, "UPDATE nodes SET seen_at = 2 WHERE id = 'nobody'")
	}
	second := func(ctx context.Context, tx *store.Tx) error {
		return tx.DoOne(ctx, errRollback, insertNode+" ON CONFLICT (id) DO NOTHING", "there")
	}
	nothing := func(context.Context, *store.Tx) error { return nil }
	read := func(ctx context.Context, tx *store.Tx) error {
		_, err := store.Texts(ctx, tx, "SELECT id FROM nodes")
		return err
	}
	isLost := func(err error) bool { return errors.Is(err, errRollback) }
	tests := []struct {
		name       string
		bad, after func(ctx context.Context, tx *store.Tx) error
		is         func(error) bool
	}{
		{"a key that is taken, and then the commit", twin, nothing, store.IsUnique},
		{"a key that is taken, and then a question", twin, read, store.IsUnique},
		{"no row to change, and then the commit", missing, nothing, isLost},
		{"no row to change, and then a question", missing, read, isLost},
		{"a row that is there already, and then the commit", second, nothing, isLost},
	}
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		if err := db.Write(t.Context(), twin); err != nil {
			t.Fatal(err)
		}
		for _, tt := range tests {
			woken := false
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				tx.After(func() { woken = true })
				if err := tx.Do(ctx, insertNode, "before"); err != nil {
					return err
				}
				if err := tt.bad(ctx, tx); err != nil {
					return err
				}
				if err := tx.Do(ctx, insertNode, "behind"); err != nil {
					return err
				}
				return tt.after(ctx, tx)
			})
			if got := nodes(t, db); !tt.is(err) || woken || !slices.Equal(got, []string{"there"}) {
				t.Errorf("%s: %v, stored %v, somebody woken: %v", tt.name, err, got, woken)
			}
		}
	})
}

func TestAPanicRollsBackAndLeavesTheDatabaseUsable(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		func() {
			defer func() { recover() }()
			_ = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				if _, err := tx.ExecContext(ctx, insertNode, "sent"); err != nil {
					t.Error(err)
				}
				if err := tx.Do(ctx, insertNode, "waiting"); err != nil {
					t.Error(err)
				}
				panic("on purpose")
			})
		}()
		if got := nodes(t, db); len(got) != 0 {
			t.Errorf("stored %v", got)
		}
	})
}

func TestQuestionsThatAreAskedTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ask := func(into *[]string, query string, args ...any) store.Ask {
			return store.Ask{Query: query, Args: args, Row: func(r store.Row) error {
				var id string
				err := r.Scan(&id)
				*into = append(*into, id)
				return err
			}}
		}
		err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			for _, id := range []string{"a", "b", "c"} {
				if err := tx.Do(ctx, insertNode, id); err != nil {
					return err
				}
			}
			var all, none, one []string
			err := tx.All(ctx, ask(&all, "SELECT id FROM nodes ORDER BY id"), ask(&none, "SELECT id FROM nodes WHERE id > $1", "x"),
				ask(&one, "SELECT id FROM nodes WHERE id = $1", "b"))
			var first, idle []string
			useless := ask(&idle, "SELECT id FROM nodes")
			useless.Idle = func() bool { return len(first) == 1 }
			useful := ask(&idle, "SELECT id FROM nodes WHERE id = 'c'")
			useful.Idle = func() bool { return len(first) == 0 }
			err = errors.Join(err, tx.All(ctx, ask(&first, "SELECT id FROM nodes WHERE id = 'a'"), useless, useful))
			if !slices.Equal(idle, []string{"c"}) {
				t.Errorf("asked by what was answered before: %v", idle)
			}
			if !slices.Equal(all, []string{"a", "b", "c"}) || none != nil || !slices.Equal(one, []string{"b"}) {
				t.Errorf("in a transaction: %v, %v, %v", all, none, one)
			}
			return errors.Join(err, tx.All(ctx))
		})
		if err != nil {
			t.Fatal(err)
		}
		var before, after []string
		refuse := store.Ask{Query: "SELECT id FROM nodes ORDER BY id", Row: func(store.Row) error { return errRollback }}
		err = db.Read().All(t.Context(), ask(&before, "SELECT id FROM nodes"), refuse, ask(&after, "SELECT id FROM nodes"))
		if !errors.Is(err, errRollback) || len(before) != 3 || after != nil {
			t.Errorf("%v, before %v, after %v", err, before, after)
		}
		if err := db.Read().All(t.Context(), store.Ask{Query: "SELECT no_such_column FROM nodes"}); err == nil {
			t.Error("a query that fails is not told")
		}
		if got := nodes(t, db); len(got) != 3 {
			t.Errorf("after errors: %v", got)
		}
	})
}

func TestAQueryThatFailsSaysSoAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		if _, err := db.Read().QueryContext(t.Context(), "SELECT no_such_column FROM nodes"); err == nil {
			t.Error("outside a transaction it is not told")
		}
		err := db.Read().QueryRowContext(t.Context(), "SELECT id FROM nodes").Scan(new(string))
		if !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("a row that is not there: %v", err)
		}
		err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.QueryContext(ctx, "SELECT no_such_column FROM nodes")
			if err == nil {
				t.Error("in a transaction it is not told")
			}
			return err
		})
		if err == nil {
			t.Error("the transaction succeeded")
		}
	})
}

// A process that is suspended in a transaction is no hindrance for long.
func TestATransactionThatWaitsForItsClient(t *testing.T) {
	link := storetest.PostgresURL(t)
	db, err := store.Open(t.Context(), store.Options{URL: link + "&pool_max_conns=1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	var limit string
	if err := db.Read().QueryRowContext(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&limit); err != nil || limit == "0" {
		t.Errorf("a transaction may wait for %q, %v", limit, err)
	}
	direct := dial(t, link)
	err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.ExecContext(ctx, insertNode, "x"); err != nil {
			return err
		}
		// For this one alone: on a busy machine every other transaction may take as long.
		if _, err := tx.ExecContext(ctx, "SET LOCAL idle_in_transaction_session_timeout = 20"); err != nil {
			return err
		}
		alone(t, direct)
		return tx.Do(ctx, insertNode, "y")
	})
	if got := nodes(t, db); !store.IsUnavailable(err) || len(got) != 0 {
		t.Errorf("%v, stored %v", err, got)
	}
}

// What nobody waits for stays queued when there is nothing to ask.
func TestNoQuestionIsNoMessage(t *testing.T) {
	db := storetest.Postgres(t)
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if err := errors.Join(tx.Do(ctx, "no statement"), tx.All(ctx)); err != nil {
			t.Errorf("sent: %v", err)
		}
		return nil
	})
	if err == nil {
		t.Error("never sent")
	}
}
