package store_test

import (
	"testing"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// A statement without arguments takes another way through the driver than the others.
func TestAnOnlyStatementWhoseConnectionEnds(t *testing.T) {
	db, scissors := storetest.Faulty(t, storetest.PostgresURL(t))
	for _, up := range []bool{true, false} {
		for name, args := range map[string][]any{"SELECT 1": nil, "SELECT $1::int": {1}} {
			if err := db.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			scissors.CutAfter(0, up)
			if _, err := db.Read().ExecContext(t.Context(), name, args...); !store.IsUnavailable(err) {
				t.Errorf("%s (up: %v): %v is not told as an outage", name, up, err)
			}
			scissors.Mend()
		}
	}
}
