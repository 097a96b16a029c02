package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kici/internal/server/store"
)

// outliving are the tables that may name a run which is forgotten, and why.
var outliving = map[string]string{
	"forgotten_runs":   "it says for a while that there was one",
	"access_log":       "an audit log has a time of its own",
	"secret_audit_log": "an audit log has a time of its own",
	"cache_discards":   "paths of blobs that are removed once no link leads to them",
}

// column is one of a table.
type column struct {
	name, kind string
}

// schema are the columns of every table, the tables in the order of their making.
func schema(t *testing.T, db *store.DB) (tables []string, columns map[string][]column) {
	t.Helper()
	query := `SELECT m.name, c.name, c.type FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' ORDER BY m.rowid, c.cid`
	if db.Dialect == store.Postgres {
		query = `SELECT c.relname, a.attname, format_type(a.atttypid, NULL) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
			WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.oid, a.attnum`
	}
	rows, err := db.Read().QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns = map[string][]column{}
	for rows.Next() {
		var table string
		var c column
		if err := rows.Scan(&table, &c.name, &c.kind); err != nil {
			t.Fatal(err)
		}
		if table == "schema_migrations" {
			continue
		}
		if columns[table] == nil {
			tables = append(tables, table)
		}
		c.kind = strings.ToLower(c.kind)
		columns[table] = append(columns[table], c)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return tables, columns
}

// rowOf makes a value for every column of a table: the ids of the run and its job where they belong, in all other texts
// one that is the same in every table, so that what refers to another row finds it.
func rowOf(table string, columns []column, name string, at int64) (names []string, values []any) {
	for _, c := range columns {
		var value any
		switch {
		case c.name == "parent_run_id", c.name == "original_run_id":
			continue // it repeats nothing
		case c.name == "held_run_id":
			value = "x-" + name
		case strings.HasSuffix(c.name, "run_id"):
			value = "run-" + name
		case c.name == "job_id", strings.HasSuffix(c.name, "_job_id"), c.name == "upstream_id", table == "dispatch_queue" && c.name == "id":
			value = "job-" + name
		case c.kind == "bigint":
			value = at
		case c.kind == "boolean":
			value = false
		case c.kind == "bytea":
			value = []byte("x-" + name)
		default:
			value = "x-" + name
		}
		names, values = append(names, c.name), append(values, value)
	}
	return names, values
}

// namedIn are the tables of which a row holds the text, with how many do.
func namedIn(t *testing.T, db *store.DB, columns map[string][]column, text string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for table, list := range columns {
		var where []string
		for _, c := range list {
			where = append(where, "CAST("+c.name+" AS TEXT) LIKE $1")
		}
		var n int
		err := db.Read().QueryRowContext(t.Context(), "SELECT count(*) FROM "+table+" WHERE "+strings.Join(where, " OR "), "%"+text+"%").Scan(&n)
		if err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		if n > 0 {
			found[table] = n
		}
	}
	return found
}

// TestNothingIsLeftOfAForgottenRun puts a run into every table that there is, by the schema itself: a table that is new is
// asked, too.
func TestNothingIsLeftOfAForgottenRun(t *testing.T) {
	eachServer(t, func(t *testing.T, s *Server) {
		tables, columns := schema(t, s.db)
		for name, at := range map[string]int64{"old": 1, "new": s.clock.Millis()} {
			for _, table := range tables {
				names, values := rowOf(table, columns[table], name, at)
				err := s.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "),
						store.Places(len(names), 1, "$%d")), values...)
					return err
				})
				if err != nil {
					t.Fatalf("fill %s: %v", table, err)
				}
			}
		}
		before := namedIn(t, s.db, columns, "-old")
		if before["execution_runs"] != 1 || before["execution_steps"] != 1 || before["run_secret_outputs"] != 1 || before["kici_events"] != 1 {
			t.Fatalf("the run is in %v", before)
		}
		young := namedIn(t, s.db, columns, "-new")
		if err := s.engine.RetainOnce(t.Context(), s.retention()); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"run-old", "job-old"} {
			for table, n := range namedIn(t, s.db, columns, id) {
				if outliving[table] == "" {
					t.Errorf("%s still holds %s in %d rows", table, id, n)
				}
			}
		}
		for table, n := range namedIn(t, s.db, columns, "-new") {
			if n != young[table] {
				t.Errorf("%s held the other run in %d rows and now does in %d", table, young[table], n)
			}
			delete(young, table)
		}
		if len(young) > 0 {
			t.Errorf("the other run has gone from %v", slices.Sorted(maps.Keys(young)))
		}
	})
}

// eachServer opens a server that is not started on each engine.
func eachServer(t *testing.T, test func(t *testing.T, s *Server)) {
	run := func(t *testing.T, url string) {
		settings := DefaultSettings()
		settings.Port, settings.DataDir, settings.DatabaseURL, settings.RunMaxAge = 0, filepath.Join(t.TempDir(), "data"), url, 24*time.Hour
		settings.MasterKey = strings.Repeat("0f", 32)
		s, err := Open(t.Context(), settings, slog.New(slog.DiscardHandler), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			s.live.Stop()
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
		test(t, s)
	}
	eachEngine(t, run)
}
