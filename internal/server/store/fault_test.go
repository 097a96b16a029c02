package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// alone waits until nobody but this connection is with its database, so that whatever was under way has ended.
func alone(t *testing.T, direct *pgx.Conn) {
	t.Helper()
	for others := 1; others > 0; {
		err := direct.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func dial(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// A connection that ends at any byte of a transaction leaves all of it or nothing, says that the database could not be
// reached, and the same transaction may be run again.
func TestAConnectionThatEndsInATransaction(t *testing.T) {
	link := storetest.PostgresURL(t)
	db, scissors := storetest.Faulty(t, link)
	direct := dial(t, link)
	do := func(n int) (woken bool, err error) {
		err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			tx.After(func() { woken = true })
			first, second := fmt.Sprint("a", n), fmt.Sprint("b", n)
			if err := tx.Do(ctx, insertNode+" ON CONFLICT (id) DO UPDATE SET seen_at = 1", first); err != nil {
				return err
			}
			if err := tx.DoOne(ctx, errRollback, "UPDATE nodes SET seen_at = 2 WHERE id = $1", first); err != nil {
				return err
			}
			var seen int
			if err := tx.QueryRowContext(ctx, "SELECT seen_at FROM nodes WHERE id = $1", first).Scan(&seen); err != nil {
				return err
			}
			if err := tx.Do(ctx, insertNode+" ON CONFLICT (id) DO NOTHING", second); err != nil {
				return err
			}
			return tx.Last(ctx, store.Ask{Query: "UPDATE nodes SET seen_at = $2 WHERE id = $1 RETURNING id", Args: []any{second, seen},
				Row: func(r store.Row) error { return r.Scan(new(string)) }})
		})
		return woken, err
	}
	n, none, whole := 0, 0, 0
	for _, up := range []bool{true, false} {
		for _, warm := range []bool{false, true} {
			for at, cut := 0, true; cut; at += 89 {
				n++
				if _, err := do(0); warm && err != nil { // everything is prepared
					t.Fatal(err)
				}
				scissors.CutAfter(at, up)
				woken, err := do(n)
				cut = scissors.Mend()
				if err != nil {
					alone(t, direct)
				}
				var stored []string
				if err := direct.QueryRow(t.Context(), "SELECT coalesce(array_agg(id || seen_at), '{}') FROM nodes WHERE id IN ($1, $2)",
					fmt.Sprint("a", n), fmt.Sprint("b", n)).Scan(&stored); err != nil {
					t.Fatal(err)
				}
				switch {
				case woken != (err == nil):
					t.Errorf("%v, somebody woken: %v", err, woken)
				case err == nil && len(stored) != 2 || len(stored) == 1:
					t.Errorf("cut after %d bytes (up: %v): %v, stored %q", at, up, err, stored)
				case err != nil && !store.IsUnavailable(err):
					t.Errorf("cut after %d bytes (up: %v): %v is not told as an outage", at, up, err)
				case err != nil && len(stored) == 2:
					whole++
				case err != nil:
					none++
				}
				if _, err := do(n); err != nil {
					t.Errorf("once more: %v", err)
				}
			}
		}
	}
	if none == 0 || whole == 0 {
		t.Errorf("of the transactions that failed %d left nothing and %d all", none, whole)
	}
}

// terminate ends the connections of everybody else.
const terminate = `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

func TestASessionThatIsEndedInATransaction(t *testing.T) {
	link := storetest.PostgresURL(t)
	db, _ := storetest.Faulty(t, link)
	direct := dial(t, link)
	end := func() error { _, err := direct.Exec(t.Context(), terminate); return err }
	for name, fn := range map[string]func(ctx context.Context, tx *store.Tx) error{
		"before begin": func(ctx context.Context, tx *store.Tx) error {
			return errors.Join(end(), tx.Do(ctx, insertNode, "x"))
		},
		"before a question": func(ctx context.Context, tx *store.Tx) error {
			if _, err := tx.ExecContext(ctx, insertNode, "x"); err != nil {
				return err
			}
			_, err := store.Texts(ctx, tx, "SELECT id FROM nodes")
			if err != nil {
				return err
			}
			if err := end(); err != nil {
				return err
			}
			_, err = store.Texts(ctx, tx, "SELECT id FROM nodes")
			return err
		},
		"before the commit": func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.ExecContext(ctx, insertNode, "x")
			return errors.Join(err, end())
		},
		"whatever follows": func(ctx context.Context, tx *store.Tx) error {
			_, _ = tx.ExecContext(ctx, insertNode, "x")
			_ = end()
			_, _ = store.Texts(ctx, tx, "SELECT id FROM nodes")
			return tx.Do(ctx, insertNode, "y")
		},
	} {
		if err := db.Write(t.Context(), fn); !store.IsUnavailable(err) || store.IsRefused(err) {
			t.Errorf("%s: %v is not told as an outage", name, err)
		}
		if got := nodes(t, db); len(got) != 0 {
			t.Errorf("%s: stored %v", name, got)
		}
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if err := db.Ping(t.Context()); err != nil && !store.IsUnavailable(err) {
		t.Errorf("a read on a connection that is gone: %v is not told as an outage", err)
	}
}

func TestADatabaseThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	gone := "postgres://u@" + listener.Addr().String() + "/x?sslmode=disable"
	if _, err := store.Open(t.Context(), store.Options{URL: gone}); !store.IsUnavailable(err) {
		t.Errorf("nobody listens: %v", err)
	}
	u, err := url.Parse(storetest.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/no_such_database"
	if _, err := store.Open(t.Context(), store.Options{URL: u.String()}); !store.IsUnavailable(err) {
		t.Errorf("no such database: %v", err)
	}
}

// Who waits for a lock is told when the time of his statement is up, and what he did before is undone. That whoever asked has
// gone meanwhile ends no transaction.
func TestATransactionWhoseTimeIsUp(t *testing.T) {
	link := storetest.PostgresURL(t)
	db, err := store.Open(t.Context(), store.Options{URL: link + "&statement_timeout=300"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Do(ctx, insertNode, "row") }); err != nil {
		t.Fatal(err)
	}
	err = db.Write(t.Context(), func(ctx context.Context, holder *store.Tx) error {
		if _, err := holder.ExecContext(ctx, "UPDATE nodes SET seen_at = 2 WHERE id = 'row'"); err != nil {
			return err
		}
		for id, last := range map[string]bool{"before the commit": false, "with the commit": true} {
			err := db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
				if _, err := tx.ExecContext(ctx, insertNode, id); err != nil {
					return err
				}
				ask := store.Ask{Query: "UPDATE nodes SET seen_at = 3 WHERE id = 'row' RETURNING id", Row: func(store.Row) error { return nil }}
				if last {
					return tx.Last(ctx, ask)
				}
				return tx.All(ctx, ask)
			})
			if !store.IsUnavailable(err) {
				t.Errorf("%s: %v", id, err)
			}
		}
		return nil
	})
	if got := nodes(t, db); err != nil || !slices.Equal(got, []string{"row"}) {
		t.Errorf("stored %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		cancel()
		return tx.Do(ctx, insertNode, "seen through")
	})
	if got := nodes(t, db); err != nil || !slices.Contains(got, "seen through") {
		t.Errorf("stored %v, %v", got, err)
	}
}

// notEncodable is an argument that no driver takes.
var notEncodable = make(chan int)

// What cannot be sent is never sent in part: the transaction does not begin, or does not go on.
func TestAnArgumentThatCannotBeSent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		bad := store.Ask{Query: "SELECT id FROM nodes WHERE id = $1", Args: []any{notEncodable}, Row: func(store.Row) error { return nil }}
		for name, fn := range map[string]func(ctx context.Context, tx *store.Tx) error{
			"with begin": func(ctx context.Context, tx *store.Tx) error { return tx.Do(ctx, insertNode, notEncodable) },
			"later": func(ctx context.Context, tx *store.Tx) error {
				if _, err := store.Texts(ctx, tx, "SELECT id FROM nodes"); err != nil {
					return err
				}
				return errors.Join(tx.Do(ctx, insertNode, "x"), tx.DoOne(ctx, errRollback, insertNode, notEncodable))
			},
			"in a question":   func(ctx context.Context, tx *store.Tx) error { return tx.All(ctx, bad) },
			"with the commit": func(ctx context.Context, tx *store.Tx) error { return tx.Last(ctx, bad) },
			"in an only statement": func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.ExecContext(ctx, insertNode, notEncodable)
				return err
			},
		} {
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				if err := tx.Do(ctx, insertNode, "before"); err != nil {
					return err
				}
				if err := fn(ctx, tx); err != nil {
					return err
				}
				return tx.Do(ctx, insertNode, "behind")
			})
			if got := nodes(t, db); err == nil || store.IsUnavailable(err) || len(got) != 0 {
				t.Errorf("%s: %v, stored %v", name, err, got)
			}
		}
	})
}

// On PostgreSQL a transaction of which something failed has ended, whatever its caller makes of the error.
func TestNothingFollowsAnErrorOutsideOfATransaction(t *testing.T) {
	db := storetest.Postgres(t)
	for _, first := range []bool{true, false} {
		for name, fail := range map[string]func(ctx context.Context, tx *store.Tx){
			"not sent":   func(ctx context.Context, tx *store.Tx) { _, _ = tx.ExecContext(ctx, insertNode, notEncodable) },
			"not parsed": func(ctx context.Context, tx *store.Tx) { _, _ = tx.ExecContext(ctx, "no statement") },
			"refused":    func(ctx context.Context, tx *store.Tx) { _, _ = tx.ExecContext(ctx, insertNode, nil) },
			"no time":    func(ctx context.Context, tx *store.Tx) { _ = tx.Last(ended(ctx)) },
			"row refused": func(ctx context.Context, tx *store.Tx) {
				_ = tx.DoOne(ctx, errRollback, "DELETE FROM nodes")
				_ = storetest.Send(ctx, tx)
			},
		} {
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				if !first {
					if _, err := tx.ExecContext(ctx, insertNode, "before"); err != nil {
						return err
					}
					if _, err := tx.ExecContext(ctx, "DELETE FROM nodes"); err != nil {
						return err
					}
				}
				fail(ctx, tx)
				_ = tx.Do(ctx, insertNode, "behind")
				_, _ = tx.ExecContext(ctx, insertNode, "far behind")
				return tx.Do(ctx, insertNode, "at last")
			})
			if got := nodes(t, db); (err == nil) != (len(got) == 3) || err != nil && len(got) != 0 {
				t.Errorf("%s (first: %v): %v, stored %v", name, first, err, got)
			}
			if err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Do(ctx, "DELETE FROM nodes") }); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// Whoever takes rows may fail or panic: no connection is lost, and none is left in the middle of something.
func TestWhoeverTakesRowsMayFail(t *testing.T) {
	link := storetest.PostgresURL(t)
	db, _ := storetest.Faulty(t, link) // with one connection
	ask := func(row func(store.Row) error) []store.Ask {
		return []store.Ask{{Query: "SELECT i FROM generate_series(1, 1000) i", Row: row}, {Query: "SELECT 1", Row: func(store.Row) error { return nil }}}
	}
	fails := func(store.Row) error { return errRollback }
	panics := func(store.Row) error { panic("on purpose") }
	for name, row := range map[string]func(store.Row) error{"fails": fails, "panics": panics} {
		for where, do := range map[string]func(ctx context.Context) error{
			"outside": func(ctx context.Context) error { return db.Read().All(ctx, ask(row)...) },
			"within": func(ctx context.Context) error {
				return db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
					return errors.Join(tx.Do(ctx, insertNode, "x"), tx.All(ctx, ask(row)...))
				})
			},
			"behind the commit": func(ctx context.Context) error {
				return db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return tx.Last(ctx, ask(row)...) })
			},
		} {
			err := func() (err error) {
				defer func() {
					if recover() != nil {
						err = errRollback
					}
				}()
				return do(t.Context())
			}()
			if got := nodes(t, db); !errors.Is(err, errRollback) || len(got) != 0 {
				t.Errorf("%s %s: %v, stored %v", where, name, err, got)
			}
		}
	}
}

// Who puts something between the server and its database may have to do without prepared statements.
func TestEveryWayToSendStatements(t *testing.T) {
	link := storetest.PostgresURL(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		db, err := store.Open(t.Context(), store.Options{URL: link + "&pool_max_conns=1&default_query_exec_mode=" + mode})
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		t.Cleanup(func() { _ = db.Close() })
		var seen []int
		count := store.Ask{Query: "SELECT count(*) FROM nodes WHERE id LIKE $1", Args: []any{mode + "%"}, Row: func(r store.Row) error {
			var n int
			err := r.Scan(&n)
			seen = append(seen, n)
			return err
		}}
		write := func(id, change string) error {
			return db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				if err := tx.Do(ctx, insertNode, mode+id); err != nil {
					return err
				}
				if err := tx.All(ctx, count, count); err != nil {
					return err
				}
				if err := tx.DoOne(ctx, errRollback, "UPDATE nodes SET seen_at = $2 WHERE id = $1", mode+change, 7); err != nil {
					return err
				}
				return tx.Last(ctx, count)
			})
		}
		if err := write("a", "a"); err != nil || !slices.Equal(seen, []int{1, 1, 1}) {
			t.Errorf("%s: %v, seen %v", mode, err, seen)
		}
		if err := write("b", "nobody"); !errors.Is(err, errRollback) {
			t.Errorf("%s: %v", mode, err)
		}
		if err := write("a", "a"); !store.IsUnique(err) {
			t.Errorf("%s: %v", mode, err)
		}
		if seen = nil; db.Read().All(t.Context(), count) != nil || !slices.Equal(seen, []int{1}) {
			t.Errorf("%s: stored %v", mode, seen)
		}
	}
}

// A newer server may change the schema under an older one, which goes on.
func TestASchemaThatChangesUnderPreparedStatements(t *testing.T) {
	db := storetest.Postgres(t)
	write := func(id string) error {
		return db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if err := tx.DoOne(ctx, errRollback, insertNode, id); err != nil {
				return err
			}
			return tx.Last(ctx, store.Ask{Query: "UPDATE nodes SET seen_at = 2 WHERE id = $1 RETURNING id, seen_at", Args: []any{id},
				Row: func(r store.Row) error { return r.Scan(new(string), new(int)) }})
		})
	}
	if err := write("before"); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{"ALTER TABLE nodes ADD COLUMN later BIGINT NOT NULL DEFAULT 0", "CREATE INDEX nodes_later ON nodes (later)"} {
		if _, err := db.Read().ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if err := write(change); err != nil {
			t.Errorf("after %s: %v", change, err)
		}
	}
	// One that takes away the ground of a statement fails that once, and leaves the connection usable.
	if _, err := db.Read().ExecContext(t.Context(), "ALTER TABLE nodes ALTER COLUMN seen_at TYPE INTEGER"); err != nil {
		t.Fatal(err)
	}
	first, second := write("first"), write("second")
	if got := nodes(t, db); second != nil || slices.Contains(got, "first") != (first == nil) || !slices.Contains(got, "second") {
		t.Errorf("%v, then %v, stored %v", first, second, got)
	}
}
