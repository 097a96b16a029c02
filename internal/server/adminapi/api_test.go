package adminapi_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kici/internal/server/adminapi"
	"kici/internal/server/auth"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// reply is what a server answered.
type reply struct {
	status int
	header http.Header
	body   string
}

// call sends one request. A body that is no text is sent as JSON.
func call(t *testing.T, s *rig, token, method, path string, body any) reply {
	t.Helper()
	text, isText := body.(string)
	if body != nil && !isText {
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, strings.TrimSpace(string(raw))}
}

// want fails the test unless the reply has the status and its body contains the text.
func (r reply) want(t *testing.T, status int, text string) reply {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, text) {
		t.Fatalf("got %d %s, want %d with %s", r.status, r.body, status, text)
	}
	return r
}

func decode[T any](t *testing.T, r reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("decode %s: %v", r.body, err)
	}
	return v
}

// filled is a route's path with something in place of its parameters.
func filled(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	for {
		before, rest, found := strings.Cut(path, "{")
		if !found {
			return method, path
		}
		_, after, _ := strings.Cut(rest, "}")
		path = before + "0" + after
	}
}

func TestEveryRouteNeedsATokenThatMay(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	routes := adminapi.Routes(s.API)
	if len(routes) < 30 {
		t.Fatalf("only %d routes", len(routes))
	}
	for _, r := range routes {
		method, path := filled(r.Pattern)
		call(t, s, "", method, path, nil).want(t, 401, "Missing authorization")
		call(t, s, "wrong", method, path, nil).want(t, 401, "Invalid or expired token")
		if method != http.MethodGet {
			call(t, s, s.Auditor, method, path, nil).want(t, 403, `Role \"auditor\" does not have permission`)
		}
		if r.Unscoped {
			call(t, s, s.Scoped, method, path, nil).want(t, 403, "this route requires an unscoped admin token")
		}
		if got := call(t, s, s.Owner, method, path, nil); got.status >= 500 || got.status == 401 || got.status == 403 {
			t.Errorf("owner on %s: %d %s", r.Pattern, got.status, got.body)
		}
	}
}

func TestUnknownAdminPathsNeedATokenToo(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	for _, path := range []string{"/api/v1/admin", "/api/v1/admin/nothing", "/api/v1/agent-tokens/a/b", "/admin/config"} {
		call(t, s, "", "GET", path, nil).want(t, 401, "Missing authorization")
		call(t, s, s.Auditor, "GET", path, nil).want(t, 404, "Not found")
	}
	call(t, s, "", "PUT", "/api/v1/agent-tokens", nil).want(t, 401, "Missing authorization")
	call(t, s, "", "GET", "/elsewhere", nil).want(t, 404, "Not found")
}

func TestDatabaseThatIsAwayRefuses(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: t.TempDir() + "/kici.db"})
	if err != nil {
		t.Fatal(err)
	}
	s := newRig(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range adminapi.Routes(s.API) {
		method, path := filled(r.Pattern)
		call(t, s, s.Owner, method, path, nil).want(t, 503, "Authentication unavailable")
	}
	call(t, s, "", "GET", "/ready", nil).want(t, 503, `"database":"unavailable"`)
	call(t, s, "", "GET", "/health", nil).want(t, 200, `"status":"ok"`)
}

func TestRequestIDIsTheCallersWhenItIsSafe(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	for _, tt := range []struct {
		sent string
		kept bool
	}{{"abc-1.2_Z", true}, {"", false}, {"has space", false}, {strings.Repeat("x", 129), false}} {
		req, _ := http.NewRequest("GET", s.URL+"/health", nil)
		req.Header.Set("X-Request-ID", tt.sent)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		got := res.Header.Get("X-Request-ID")
		if got == "" || (got == tt.sent) != tt.kept {
			t.Errorf("sent %q, got %q", tt.sent, got)
		}
	}
}

func TestBadInputIsRefusedAfterThePermission(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	tests := []struct {
		name, method, path string
		body               any
		status             int
		text               string
	}{
		{"no JSON", "POST", "/api/v1/admin/tokens", "{", 400, `{"error":"Invalid JSON body"}`},
		{"wrong type", "POST", "/api/v1/admin/tokens", `{"label":3}`, 400, `"details":[{"path":"label","message":"expected string, received number"`},
		{"unknown members are ignored", "POST", "/api/v1/admin/tokens", `{"label":"x","role":"auditor","more":1}`, 201, `"token"`},
		{"body too large", "POST", "/api/v1/admin/tokens", `"` + strings.Repeat("x", 25<<20) + `"`, 413, "Request body too large"},
		{"NUL in the path", "GET", "/api/v1/admin/runs/a%00b", nil, 400, "malformed value for a typed field"},
		{"bad UTF-8 in the query", "GET", "/api/v1/admin/runs?repo=%ff", nil, 400, "malformed value for a typed field"},
		{"missing parameter", "GET", "/api/v1/admin/secrets/scopes", nil, 400, `{"error":"orgId required"}`},
		{"missing parameters", "GET", "/api/v1/admin/secrets/keys?orgId=x", nil, 400, `{"error":"orgId and scope required"}`},
		{"bad time", "GET", "/api/v1/admin/runs?since=yesterday", nil, 400, `{"error":"Invalid since timestamp"}`},
		{"bad cursor", "GET", "/api/v1/admin/access-log?cursor=!", nil, 400, `{"error":"Invalid cursor"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			call(t, s, s.Owner, tt.method, tt.path, tt.body).want(t, tt.status, tt.text)
			if tt.method != "GET" {
				call(t, s, s.Auditor, tt.method, tt.path, `{}`).want(t, 403, "permission")
			}
		})
	}
}

func TestLogLineHoldsNoSecret(t *testing.T) {
	db := storetest.SQLite(t)
	var lines strings.Builder
	log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tokens := auth.New(db, time.Now, slog.New(slog.DiscardHandler))
	token, _, err := tokens.CreateAdmin(t.Context(), auth.NewAdminToken{Label: "o", Role: auth.RoleOwner})
	if err != nil {
		t.Fatal(err)
	}
	api := adminapi.New(adminapi.Deps{DB: db, Tokens: tokens, Clock: time.Now, Log: log})
	r := httptest.NewRequest("PUT", "/api/v1/admin/secrets/default/s/k?token=planted-query", strings.NewReader(`{"value":"planted-value"}`))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if w.Code != 503 || !strings.Contains(w.Body.String(), "Secret store not configured") {
		t.Errorf("without a store: %d %s", w.Code, w.Body)
	}
	got := lines.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "method=PUT") || !strings.Contains(got, "requestId=") {
		t.Errorf("log %q", got)
	}
	for _, secret := range []string{"planted", token} {
		if strings.Contains(got, secret) {
			t.Errorf("log holds %q: %s", secret, got)
		}
	}
}

func TestPublicRoutesSayHowTheServerIs(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	call(t, s, "", "GET", "/health", nil).want(t, 200, `"version":"1.2.3"`)
	call(t, s, "", "GET", "/ready", nil).want(t, 200, `{"status":"ready","checks":{"boot":"ok","database":"ok"}}`)
	call(t, s, "", "GET", "/api/v1/capabilities", nil).want(t, 200, `{"orchestratorVersion":"1.2.3","protocolVersion":1,"minProtocolVersion":1}`)
	cold := httptest.NewServer(adminapi.New(adminapi.Deps{DB: s.DB, Tokens: s.Tokens, Clock: time.Now, Log: slog.New(slog.DiscardHandler)}))
	defer cold.Close()
	res, err := http.Get(cold.URL + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 503 {
		t.Errorf("before the boot has ended: %d", res.StatusCode)
	}
}
