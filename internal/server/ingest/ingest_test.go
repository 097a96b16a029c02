package ingest_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/seal"
	"kici/internal/server/forge"
	"kici/internal/server/inbox"
	"kici/internal/server/ingest"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// rig is an ingress on a real database behind a real socket.
type rig struct {
	db      *store.DB
	sources *forge.Sources
	inbox   *inbox.Inbox
	now     atomic.Int64 // milliseconds
	log     lockedBuffer
	url     string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t *testing.T, db *store.DB, change func(*ingest.Deps)) *rig {
	t.Helper()
	keys, err := seal.NewKeyring(strings.Repeat("0f", 32), "")
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{db: db}
	g.now.Store(1_700_000_000_000)
	clock := func() time.Time { return time.UnixMilli(g.now.Load()) }
	g.sources = forge.NewSources(db, keys, clock)
	g.inbox = inbox.New(db, clock, nil, inbox.Options{NodeID: "n", MaxWaiting: 50})
	deps := ingest.Deps{Sources: g.sources, Inbox: g.inbox, Clock: clock, Log: slog.New(slog.NewTextHandler(&g.log, nil))}
	if change != nil {
		change(&deps)
	}
	server := httptest.NewServer(ingest.New(deps).Handler())
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *rig) source(t *testing.T, name string, change func(*forge.Settings)) forge.Source {
	t.Helper()
	s := forge.Settings{Options: forge.DefaultOptions(), Verification: forge.Verification{Method: forge.MethodNone}}
	s.Name = name
	if change != nil {
		change(&s)
	}
	src, err := g.sources.Create(t.Context(), "default", s)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

type reply struct {
	Status     int
	Body       map[string]any
	RetryAfter string
}

func post(t *testing.T, url, body string, headers map[string]string) reply {
	t.Helper()
	return send(t, url, strings.NewReader(body), headers)
}

func send(t *testing.T, url string, body io.Reader, headers map[string]string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := reply{Status: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")}
	if err := json.NewDecoder(resp.Body).Decode(&r.Body); err != nil {
		t.Fatalf("status %d with a body that is no JSON: %v", resp.StatusCode, err)
	}
	return r
}

func (g *rig) path(name string) string { return g.url + "/webhook/default/generic/" + name }

// stored counts what the database holds of deliveries.
func (g *rig) stored(t *testing.T) string {
	t.Helper()
	var in, keys, log int
	err := g.db.Read().QueryRowContext(t.Context(),
		"SELECT (SELECT count(*) FROM inbox), (SELECT count(*) FROM idempotency_keys), (SELECT count(*) FROM event_log)").Scan(&in, &keys, &log)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d inbox, %d keys, %d log", in, keys, log)
}

func signature(body, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEveryStepAnswersAsDocumented(t *testing.T) {
	local := func(s *forge.Settings) { s.Local = &forge.LocalConfig{RepoBasePath: "/srv"} }
	signed := func(s *forge.Settings) {
		s.Verification = forge.Verification{Method: forge.MethodHMAC, Secret: "s", Next: "n"}
	}
	const push = `{"ref":"refs/heads/main"}`
	tests := []struct {
		name    string
		source  func(*forge.Settings)
		before  func(t *testing.T, g *rig, src forge.Source)
		target  string // name in the path when it is not the source's
		body    string
		headers map[string]string
		status  int
		want    string // $ID is the routing key, $HASH that of the odd key
		stored  string
	}{
		{name: "unknown source", target: "other", status: 404, want: `{"rejected":true,"reason":"Unknown source"}`},
		{name: "disabled source", source: func(s *forge.Settings) { s.Enabled = false }, status: 404, want: `{"rejected":true,"reason":"Unknown source"}`},
		{name: "deleted source", before: func(t *testing.T, g *rig, src forge.Source) {
			if err := g.sources.Delete(t.Context(), src.ID); err != nil {
				t.Fatal(err)
			}
		}, status: 404, want: `{"rejected":true,"reason":"Unknown source"}`},
		{name: "body too large", source: func(s *forge.Settings) { s.MaxPayloadBytes = 10 }, body: "12345678901",
			status: 413, want: `{"rejected":true,"reason":"Payload too large","maxBytes":10}`},
		{name: "body of just the size", source: func(s *forge.Settings) { s.MaxPayloadBytes = 10 }, body: "1234567890", headers: map[string]string{"x-delivery-id": "d"},
			status: 202, want: `{"accepted":true,"deliveryId":"$ID:d"}`, stored: "1 inbox, 1 keys, 1 log"},
		{name: "verification unreadable", source: signed, before: func(t *testing.T, g *rig, _ forge.Source) {
			err := g.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE sources SET verification_config = 'damaged'")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}, body: push, status: 500, want: `{"rejected":true,"reason":"Source verification misconfigured"}`},
		{name: "signature missing", source: signed, body: push, status: 401, want: `{"rejected":true,"reason":"Invalid signature"}`},
		{name: "signature of another body", source: signed, body: push + " ", headers: map[string]string{"X-Signature-256": signature(push, "s")},
			status: 401, want: `{"rejected":true,"reason":"Invalid signature"}`},
		{name: "signature right", source: signed, body: push, headers: map[string]string{"X-Signature-256": signature(push, "s"), "X-Delivery-ID": "d"},
			status: 202, want: `{"accepted":true,"deliveryId":"$ID:d"}`, stored: "1 inbox, 1 keys, 1 log"},
		{name: "signature of the next secret", source: signed, body: push, headers: map[string]string{"X-Signature-256": signature(push, "n"), "X-Delivery-ID": "d"},
			status: 202, want: `{"accepted":true,"deliveryId":"$ID:d"}`, stored: "1 inbox, 1 keys, 1 log"},
		{name: "local source without JSON", source: local, body: "a=1", headers: map[string]string{"x-event-type": "push"},
			status: 400, want: `{"rejected":true,"reason":"Local source requires JSON body"}`},
		{name: "local source with empty body", source: local, status: 400, want: `{"rejected":true,"reason":"Local source requires JSON body"}`},
		{name: "local source without event", source: local, body: push, status: 400, want: `{"rejected":true,"reason":"Missing x-event-type header for local source"}`},
		{name: "local push", source: local, body: push, headers: map[string]string{"x-event-type": "push", "content-type": "text/plain", "x-request-id": "r"},
			status: 202, want: `{"accepted":true,"deliveryId":"$ID:r"}`, stored: "1 inbox, 0 keys, 1 log"},
		{name: "event not allowed", source: func(s *forge.Settings) { s.AllowedEvents = []string{"a"} }, body: "{}", headers: map[string]string{"x-event-type": "X"},
			status: 200, want: `{"accepted":true,"status":"filtered","reason":"Event 'X' not in allowed list"}`},
		{name: "event allowed by a configured path", source: func(s *forge.Settings) { s.AllowedEvents, s.EventTypePath = []string{"a"}, "$.data.0.type" },
			body: `{"data":[{"type":"a"}]}`, headers: map[string]string{"x-idempotency-key": "k"},
			status: 202, want: `{"accepted":true,"deliveryId":"$ID:k"}`, stored: "1 inbox, 1 keys, 1 log"},
		{name: "key at a configured path", source: func(s *forge.Settings) { s.IdempotencyKeyPath = "id" }, body: `{"id":"e9"}`, headers: map[string]string{"x-delivery-id": "d"},
			status: 202, want: `{"accepted":true,"deliveryId":"$ID:e9"}`, stored: "1 inbox, 1 keys, 1 log"},
		{name: "key in a configured header", source: func(s *forge.Settings) { s.IdempotencyKeyHeader, s.IdempotencyKeyPath = "Stripe-Id", "id" },
			body: `{"id":"e9"}`, headers: map[string]string{"stripe-id": "h"},
			status: 202, want: `{"accepted":true,"deliveryId":"$ID:h"}`, stored: "1 inbox, 1 keys, 1 log"},
		{name: "odd key is hashed", body: `{}`, headers: map[string]string{"x-idempotency-key": "a\tb"},
			status: 202, want: `{"accepted":true,"deliveryId":"$ID:sha256-$HASH"}`, stored: "1 inbox, 1 keys, 1 log"},
	}
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db, nil)
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				src := g.source(t, fmt.Sprint("s", i), tt.source)
				if tt.before != nil {
					tt.before(t, g, src)
				}
				target := tt.target
				if target == "" {
					target = src.Name
				}
				got := post(t, g.path(target), tt.body, tt.headers)
				hash := sha256.Sum256([]byte("a\tb"))
				want := object(t, strings.NewReplacer("$ID", src.RoutingKey, "$HASH", hex.EncodeToString(hash[:])).Replace(tt.want))
				if got.Status != tt.status {
					t.Errorf("status %d, want %d", got.Status, tt.status)
				}
				if diff := cmp.Diff(want, got.Body); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
				if tt.stored == "" {
					tt.stored = "0 inbox, 0 keys, 0 log"
				}
				if stored := g.stored(t); stored != tt.stored {
					t.Errorf("stored %s, want %s", stored, tt.stored)
				}
				g.clear(t)
			})
		}
	})
}

func (g *rig) clear(t *testing.T) {
	t.Helper()
	err := g.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		for _, table := range []string{"inbox", "idempotency_keys", "event_log"} {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Another node changes a source between two deliveries to this one.
func TestChangesOfASourceAreInForceWithTheNextDelivery(t *testing.T) {
	tests := []struct {
		name   string
		change func(*forge.Settings)
		body   string
		want   int
	}{
		{"nothing", func(*forge.Settings) {}, `{"a":"after"}`, 202},
		{"another secret", func(s *forge.Settings) { s.Verification.Secret = "other" }, `{"a":"after"}`, 401},
		{"off", func(s *forge.Settings) { s.Enabled = false }, `{"a":"after"}`, 404},
		{"another name", func(s *forge.Settings) { s.Name = "moved" }, `{"a":"after"}`, 404},
		{"smaller bodies", func(s *forge.Settings) { s.MaxPayloadBytes = 4 }, `{"a":"after"}`, 413},
		{"larger bodies", func(s *forge.Settings) { s.MaxPayloadBytes = 1000 }, `{"a":"` + strings.Repeat("x", 100) + `"}`, 202},
		{"fewer deliveries", func(s *forge.Settings) { s.RateLimitRPM = 1 }, `{"a":"after"}`, 429},
		{"just enough deliveries", func(s *forge.Settings) { s.RateLimitRPM = 2 }, `{"a":"after"}`, 202},
		{"other events", func(s *forge.Settings) { s.AllowedEvents = []string{"none"} }, `{"a":"after"}`, 200},
	}
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db, nil)
		keys, err := seal.NewKeyring(strings.Repeat("0f", 32), "")
		if err != nil {
			t.Fatal(err)
		}
		other := forge.NewSources(db, keys, func() time.Time { return time.UnixMilli(g.now.Load()) })
		deliver := func(t *testing.T, name, body string) int {
			t.Helper()
			return post(t, g.path(name), body, map[string]string{"x-signature-256": signature(body, "s")}).Status
		}
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				name := fmt.Sprint("s", i)
				src := g.source(t, name, func(s *forge.Settings) {
					s.Verification, s.MaxPayloadBytes = forge.Verification{Method: forge.MethodHMAC, Secret: "s"}, 50
				})
				if got := deliver(t, name, `{"a":"before"}`); got != 202 {
					t.Fatalf("the first delivery: %d", got)
				}
				if _, err := other.Update(t.Context(), src.ID, func(s *forge.Settings) error { tt.change(s); return nil }); err != nil {
					t.Fatal(err)
				}
				if got := deliver(t, name, tt.body); got != tt.want {
					t.Errorf("got %d, want %d", got, tt.want)
				}
			})
		}
		t.Run("another source of the name", func(t *testing.T) {
			src := g.source(t, "again", nil)
			if got := deliver(t, "again", "{}"); got != 202 {
				t.Fatalf("the first delivery: %d", got)
			}
			if err := other.Delete(t.Context(), src.ID); err != nil {
				t.Fatal(err)
			}
			if got := deliver(t, "again", "{}"); got != 404 {
				t.Errorf("to a deleted source: %d", got)
			}
			src = g.source(t, "again", nil)
			if got := deliver(t, "again", "{}"); got != 202 {
				t.Errorf("to the new one: %d", got)
			}
			if err := other.DeleteHard(t.Context(), src.ID); err != nil {
				t.Fatal(err)
			}
			if got := deliver(t, "again", "{}"); got != 404 {
				t.Errorf("to a removed source: %d", got)
			}
		})
		t.Run("off and on", func(t *testing.T) {
			src := g.source(t, "switch", nil)
			for _, on := range []bool{true, false, true} {
				if err := other.SetEnabled(t.Context(), src.ID, on); err != nil {
					t.Fatal(err)
				}
				want := map[bool]int{true: 202, false: 404}[on]
				for range 2 {
					if got := deliver(t, "switch", "{}"); got != want {
						t.Errorf("on %v: %d", on, got)
					}
				}
			}
		})
	})
}

func TestRepeatedDeliveries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db, nil)
		src := g.source(t, "s", nil)
		key := map[string]string{"x-idempotency-key": "k"}
		id := src.RoutingKey + ":k"
		steps := []struct {
			name  string
			after time.Duration
			want  string
		}{
			{"first", 0, `{"accepted":true,"deliveryId":"` + id + `"}`},
			{"within the window of the key", 299 * time.Second, `{"accepted":true,"duplicate":true}`},
			{"within the life of the claim", time.Second, `{"accepted":true,"deliveryId":"` + id + `","duplicate":true}`},
		}
		for _, step := range steps {
			g.now.Add(step.after.Milliseconds())
			if diff := cmp.Diff(object(t, step.want), post(t, g.path("s"), "{}", key).Body); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
		if stored := g.stored(t); stored != "1 inbox, 1 keys, 1 log" {
			t.Errorf("stored %s", stored)
		}
	})
}

func TestConcurrentRedeliveriesAreAcceptedOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db, nil)
		g.source(t, "s", nil)
		var accepted atomic.Int32
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if r := post(t, g.path("s"), "{}", map[string]string{"x-delivery-id": "d"}); r.Status == 202 {
					accepted.Add(1)
				} else if r.Status != 200 || r.Body["duplicate"] != true {
					t.Errorf("got %+v", r)
				}
			})
		}
		wg.Wait()
		if accepted.Load() != 1 || g.stored(t) != "1 inbox, 1 keys, 1 log" {
			t.Errorf("%d accepted, stored %s", accepted.Load(), g.stored(t))
		}
	})
}

func TestRateIsLimitedInASlidingMinute(t *testing.T) {
	g := newRig(t, storetest.SQLite(t), nil)
	g.source(t, "s", func(s *forge.Settings) { s.RateLimitRPM = 2 })
	for _, step := range []struct {
		after      time.Duration
		status     int
		retryAfter string
	}{
		{0, 202, ""}, {20 * time.Second, 202, ""}, {500 * time.Millisecond, 429, "40"}, {39 * time.Second, 429, "1"},
		{500 * time.Millisecond, 202, ""}, {0, 429, "20"}, {20 * time.Second, 202, ""},
	} {
		g.now.Add(step.after.Milliseconds())
		r := post(t, g.path("s"), "{}", nil)
		if r.Status != step.status || r.RetryAfter != step.retryAfter {
			t.Errorf("after %s: %d, Retry-After %q; want %d, %q", step.after, r.Status, r.RetryAfter, step.status, step.retryAfter)
		}
	}
}

func TestStoredDeliveryIsTheRawBodyWithoutStrippedHeaders(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db, nil)
		src := g.source(t, "s", nil)
		body := "a=1&b=\x00\xff"
		post(t, g.path("s"), body, map[string]string{"authorization": "Bearer secret", "x-kept": "v", "x-event-type": "e",
			"content-type": "application/x-www-form-urlencoded"})
		w, ok, err := g.inbox.Next(t.Context())
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		d := w.Delivery
		if string(d.Payload) != body || d.Event != "e" || d.SourceID != src.ID || d.OrgID != "default" || d.RoutingKey != src.RoutingKey {
			t.Errorf("stored %+v", d)
		}
		if d.Headers["authorization"] != "" || d.Headers["x-kept"] != "v" || d.Headers["content-type"] == "" {
			t.Errorf("stored headers %v", d.Headers)
		}
		if strings.Contains(g.log.String(), "secret") {
			t.Error("a credential is in the log")
		}
	})
}

// A body without an announced length is counted as it comes.
func TestUnannouncedBodyIsCounted(t *testing.T) {
	g := newRig(t, storetest.SQLite(t), nil)
	g.source(t, "s", func(s *forge.Settings) { s.MaxPayloadBytes = 1000 })
	if r := send(t, g.path("s"), struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1001))}, nil); r.Status != 413 || r.Body["maxBytes"] != 1000.0 {
		t.Errorf("got %+v", r)
	}
	if r := send(t, g.path("s"), struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1000))}, nil); r.Status != 202 {
		t.Errorf("got %+v", r)
	}
}
