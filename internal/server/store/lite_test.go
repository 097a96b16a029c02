package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

type (
	word   string
	number int32
)

// values are arguments, and places those that columns are read into.
func values() []any {
	text := "text"
	large := strings.Repeat("large ä", 50_000)
	return []any{nil, 0, -1, 7, int64(1) << 62, uint8(200), number(-3), true, false, 1.5, "", "a", "\x00 in \x00", "ä€𝄞", large, word("w"),
		&text, (*string)(nil), []byte("blob\x00"), []byte(nil), json.RawMessage(`{"a":1}`), []byte(large), sql.NullString{},
		sql.NullString{String: "s", Valid: true}, sql.NullInt64{Int64: 5, Valid: true}, sql.Null[bool]{V: true, Valid: true}}
}

func places() []any {
	return []any{new(string), new(int), new(int64), new(bool), new(float64), new([]byte), new(word), new(number), new(*string), new(*int64),
		new(sql.NullString), new(sql.NullInt64), new(sql.Null[bool])}
}

// What a transaction stores and reads is what others read, whatever the types of Go.
func TestTheWriterAndTheReadersAgreeOnValues(t *testing.T) {
	db := storetest.SQLite(t)
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		for _, value := range values() {
			theirs := places()
			for i, ours := range places() {
				var kind, theirKind string
				const query = "SELECT $2, typeof($2), $1"
				err := tx.QueryRowContext(ctx, query, 1, value).Scan(ours, &kind, new(int))
				want := db.Read().QueryRowContext(ctx, query, 1, value).Scan(theirs[i], &theirKind, new(int))
				name := fmt.Sprintf("%T %.20v into a %T", value, value, ours)
				switch {
				case err != nil && want == nil && convertsText(theirKind, ours):
				case (err == nil) != (want == nil):
					t.Errorf("%s: %v, others: %v", name, err, want)
				case err == nil && (kind != theirKind || !reflect.DeepEqual(ours, theirs[i])):
					t.Errorf("%s: %.30v of type %s, others: %.30v of type %s", name, ours, kind, theirs[i], theirKind)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// convertsText tells that only database/sql reads a value of one kind as a text, or a text as another kind. PostgreSQL does
// not either, so that nothing relies on it.
func convertsText(kind string, dest any) bool {
	elem := reflect.TypeOf(dest).Elem()
	for elem.Kind() == reflect.Pointer {
		elem = elem.Elem()
	}
	isText := elem.Kind() == reflect.String || elem.Kind() == reflect.Slice
	return isText != (kind == "text" || kind == "blob")
}

func TestWhatTheWriterRefuses(t *testing.T) {
	db := storetest.SQLite(t)
	for name, do := range map[string]func(ctx context.Context, tx *store.Tx) error{
		"an argument of no such type": func(ctx context.Context, tx *store.Tx) error { return tx.Do(ctx, "SELECT $1", time.Now()) },
		"too few arguments":           func(ctx context.Context, tx *store.Tx) error { return tx.Do(ctx, "SELECT $1, $2", 1) },
		"no statement":                func(ctx context.Context, tx *store.Tx) error { return tx.Do(ctx, "SELEC") },
		"a failure behind a row": func(ctx context.Context, tx *store.Tx) error {
			return tx.All(ctx, store.Ask{Query: "SELECT 1 UNION ALL SELECT abs(-9223372036854775808)", Row: func(store.Row) error { return nil }})
		},
		"too few places": func(ctx context.Context, tx *store.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT 1, 2").Scan(new(int))
		},
		"no place": func(ctx context.Context, tx *store.Tx) error { return tx.QueryRowContext(ctx, "SELECT 1").Scan(5) },
		"a place of another type": func(ctx context.Context, tx *store.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT 1").Scan(new(time.Time))
		},
		"too large a number": func(ctx context.Context, tx *store.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT 3000000000").Scan(new(number))
		},
		"rows of several statements": func(ctx context.Context, tx *store.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT 1; SELECT 2").Scan(new(int))
		},
	} {
		if err := db.Write(t.Context(), do); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT 1 WHERE FALSE").Scan(new(int)); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("no row: %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// Rows that were left do not keep their statement from running again, and do not go on with what it gives then.
func TestAStatementThatRunsAgain(t *testing.T) {
	db := storetest.SQLite(t)
	const query = "SELECT value FROM json_each($1)"
	read := func(ctx context.Context, q store.Querier) {
		t.Helper()
		if got, err := store.Texts(ctx, q, query, `["a","b"]`); err != nil || !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("read %q, %v", got, err)
		}
	}
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.QueryContext(ctx, query, `["c","d"]`)
		if err != nil {
			return err
		}
		if !rows.Next() {
			t.Error("no row")
		}
		read(ctx, tx)
		if rows.Scan(new(string)) == nil || rows.Next() || rows.Err() == nil {
			t.Error("rows whose statement has run again go on")
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
		for i := range 2000 { // more statements than are kept
			rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT value + %d FROM json_each($1)", i), "[1,2]")
			if err != nil || !rows.Next() {
				return err
			}
			defer func() {
				var n int
				if !rows.Next() || rows.Scan(&n) != nil || n != i+2 || rows.Next() || rows.Err() != nil {
					t.Errorf("row %d: %d, %v", i, n, rows.Err())
				}
			}()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for range 2 {
		func() {
			defer func() { _ = recover() }()
			_ = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				return tx.All(ctx, store.Ask{Query: query, Args: []any{`["e","f"]`}, Row: func(store.Row) error { panic("on purpose") }})
			})
		}()
	}
	if err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { read(ctx, tx); return nil }); err != nil {
		t.Error(err)
	}
}

func TestSeveralStatementsInOneText(t *testing.T) {
	db := storetest.SQLite(t)
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return tx.Do(ctx, `-- first
CREATE TABLE a (b BLOB); -- second
INSERT INTO a VALUES ('x'), (x'00ff');
SELECT b FROM a;
UPDATE a SET b = 'y' WHERE b = 'x';
-- no more
`)
	})
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	if err := db.Read().QueryRowContext(t.Context(), "SELECT b FROM a WHERE b = $1", []byte{0, 255}).Scan(&b); err != nil || !bytes.Equal(b, []byte{0, 255}) {
		t.Errorf("%q, %v", b, err)
	}
	if err := db.Read().QueryRowContext(t.Context(), "SELECT b FROM a WHERE b = 'y'").Scan(&b); err != nil {
		t.Error(err)
	}
}

func TestADatabaseThatWasClosed(t *testing.T) {
	db := storetest.SQLite(t)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Do(ctx, "SELECT 1") })
	if !store.IsUnavailable(err) {
		t.Errorf("%v is not told as an outage", err)
	}
}
