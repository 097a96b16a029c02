package store_test

import (
	"testing"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestConnectionsThatEndByThemselvesAreCounted(t *testing.T) {
	if idle, used := storetest.SQLite(t).Lost(); idle != 0 || used != 0 {
		t.Errorf("SQLite has lost %d and %d", idle, used)
	}
	link := storetest.PostgresURL(t)
	db, _ := storetest.Faulty(t, link)
	direct := dial(t, link)
	end := func(after string) {
		t.Helper()
		if err := db.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := direct.Exec(t.Context(), terminate); err != nil {
			t.Fatal(err)
		}
		if _, err := direct.Exec(t.Context(), after); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, wantIdle, wantUsed int64) {
		t.Helper()
		var idle, used int64
		for idle+used < wantIdle+wantUsed && t.Context().Err() == nil { // the pool counts beside its callers
			i, u := db.Lost()
			idle, used = idle+i, used+u
		}
		if idle != wantIdle || used != wantUsed {
			t.Errorf("%s: lost %d idle and %d in use", what, idle, used)
		}
	}
	end("SELECT 1")
	if err := db.Ping(t.Context()); !store.IsUnavailable(err) {
		t.Errorf("%v is not told as an outage", err)
	}
	want("in use", 0, 1)
	end("SELECT pg_sleep(1.2)") // so that the pool looks after it before it lends it
	if err := db.Ping(t.Context()); err != nil {
		t.Errorf("after a connection that was idle: %v", err)
	}
	want("idle", 1, 0)
}
