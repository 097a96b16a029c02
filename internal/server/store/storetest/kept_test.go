package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// used is a new database that a test is about to give back.
type used struct {
	t          testing.TB
	base, name string
	want       *look
}

func newUsed(t *testing.T) *used {
	t.Helper()
	PostgresURL(t) // skips the test where there is none
	base, err := postgresTemplate()
	if err != nil {
		t.Fatal(err)
	}
	want, err := templateLook()
	if err != nil {
		t.Fatal(err)
	}
	u := &used{t: t, base: base, name: newName(), want: want}
	if err := adminExec(base, "CREATE DATABASE "+u.name+" TEMPLATE "+templateName+copyFiles()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := adminExec(base, "DROP DATABASE IF EXISTS "+u.name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return u
}

func (u *used) connect() *pgx.Conn {
	u.t.Helper()
	conn, err := pgx.Connect(u.t.Context(), withDatabase(u.base, u.name))
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { _ = conn.Close(context.Background()) }) // it may have been ended
	return conn
}

func (u *used) exec(statements ...string) {
	u.t.Helper()
	conn := u.connect()
	for _, statement := range statements {
		if _, err := conn.Exec(u.t.Context(), strings.ReplaceAll(statement, "THIS", u.name)); err != nil {
			u.t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := conn.Close(u.t.Context()); err != nil {
		u.t.Fatal(err)
	}
}

func (u *used) renew() error {
	var err error
	u.name, err = renew(u.t, u.base, u.name)
	return err
}

func (u *used) mustRenew() {
	u.t.Helper()
	if err := u.renew(); err != nil {
		u.t.Fatal(err)
	}
}

func (u *used) count(query string) (n int) {
	u.t.Helper()
	if err := u.connect().QueryRow(u.t.Context(), query).Scan(&n); err != nil {
		u.t.Fatal(err)
	}
	return n
}

func TestEveryChangeOfMoreThanRowsIsSeen(t *testing.T) {
	u := newUsed(t)
	conn := u.connect()
	for _, change := range []string{
		"CREATE TABLE more (id TEXT)",
		"CREATE UNLOGGED TABLE more AS SELECT 1 AS one",
		"CREATE TEMP TABLE more (id TEXT)",
		"DROP TABLE nodes CASCADE",
		"TRUNCATE schema_migrations",
		"ALTER TABLE nodes ADD COLUMN more TEXT",
		"ALTER TABLE nodes ADD COLUMN more TEXT; ALTER TABLE nodes DROP COLUMN more",
		"ALTER TABLE nodes ALTER COLUMN seen_at SET DEFAULT 7",
		"ALTER TABLE nodes ALTER COLUMN seen_at DROP NOT NULL",
		"ALTER TABLE nodes ADD CONSTRAINT more CHECK (seen_at <> 7)",
		"ALTER TABLE nodes SET (fillfactor = 50)",
		"ALTER TABLE execution_steps DISABLE TRIGGER ALL",
		"ALTER TABLE nodes ENABLE ROW LEVEL SECURITY",
		"CREATE INDEX more ON nodes (seen_at)",
		"CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
		"CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER more BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION more()",
		"CREATE RULE more AS ON INSERT TO nodes DO INSTEAD NOTHING",
		"CREATE SEQUENCE more",
		"CREATE VIEW more AS SELECT 1 AS one",
		"CREATE MATERIALIZED VIEW more AS SELECT 1 AS one",
		"CREATE TYPE more AS ENUM ('one')",
		"CREATE SCHEMA more",
		"CREATE STATISTICS more ON seen_at, started_at FROM nodes",
		"COMMENT ON TABLE nodes IS 'more'",
		"GRANT SELECT ON nodes TO PUBLIC",
		"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
		"SELECT lo_create(0)",
		"ALTER DATABASE THIS SET statement_timeout = '7s'",
		"ALTER ROLE CURRENT_USER IN DATABASE THIS SET statement_timeout = '7s'",
		"ALTER DATABASE THIS CONNECTION LIMIT 7",
		"GRANT CREATE ON DATABASE THIS TO PUBLIC",
	} {
		if err := u.compareWith(conn, change); !errors.Is(err, errChanged) {
			t.Errorf("%s: %v", change, err)
		}
		if err := u.compareWith(conn, "SELECT"); err != nil {
			t.Fatalf("%s, undone: %v", change, err)
		}
	}
}

// compareWith compares in a transaction that is undone.
func (u *used) compareWith(conn *pgx.Conn, change string) error {
	u.t.Helper()
	for _, statement := range []string{"BEGIN", strings.ReplaceAll(change, "THIS", u.name)} {
		if _, err := conn.Exec(u.t.Context(), statement); err != nil {
			u.t.Fatalf("%s: %v", statement, err)
		}
	}
	different := u.want.compare(u.t.Context(), conn)
	if _, err := conn.Exec(u.t.Context(), "ROLLBACK"); err != nil {
		u.t.Fatal(err)
	}
	return different
}

func TestADatabaseOfWhichMoreThanRowsHasChangedIsDropped(t *testing.T) {
	for _, change := range []string{
		"CREATE TABLE more (id TEXT)",
		"ALTER DATABASE THIS SET statement_timeout = '7s'",
		"VACUUM schema_migrations", // other plans
		"ANALYZE schema_migrations",
	} {
		t.Run(change, func(t *testing.T) {
			u := newUsed(t)
			u.exec(change)
			if err := u.renew(); !errors.Is(err, errChanged) {
				t.Errorf("it is kept, or dropped for another reason: %v", err)
			}
		})
	}
}

func TestChangedRowsOfTheTemplateHaveADatabaseDropped(t *testing.T) {
	for _, change := range []string{
		"DELETE FROM schema_migrations",
		"DELETE FROM schema_migrations WHERE version = 1",
		"UPDATE schema_migrations SET version = 1000 WHERE version = 1",
	} {
		t.Run(change, func(t *testing.T) {
			u := newUsed(t)
			u.exec(change)
			if err := u.renew(); !errors.Is(err, errRows) {
				t.Errorf("it is kept, or dropped for another reason: %v", err)
			}
		})
	}
}

func TestADatabaseThatHasGrownIsDropped(t *testing.T) {
	u := newUsed(t)
	u.exec("BEGIN", "SET LOCAL session_replication_role = replica",
		fmt.Sprintf("INSERT INTO schema_migrations SELECT 1000 + n, n FROM generate_series(1, %d) n", growthLimit/32), "ROLLBACK")
	if err := u.renew(); !errors.Is(err, errGrown) {
		t.Errorf("it is kept, or dropped for another reason: %v", err)
	}
}

// failed is a test that has failed.
type failed struct{ testing.TB }

func (failed) Failed() bool { return true }

func TestADatabaseOfAFailedTestIsDropped(t *testing.T) {
	u := newUsed(t)
	if _, err := renew(failed{t}, u.base, u.name); !errors.Is(err, errFailed) {
		t.Error(err)
	}
	giveBack(failed{t}, u.base, u.name)
	if _, err := pgx.Connect(t.Context(), withDatabase(u.base, u.name)); err == nil {
		t.Error("it is still there")
	}
}

// TestWhoMayNotHasDatabasesDropped has a user of the server who owns nothing.
func TestWhoMayNotHasDatabasesDropped(t *testing.T) {
	u := newUsed(t)
	role := newName()
	if err := adminExec(u.base, "CREATE ROLE "+role+" LOGIN"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := adminExec(u.base, "DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	as, err := url.Parse(u.base)
	if err != nil {
		t.Fatal(err)
	}
	as.User = url.User(role)
	if err := sever(as.String(), u.name, newName(), severLimit); err == nil {
		t.Error("it is renamed")
	}
	if err := wash(withDatabase(as.String(), u.name), u.want); err == nil {
		t.Error("it is washed")
	}
}

func TestADatabaseThatIsGoneIsNotKept(t *testing.T) {
	u := newUsed(t)
	if err := drop(u.base, u.name); err != nil {
		t.Fatal(err)
	}
	if err := u.renew(); err == nil {
		t.Error("it is kept")
	}
}

func TestNoMoreDatabasesAreKeptThanThereIsRoomFor(t *testing.T) {
	var s shelf
	if err := s.put("closed"); !errors.Is(err, errNoRoom) {
		t.Error("it is kept where nobody drops it in the end")
	}
	s.begin()
	for n := range keptAtMost {
		if err := s.put(fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	if s.room() == nil || s.put("more") == nil {
		t.Error("one more is kept")
	}
	if name, ok := s.take(); !ok || name != fmt.Sprint(keptAtMost-1) {
		t.Error(name, ok)
	}
	if err := s.room(); err != nil {
		t.Error(err)
	}
}

// TestDatabasesAreUsedAgain has the gain of it all: where a change of the schema makes every database be dropped, this fails.
func TestDatabasesAreUsedAgain(t *testing.T) {
	name := func(t *testing.T) (id int) {
		if err := Postgres(t).Read().QueryRowContext(t.Context(), "SELECT oid::bigint FROM pg_database WHERE datname = current_database()").Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	var first, second int
	t.Run("first", func(t *testing.T) { first = name(t) })
	t.Run("second", func(t *testing.T) { second = name(t) })
	if first != second {
		t.Errorf("after database %d comes %d", first, second)
	}
}

// TestANextTestFindsATemplate fills the tables, without a look at what may be in them.
func TestANextTestFindsATemplate(t *testing.T) {
	u := newUsed(t)
	for range 3 {
		u.exec(fillAll)
		u.mustRenew()
		there, err := lookAt(withDatabase(u.base, u.name))
		if err != nil {
			t.Fatal(err)
		}
		for table, rows := range there.rows {
			if !slices.Equal(rows, u.want.rows[table]) {
				t.Errorf("%s has %q", table, rows)
			}
		}
		if len(there.rows) < 20 {
			t.Errorf("only %d tables were filled", len(there.rows))
		}
		if u.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()") != 0 {
			t.Error("somebody is connected already")
		}
	}
}

// fillAll puts a row of made-up values in every table that has room for one.
const fillAll = `SET session_replication_role = replica; DO $$
DECLARE t record; list text;
BEGIN
	FOR t IN SELECT oid, oid::regclass AS name FROM pg_class WHERE relkind = 'r' AND oid >= ` + firstOwn + ` AND relname <> 'schema_migrations' LOOP
		SELECT string_agg(CASE WHEN atttypid = 'bool'::regtype THEN 'true' WHEN atttypid = 'bytea'::regtype THEN '''x''' ELSE '''7''' END, ', ' ORDER BY attnum)
			INTO list FROM pg_attribute WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped;
		BEGIN
			EXECUTE format('INSERT INTO %s VALUES (%s)', t.name, list);
		EXCEPTION WHEN check_violation OR invalid_text_representation THEN NULL;
		END;
	END LOOP;
END $$`

// TestNothingOfASessionReachesTheNextTest has sessions in the midst of something, as those of a server that was killed.
func TestNothingOfASessionReachesTheNextTest(t *testing.T) {
	u := newUsed(t)
	writer, locker, listener := u.connect(), u.connect(), u.connect()
	for conn, statements := range map[*pgx.Conn][]string{
		writer:   {"BEGIN", "CREATE TABLE uncommitted (id TEXT)", "INSERT INTO schema_migrations VALUES (1000, 7)", "NOTIFY bell", "SELECT pg_advisory_xact_lock(7)"},
		locker:   {"SELECT pg_advisory_lock(8)"},
		listener: {"LISTEN bell", "NOTIFY bell, 'old'"},
	} {
		for _, statement := range statements {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	old := u.name
	u.mustRenew()
	if _, err := writer.Exec(t.Context(), "COMMIT"); err == nil {
		t.Error("a transaction of before is committed")
	}
	if _, err := pgx.Connect(t.Context(), withDatabase(u.base, old)); err == nil {
		t.Error("the old URL leads somewhere")
	}
	next := u.connect()
	var free bool
	if err := next.QueryRow(t.Context(), "SELECT pg_try_advisory_lock(7) AND pg_try_advisory_lock(8)").Scan(&free); err != nil || !free {
		t.Errorf("a lock of before is held (%v)", err)
	}
	if n := u.count("SELECT count(*) FROM schema_migrations WHERE version = 1000"); n != 0 {
		t.Error("a row of before is there")
	}
	for _, statement := range []string{"LISTEN bell", "NOTIFY bell, 'new'"} {
		if _, err := next.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if heard, err := next.WaitForNotification(t.Context()); err != nil || heard.Payload != "new" {
		t.Errorf("it hears %+v (%v)", heard, err)
	}
}

// TestAStragglerWritesNowhere has somebody connect and write anew, as often as the connection is ended, while the database is
// given back and used.
func TestAStragglerWritesNowhere(t *testing.T) {
	u := newUsed(t)
	old := withDatabase(u.base, u.name)
	began, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for range 20 {
			conn, err := pgx.Connect(t.Context(), old)
			if err != nil {
				continue
			}
			for n := 0; err == nil; n++ {
				_, err = conn.Exec(t.Context(), "INSERT INTO schema_migrations VALUES (1000 + $1, 7) ON CONFLICT DO NOTHING", n)
				select {
				case began <- struct{}{}:
				default:
				}
			}
			_ = conn.Close(context.Background()) // it was ended from the other side
		}
	}()
	<-began
	u.mustRenew()
	written := func() int { return u.count("SELECT count(*) FROM schema_migrations WHERE version >= 1000") }
	if n := written(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	<-ended
	if n := written(); n != 0 {
		t.Errorf("%d rows are written", n)
	}
}
