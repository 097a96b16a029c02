package adminapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/adminwire"
	"kici/internal/server/forge"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

const emitPath = "/api/v1/admin/events/emit"

func TestAnEventIsEmittedByHand(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		settings := forge.Settings{Options: forge.DefaultOptions(), Verification: forge.Verification{Method: forge.MethodNone}}
		settings.Name = "told"
		src, err := s.Sources.Create(t.Context(), "default", settings)
		check(t, err)
		key := src.RoutingKey
		got := call(t, s, s.Admin, "POST", emitPath, `{"eventName":"deploy","payload":{"n":1},"sourceRoutingKey":"`+key+`","sourceRepo":"acme/app"}`).want(t, 201, `{"eventId":"`)
		var made adminwire.EmittedEvent
		check(t, json.Unmarshal([]byte(got.body), &made))
		var row string
		var created, expires int64
		check(t, db.Read().QueryRowContext(t.Context(), `SELECT event_name || ' ' || payload || ' ' || org_id || ' ' || source_repo || ' ' || source_routing_key || ' ' ||
			CAST(chain_depth AS TEXT), created_at, expires_at FROM kici_events WHERE id = $1`, made.EventID).Scan(&row, &created, &expires))
		if row != `deploy {"n":1} default acme/app `+key+" 0" || created != s.Millis.Load() || expires-created != time.Hour.Milliseconds() {
			t.Errorf("%s, created at %d, kept for %d ms", row, created, expires-created)
		}
		call(t, s, s.Owner, "POST", emitPath, `{"eventName":"bare"}`).want(t, 201, "eventId")
		var bare string
		check(t, db.Read().QueryRowContext(t.Context(), `SELECT payload || org_id FROM kici_events WHERE event_name = 'bare'`).Scan(&bare))
		if bare != "{}default" {
			t.Errorf("an event of nothing but a name is %s", bare)
		}
		var noted []string
		for _, e := range accessLog(t, s) {
			if e.TargetID == made.EventID {
				noted = append(noted, fmt.Sprint(e.Action, " ", e.Outcome, " ", e.Meta["eventName"], " ", e.Meta["sourceRoutingKey"]))
			}
		}
		if d := cmp.Diff([]string{"event.emit allowed deploy " + key}, noted); d != "" {
			t.Error(d)
		}
	})
}

func TestAnEventThatMustNotBeEmittedIsRefused(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	for _, tt := range []struct {
		name, token, body string
		status            int
		says              string
	}{
		{"no name", s.Owner, `{}`, 400, `"path":"eventName"`},
		{"a name of the server's", s.Owner, `{"eventName":"__workflow_complete"}`, 400, "Event name is reserved"},
		{"a name that is too long", s.Owner, `{"eventName":"` + strings.Repeat("n", 256) + `"}`, 400, "Event name is longer"},
		{"a payload that is no object", s.Owner, `{"eventName":"e","payload":[1]}`, 400, "not a JSON object"},
		{"a payload of null", s.Owner, `{"eventName":"e","payload":null}`, 400, "not a JSON object"},
		{"a payload that is too large", s.Owner, `{"eventName":"e","payload":{"a":"` + strings.Repeat("x", 256<<10) + `"}}`, 400, "the limit is 262144"},
		{"a repository that cannot be one", s.Owner, `{"eventName":"e","sourceRepo":"` + strings.Repeat("r", 257) + `"}`, 400, `"path":"sourceRepo"`},
		{"a source that is not there", s.Owner, `{"eventName":"e","sourceRoutingKey":"generic:default:none"}`, 400, `"path":"sourceRoutingKey"`},
		{"a token without the permission", s.Auditor, `{"eventName":"e"}`, 403, "does not have permission"},
		{"no key by a token that is bound to one", s.Scoped, `{"eventName":"e"}`, 403, "single routing key"},
		{"another key than the token's", s.Scoped, `{"eventName":"e","sourceRoutingKey":"generic:default:other"}`, 403, "single routing key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			call(t, s, tt.token, "POST", emitPath, tt.body).want(t, tt.status, tt.says)
			if n := s.count(t, "kici_events"); n != 0 {
				t.Errorf("%d events", n)
			}
		})
	}
	for range 3 {
		call(t, s, s.Owner, "POST", emitPath, `{"eventName":"e"}`).want(t, 201, "")
	}
	call(t, s, s.Owner, "POST", emitPath, `{"eventName":"e"}`).want(t, 429, "Rate limit exceeded for event 'e'. Retry after 60000ms")
	if n := s.Dropped.Load(); n != 1 {
		t.Errorf("%d events counted as dropped", n)
	}
	call(t, s, s.Owner, "POST", emitPath, `{"eventName":"another"}`).want(t, 201, "")
	s.API.Events = nil
	call(t, s, s.Owner, "POST", emitPath, `{"eventName":"e"}`).want(t, 404, "Not found")
}

func (s *rig) count(t *testing.T, table string) (n int) {
	t.Helper()
	check(t, s.DB.Read().QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}
