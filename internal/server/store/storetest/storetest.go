// Package storetest runs a test on both database engines. PostgreSQL is the server that KICI_TEST_POSTGRES_URL names,
// else a private one started from the machine's binaries for the life of the test process.
package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"kici/internal/server/store"
	"kici/internal/testenv"
)

// Main runs the tests of a package that uses this one and takes down what Each started. Call it from TestMain.
func Main(m *testing.M) {
	kept.begin()
	code := m.Run()
	if err := kept.clear(); err != nil {
		fmt.Fprintln(os.Stderr, "drop test databases:", err)
		code = max(code, 1)
	}
	stopPostgres()
	os.Exit(code)
}

// Each runs the test once on SQLite and once on PostgreSQL, each time with an empty, migrated database of its own.
func Each(t *testing.T, test func(t *testing.T, db *store.DB)) {
	t.Run("sqlite", func(t *testing.T) { test(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres(t)) })
}

// Check has rapid check a property on both engines: as often as it is told to on SQLite, and fewer times on PostgreSQL.
func Check(t *testing.T, property func(t *testing.T, rt *rapid.T, db *store.DB)) {
	Each(t, func(t *testing.T, db *store.DB) {
		if db.Dialect == store.Postgres {
			Fewer(t)
		}
		rapid.Check(t, func(rt *rapid.T) { property(t, rt, db) })
	})
}

// Fewer has rapid check a tenth as often until the test ends: on PostgreSQL each statement takes much longer.
func Fewer(t *testing.T) {
	t.Helper()
	checks := flag.Lookup("rapid.checks").Value
	often := checks.String()
	n, err := strconv.Atoi(often)
	if err == nil {
		err = checks.Set(strconv.Itoa(max(1, n/10)))
	}
	if err != nil {
		t.Fatalf("rapid.checks is %q: %v", often, err)
	}
	t.Cleanup(func() { _ = checks.Set(often) })
}

// SQLite opens an empty, migrated database in a file of its own.
func SQLite(t testing.TB) *store.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kici.db")
	template, err := sqliteTemplate()
	if err != nil {
		t.Fatalf("make template database: %v", err)
	}
	if err := os.WriteFile(path, template, 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, store.Options{Path: path})
}

// sqliteTemplate migrates once per process; a test then starts from a copy of the file.
var sqliteTemplate = sync.OnceValues(newSQLiteTemplate)

// newSQLiteTemplate works in a folder that is new: the id of a process comes again, and what another one left under it when it
// was killed may be of another schema.
func newSQLiteTemplate() ([]byte, error) {
	dir, err := os.MkdirTemp("", "kici-storetest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "template.db")
	db, err := store.Open(context.Background(), store.Options{Path: path})
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil { // the last connection folds the write-ahead log into the file
		return nil, err
	}
	return os.ReadFile(path)
}

// own is in the names of this process's databases on a PostgreSQL server that others use, too, now and then.
var own = strings.ToLower(rand.Text())

var databases atomic.Int64

// Postgres opens an empty, migrated database of its own, or skips the test when there is no PostgreSQL.
func Postgres(t testing.TB) *store.DB {
	t.Helper()
	return open(t, store.Options{URL: PostgresURL(t)})
}

// PostgresURL gives the URL of an empty, migrated database, for tests that start server processes. It leads nowhere once the
// test has ended, though a next one may use the database.
func PostgresURL(t testing.TB) string {
	t.Helper()
	base, err := postgresTemplate()
	if errors.Is(err, errAbsent) {
		testenv.Missing(t, "postgres", err.Error())
	}
	if err != nil { // it is there and does not start: to skip the tests would pass for having run them
		t.Fatal(err)
	}
	name, ok := kept.take()
	if !ok {
		name = newName()
		if err := adminExec(base, "CREATE DATABASE "+name+" TEMPLATE "+templateName+copyFiles()); err != nil {
			t.Fatalf("create test database: %v", err)
		}
	}
	t.Cleanup(func() { giveBack(t, base, name) })
	return withDatabase(base, name)
}

func newName() string { return fmt.Sprintf("kici_test_%s_%d", own, databases.Add(1)) }

// serverVariable names a server to use instead of a private one.
const serverVariable = "KICI_TEST_POSTGRES_URL"

// errAbsent says that the machine has no PostgreSQL.
var errAbsent = errors.New("no PostgreSQL")

func open(t testing.TB, o store.Options) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatalf("open test database: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close test database: %v", err)
		}
	})
	return db
}

var templateName = "kici_template_" + own

// postgresTemplate starts or finds the server and migrates one template database, of which tests get copies.
var postgresTemplate = sync.OnceValues(func() (string, error) {
	base := os.Getenv(serverVariable)
	if base == "" {
		var err error
		if base, err = startPostgres(); err != nil {
			return "", err
		}
	}
	if err := adminExec(base, "CREATE DATABASE "+templateName); err != nil {
		return "", fmt.Errorf("create template: %w", err)
	}
	db, err := store.Open(context.Background(), store.Options{URL: withDatabase(base, templateName)})
	if err != nil {
		return "", err
	}
	return base, db.Close()
})

// copyFiles has a new database copied file by file, which takes half the time where nothing waits for the disk. Before
// version 15 there was no other way, and no word for it.
var copyFiles = sync.OnceValue(func() string {
	base, err := postgresTemplate()
	if err != nil {
		return ""
	}
	conn, err := pgx.Connect(context.Background(), base)
	if err != nil {
		return ""
	}
	defer conn.Close(context.Background())
	var version string
	if err := conn.QueryRow(context.Background(), "SHOW server_version_num").Scan(&version); err != nil || len(version) < 6 || version < "150000" {
		return ""
	}
	return " STRATEGY FILE_COPY"
})

// adminExec runs one statement on the server's own database. Copies of one template must not be made at the same time.
func adminExec(base, statement string) error {
	adminMu.Lock()
	defer adminMu.Unlock()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

var adminMu sync.Mutex

func withDatabase(base, name string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	u.Path = "/" + strings.TrimPrefix(name, "/")
	return u.String()
}

// Send has the engine run what a transaction has told it so far, so that its locks are held.
func Send(ctx context.Context, tx *store.Tx) error {
	return tx.All(ctx, store.Ask{Query: "SELECT 1", Row: func(store.Row) error { return nil }})
}
