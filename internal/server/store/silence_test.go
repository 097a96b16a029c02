package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// soon is far longer than what a test sets as limits, and far shorter than for ever.
const soon = 30 * time.Second

// A network that takes everything and passes on nothing ends what waits for it as an outage, and is forgotten once it
// works again.
func TestANetworkThatHangs(t *testing.T) {
	link := storetest.PostgresURL(t)
	db, scissors := storetest.Faulty(t, link+"&statement_timeout=400&connect_timeout=1")
	insert := func(id string) error {
		return db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return tx.Do(ctx, insertNode+" ON CONFLICT (id) DO NOTHING", id)
		})
	}
	var stored []string
	for _, up := range []bool{true, false} {
		for name, do := range map[string]func() error{
			"a read": func() error { _, err := store.Texts(t.Context(), db.Read(), "SELECT id FROM nodes"); return err },
			"reads": func() error {
				return db.Read().All(t.Context(), store.Ask{Query: "SELECT id FROM nodes", Row: func(store.Row) error { return nil }})
			},
			"an only statement": func() error {
				_, err := db.Read().ExecContext(t.Context(), "DELETE FROM nodes WHERE id = ''")
				return err
			},
			"a transaction": func() error { return insert("lost") },
			"within a transaction": func() error {
				return db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					scissors.Mend()
					if _, err := tx.ExecContext(ctx, insertNode, "lost within"); err != nil {
						return nil // the test says that this is no outage
					}
					scissors.Hang(up)
					return tx.DoOne(ctx, errRollback, "DELETE FROM nodes WHERE id = 'lost within'")
				})
			},
		} {
			id := fmt.Sprint(name, up)
			for began := time.Now(); ; { // until the connection is there, which takes longer than the limit where much goes on
				if err := insert(id); err == nil {
					break
				} else if !store.IsUnavailable(err) || time.Since(began) > soon {
					t.Fatalf("%s: before: %v", id, err)
				}
			}
			stored = append(stored, id)
			scissors.Hang(up)
			began := time.Now()
			if err := do(); !store.IsUnavailable(err) || store.IsRefused(err) || time.Since(began) > soon {
				t.Errorf("%s after %s: %v is not told as an outage", id, time.Since(began), err)
			}
			if name != "a read" {
				scissors.Mend()
				continue
			}
			if err := insert("never"); !store.IsUnavailable(err) || time.Since(began) > soon { // without a connection
				t.Errorf("%s, again after %s: %v is not told as an outage", id, time.Since(began), err)
			}
			scissors.Mend()
		}
	}
	for began := time.Now(); insert("behind") != nil; {
		if time.Since(began) > soon {
			t.Fatal("the network works, and nothing can be stored")
		}
	}
	stored = append(stored, "behind")
	slices.Sort(stored)
	got := slices.DeleteFunc(nodes(t, db), func(id string) bool { return id == "lost" }) // stored where only the answer vanished
	if !slices.Equal(got, stored) {
		t.Errorf("stored %q, want %q", got, stored)
	}
}

// A statement that takes too long is ended by the database, and its connection goes on.
func TestAStatementThatTakesTooLong(t *testing.T) {
	db := limited(t, "1000")
	began := time.Now()
	_, err := db.Read().ExecContext(t.Context(), "SELECT pg_sleep(60)")
	if !store.IsUnavailable(err) || time.Since(began) > soon {
		t.Errorf("%v after %s is not told as an outage", err, time.Since(began))
	}
	err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if err := tx.TakeTime(ctx); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep(1.5)")
		return err
	})
	if err != nil {
		t.Errorf("one that may take its time: %v", err)
	}
	if _, err := db.Read().ExecContext(t.Context(), "SELECT pg_sleep(60)"); !store.IsUnavailable(err) || time.Since(began) > soon {
		t.Errorf("after one that may take its time: %v", err)
	}
}

func TestTimesInTheURL(t *testing.T) {
	for _, tt := range []struct{ given, want string }{{"60s", "1min"}, {"2min", "2min"}, {"1500", "1500ms"}, {"0", "0"}} {
		var got string
		if err := limited(t, tt.given).Read().QueryRowContext(t.Context(), "SHOW statement_timeout").Scan(&got); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v", tt.given, got, err)
		}
	}
	link := storetest.PostgresURL(t)
	if _, err := store.Open(t.Context(), store.Options{URL: link + "&statement_timeout=soon"}); err == nil || store.IsUnavailable(err) {
		t.Errorf("no time: %v", err)
	}
}

func limited(t *testing.T, timeout string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: storetest.PostgresURL(t) + "&pool_max_conns=1&statement_timeout=" + timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A connection pooler such as PgBouncer refuses most settings at the start of a connection.
func TestAPoolerThatRefusesSettings(t *testing.T) {
	link := storetest.PostgresURL(t)
	db, err := store.Open(t.Context(), store.Options{URL: pooler(t, link)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for setting, want := range map[string]string{"idle_in_transaction_session_timeout": "5s", "statement_timeout": "1min"} {
		var got string
		if err := db.Read().QueryRowContext(t.Context(), "SHOW "+setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v", setting, got, err)
		}
	}
}

// pooler listens before a database and reads the start of each connection as PgBouncer does.
func pooler(t *testing.T, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	server := u.Host
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go pass(near, server)
		}
	}()
	u.Host = listener.Addr().String()
	return u.String()
}

func pass(near net.Conn, server string) {
	defer near.Close()
	backend := pgproto3.NewBackend(near, near)
	start, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if m, ok := start.(*pgproto3.StartupMessage); ok {
		for name := range m.Parameters {
			if !slices.Contains([]string{"user", "database", "client_encoding", "application_name", "DateStyle", "TimeZone", "standard_conforming_strings"}, name) {
				backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
				_ = backend.Flush()
				return
			}
		}
	}
	far, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer far.Close()
	raw, err := start.Encode(nil)
	if err != nil {
		return
	}
	if _, err := far.Write(raw); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

// Servers that start together migrate one after the other, however long that takes.
func TestAMigrationMayTakeItsTime(t *testing.T) {
	link := storetest.PostgresURL(t)
	direct := dial(t, link)
	if _, err := direct.Exec(t.Context(), "SELECT pg_advisory_lock($1)", 0x6b696369); err != nil {
		t.Fatal(err)
	}
	let := make(chan error, 1)
	go func() {
		_, err := direct.Exec(context.Background(), "SELECT pg_sleep(1.5), pg_advisory_unlock($1)", 0x6b696369)
		let <- err
	}()
	db, err := store.Open(t.Context(), store.Options{URL: link + "&statement_timeout=1000"})
	if err := errors.Join(err, <-let); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
}
