package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestRequire(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		owner, _ := mustAdmin(t, tokens, NewAdminToken{Label: "o", Role: RoleOwner})
		auditor, _ := mustAdmin(t, tokens, NewAdminToken{Label: "a", Role: RoleAuditor})
		scoped, _ := mustAdmin(t, tokens, NewAdminToken{Label: "s", Role: RoleOwner, RoutingKey: "github:1"})
		scopedAuditor, _ := mustAdmin(t, tokens, NewAdminToken{Label: "sa", Role: RoleAuditor, RoutingKey: "github:1"})
		soon := clock.now.Add(time.Minute).UnixMilli()
		expired, _ := mustAdmin(t, tokens, NewAdminToken{Label: "e", Role: RoleOwner, ExpiresAt: &soon})
		agent, _, _ := tokens.CreateStatic(t.Context(), NewAgentToken{})
		clock.advance(time.Hour)

		echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if tokens.AllowRoutingKey(w, r, r.URL.Query().Get("key")) {
				id, _ := FromContext(r.Context())
				w.Write([]byte(id.Label))
			}
		})
		any, all := tokens.Require(RunCancel, echo), tokens.RequireUnscoped(RunCancel, echo)
		tests := []struct {
			name    string
			handler http.Handler
			header  string
			status  int
			body    string
		}{
			{"no header", any, "", 401, `{"error":"Missing authorization"}`},
			{"basic", any, "Basic eDp5", 401, `{"error":"Missing authorization"}`},
			{"empty", any, "Bearer ", 401, `{"error":"Missing authorization"}`},
			{"unknown", any, "Bearer x", 401, `{"error":"Invalid or expired token"}`},
			{"expired", any, "Bearer " + expired, 401, `{"error":"Invalid or expired token"}`},
			{"agent token", any, "Bearer " + agent, 401, `{"error":"Invalid or expired token"}`},
			{"no permission", any, "Bearer " + auditor, 403, `{"error":"Role \"auditor\" does not have permission \"run.cancel\""}`},
			{"allowed", any, "Bearer " + owner, 200, "o"},
			{"scheme in any case", any, "bearer " + owner, 200, "o"},
			{"other routing key", any, "Bearer " + scoped, 403, `{"error":"Access denied: token is restricted to a single routing key and this request targets a different one"}`},
			{"scoped on an unscoped route", all, "Bearer " + scoped, 403, `{"error":"Access denied: this route requires an unscoped admin token (the calling token is restricted to a single routing key)"}`},
			{"scope before permission", all, "Bearer " + scopedAuditor, 403, `{"error":"Access denied: this route requires an unscoped admin token (the calling token is restricted to a single routing key)"}`},
			{"unscoped route", all, "Bearer " + owner, 200, "o"},
		}
		for _, tt := range tests {
			r := httptest.NewRequest("GET", "/?key=github:2", nil)
			r.Header.Set("Authorization", tt.header)
			w := httptest.NewRecorder()
			tt.handler.ServeHTTP(w, r)
			if w.Code != tt.status || strings.TrimSpace(w.Body.String()) != tt.body {
				t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
			}
			if tt.status != 200 && w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: content type %q", tt.name, w.Header().Get("Content-Type"))
			}
		}
		r := httptest.NewRequest("GET", "/?key=github:1", nil)
		r.Header.Set("Authorization", "Bearer "+scoped)
		w := httptest.NewRecorder()
		any.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("own routing key: %d %s", w.Code, w.Body)
		}
		denied, _, err := tokens.AccessLog(t.Context(), AccessFilter{Outcome: OutcomeDenied})
		if err != nil || len(denied) != 3 || denied[0].Action != "run.cancel" || denied[0].ActorMeta["role"] == nil {
			t.Errorf("noted %+v, %v", denied, err)
		}
	})
}

func TestLookupThatCannotBeDoneRefuses(t *testing.T) {
	db := storetest.SQLite(t)
	tokens, _ := newTokens(db)
	token, _ := mustAdmin(t, tokens, NewAdminToken{Label: "o", Role: RoleOwner})
	exec(t, db, `DROP TABLE admin_tokens`)
	handler := tokens.Require(RunRead, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("passed") }))
	for header, want := range map[string]int{"Bearer " + token: 503, "": 401} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want || want == 503 && !strings.Contains(w.Body.String(), `{"error":"Authentication unavailable"}`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}
