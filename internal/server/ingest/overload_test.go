package ingest_test

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"

	"kici/internal/server/forge"
	"kici/internal/server/inbox"
	"kici/internal/server/ingest"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// blockingSources lets a test hold requests inside the ingress.
type blockingSources struct {
	ingest.Sources
	entered chan struct{}
	leave   chan struct{}
}

func (b blockingSources) ByName(ctx context.Context, org, name string) (forge.Source, error) {
	b.entered <- struct{}{}
	<-b.leave
	return b.Sources.ByName(ctx, org, name)
}

func TestRequestsBeyondTheBoundComeAgain(t *testing.T) {
	b := blockingSources{entered: make(chan struct{}), leave: make(chan struct{})}
	g := newRig(t, storetest.SQLite(t), func(d *ingest.Deps) {
		b.Sources = d.Sources
		d.Sources, d.MaxConcurrent = b, 1
	})
	g.source(t, "s", nil)
	first := make(chan reply)
	go func() { first <- post(t, g.path("s"), "{}", nil) }()
	<-b.entered
	if r := post(t, g.path("s"), "{}", nil); r.Status != 429 || r.RetryAfter != "5" || r.Body["reason"] != "Overloaded" {
		t.Errorf("second request: %+v", r)
	}
	close(b.leave)
	if r := <-first; r.Status != 202 {
		t.Errorf("first request: %+v", r)
	}
}

func TestFullInboxShedsVerifiedDeliveries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db, nil)
		g.source(t, "s", nil)
		for range 50 {
			post(t, g.path("s"), "{}", nil)
		}
		r := post(t, g.path("s"), "{}", map[string]string{"x-delivery-id": "late"})
		if r.Status != 429 || r.RetryAfter != "5" {
			t.Errorf("got %+v", r)
		}
		var status string
		if err := db.Read().QueryRowContext(t.Context(), "SELECT status FROM event_log WHERE delivery_id LIKE '%:late'").Scan(&status); err != nil || status != "shed" {
			t.Errorf("event log says %q, %v", status, err)
		}
	})
}

// failingInbox is a store that has gone wrong.
type failingInbox struct {
	ingest.Inbox
	err error
}

func (f failingInbox) Accept(context.Context, inbox.Delivery) (inbox.Outcome, error) { return 0, f.err }

func TestFailingStoreLeavesNothingHalfDone(t *testing.T) {
	db := storetest.SQLite(t)
	g := newRig(t, db, nil)
	g.source(t, "s", nil)
	// A database whose last table refuses: everything before it must be undone.
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TRIGGER no_log BEFORE INSERT ON event_log BEGIN SELECT RAISE(ABORT, 'broken'); END")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	key := map[string]string{"x-idempotency-key": "k"}
	if r := post(t, g.path("s"), "{}", key); r.Status != 500 || r.Body["error"] != "Internal server error" {
		t.Errorf("got %+v", r)
	}
	if stored := g.stored(t); stored != "0 inbox, 0 keys, 0 log" {
		t.Errorf("stored %s", stored)
	}
	err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, "DROP TRIGGER no_log")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := post(t, g.path("s"), "{}", key); r.Status != 202 {
		t.Errorf("the sender's next try: %+v", r)
	}
}

func TestFullDiskIsToldApart(t *testing.T) {
	db := storetest.SQLite(t)
	g := newRig(t, db, nil)
	g.source(t, "s", nil)
	// SQLite gives the error of a full disk for a file that may not grow.
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, "PRAGMA max_page_count = 1")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r := post(t, g.path("s"), strings.Repeat("x", 500_000), nil)
	if r.Status != 503 || r.Body["error"] != "Storage is full" || r.RetryAfter == "" {
		t.Errorf("got %+v", r)
	}
	if !strings.Contains(g.log.String(), "no room left") {
		t.Errorf("the log does not say so: %s", g.log.String())
	}
}

func TestUnexpectedErrorIsOneOfTheServer(t *testing.T) {
	g := newRig(t, storetest.SQLite(t), func(d *ingest.Deps) { d.Inbox = failingInbox{d.Inbox, io.ErrUnexpectedEOF} })
	g.source(t, "s", nil)
	if r := post(t, g.path("s"), "{}", nil); r.Status != 500 {
		t.Errorf("got %+v", r)
	}
}

func TestClientIsWhoTheTrustedProxySays(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	tests := []struct {
		name    string
		trusted []netip.Prefix
		headers map[string]string
		want    bool // that the client is 192.0.2.7
	}{
		{"nobody is trusted", nil, map[string]string{"X-Forwarded-For": "192.0.2.7", "X-Real-IP": "192.0.2.7"}, false},
		{"proxy says so", loopback, map[string]string{"X-Forwarded-For": "192.0.2.7"}, true},
		{"through two proxies", loopback, map[string]string{"X-Forwarded-For": "192.0.2.7, 10.1.1.1"}, true},
		{"client made up the first entry", loopback, map[string]string{"X-Forwarded-For": "192.0.2.7, 198.51.100.1"}, false},
		{"real address", loopback, map[string]string{"X-Real-IP": "192.0.2.7"}, true},
		{"forwarded wins", loopback, map[string]string{"X-Forwarded-For": "198.51.100.1", "X-Real-IP": "192.0.2.7"}, false},
		{"mapped address", loopback, map[string]string{"X-Forwarded-For": "::ffff:192.0.2.7"}, true},
		{"no address", loopback, map[string]string{"X-Forwarded-For": "192.0.2.7, unknown"}, false},
		{"nothing said", loopback, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, storetest.SQLite(t), func(d *ingest.Deps) { d.TrustedProxies = tt.trusted })
			g.source(t, "s", func(s *forge.Settings) {
				s.Verification = forge.Verification{Method: forge.MethodIP, Allowlist: []string{"192.0.2.7"}}
			})
			if r := post(t, g.path("s"), "{}", tt.headers); (r.Status == 202) != tt.want {
				t.Errorf("status %d, want accepted: %v", r.Status, tt.want)
			}
		})
	}
}
