package adminapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/adminapi"
	"kici/internal/server/auth"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// Every call of every route leaves one row, or none where reads of its kind are sampled and this one was not drawn.
func TestEveryCallIsInTheAccessLogOnce(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	for _, r := range adminapi.Routes(s.API) {
		method, path := filled(r.Pattern)
		for name, token := range map[string]string{"owner": s.Owner, "auditor": s.Auditor} {
			got := call(t, s, token, method, path, nil)
			rows := 0
			for _, e := range accessLog(t, s) {
				if e.RequestID != got.header.Get("X-Request-ID") {
					continue
				}
				rows++
				if (got.status >= 400) != (e.Outcome != auth.OutcomeAllowed) || (got.status == http.StatusForbidden) != (e.Outcome == auth.OutcomeDenied) {
					t.Errorf("%s as %s: answered %d, noted as %s", r.Pattern, name, got.status, e.Outcome)
				}
			}
			if rows > 1 || rows == 0 && (got.status >= 400 || method != http.MethodGet) {
				t.Errorf("%s as %s: answered %d, %d rows", r.Pattern, name, got.status, rows)
			}
		}
	}
}

func TestAccessNamesWhatItIsAbout(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	call(t, s, s.Scoped, "POST", "/api/v1/admin/runs/r1/cancel", `{"force":true}`).want(t, 200, "cancelling")
	s.Register(t, "other", "generic:default:other")
	call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/other", nil).want(t, 403, "Access denied")
	call(t, s, s.Admin, "GET", "/api/v1/admin/runs/none/explain", nil).want(t, 404, "Run none not found")
	want := map[string]auth.Entry{
		"r1":    {Action: "run.cancel", TargetType: "run", Outcome: auth.OutcomeAllowed, RoutingKey: scopedKey},
		"other": {Action: "run.detail.read", TargetType: "run", Outcome: auth.OutcomeDenied, RoutingKey: scopedKey},
		"none":  {Action: "run.detail.read", TargetType: "run", Outcome: auth.OutcomeError},
	}
	found := 0
	for _, e := range accessLog(t, s) {
		w := want[e.TargetID]
		if e.Action != w.Action || e.TargetType != w.TargetType || e.Outcome != w.Outcome || e.RoutingKey != w.RoutingKey {
			t.Errorf("noted %+v, want %+v", e, w)
		}
		found++
	}
	if found != len(want) {
		t.Errorf("%d rows, want %d", found, len(want))
	}
}

func accessLog(t *testing.T, s *rig) []auth.Entry {
	t.Helper()
	entries, _, err := s.Tokens.AccessLog(t.Context(), auth.AccessFilter{Limit: 200})
	check(t, err)
	return entries
}

func TestAccessesAreFoundByTheirOrganisation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1")
		const org = "default"
		hold := s.hold(t, "held", scopedKey)
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/contexts", `{"orgId":"default","name":"prod"}`}, {"DELETE", "/contexts/prod?orgId=default", ""},
			{"PUT", "/secrets/default/a/K", `{"value":"v"}`}, {"POST", "/secrets/scopes", `{"orgId":"default","scope":"b"}`},
			{"PATCH", "/org-settings/global-workflows", `{"customerId":"default","allowSelfApproval":true}`},
			{"POST", "/runs/r1/cancel", ""}, {"GET", "/runs/r1/secret-outputs", ""},
			{"POST", "/held-runs/decision", `{"holdId":"` + hold + `","decision":"reject"}`},
		} {
			if got := call(t, s, s.Admin, c.method, "/api/v1/admin"+c.path, c.body); got.status >= 300 {
				t.Fatalf("%s %s: %d %s", c.method, c.path, got.status, got.body)
			}
		}
		var actions []string
		entries, _, err := s.Tokens.AccessLog(t.Context(), auth.AccessFilter{OrgID: org})
		check(t, err)
		for _, e := range slices.Backward(entries) {
			if e.Action != "held_run.list.read" { // in part
				actions = append(actions, e.Action)
			}
		}
		want := []string{"context.create", "context.delete", "secret.set", "secret_scope.create", "org_settings.update", "run.cancel", "secret.list.read", "held_run.reject"}
		if diff := cmp.Diff(want, actions); diff != "" {
			t.Error(diff)
		}
		for filter, want := range map[string]int{"action=environment.create": 1, "action=context.create": 1, "targetType=environment": 2, "action=environment.get": 0} {
			got := call(t, s, s.Admin, "GET", "/api/v1/admin/access-log?orgId=default&"+filter, nil)
			if n := strings.Count(got.body, `"id":`); n != want {
				t.Errorf("%s: %d, want %d: %s", filter, n, want, got.body)
			}
		}
	})
}
