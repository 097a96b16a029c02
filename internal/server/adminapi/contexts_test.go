package adminapi_test

import (
	"context"
	"testing"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

const contextsPath = "/api/v1/admin/contexts"

func TestContextsAreMadeChangedShownAndDeleted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		do := func(method, path string, body any) reply {
			t.Helper()
			return call(t, s, s.Owner, method, contextsPath+path, body)
		}
		do("POST", "", `{"orgId":"default","name":"review/eu","branchRestrictions":["main"],"minimumTrust":"known"}`).want(t, 201, `"created":true`)
		do("POST", "", `{"orgId":"default","name":"review/eu","requiredReviewers":["u1"],"branchRestrictions":null}`).want(t, 200, `"created":false`)
		do("PATCH", "/review%2Feu/policy", `{"orgId":"default","envName":"x","minimumTrust":null,"waitTimerSeconds":0,"concurrencyLimit":2}`).want(t, 200, `{"updated":true}`)
		do("POST", "/review%2Feu/bind", `{"orgId":"default","scopePattern":"aws/**"}`).want(t, 201, `{"created":true}`)
		do("POST", "/review%2Feu/bind", `{"orgId":"default","scopePattern":"aws/**","hostPattern":"**"}`).want(t, 200, `{"created":false}`)
		do("PUT", "/review%2Feu/variables/LEVEL?orgId=default", `{"value":"eu","locked":true}`).want(t, 200, `{"set":true}`)
		do("PUT", "/review%2Feu/variables/LEVEL?orgId=default", `{"value":"other","routingKey":"generic:default:s"}`).want(t, 200, `{"set":true}`)
		do("GET", "/review%2Feu/variables?orgId=default", nil).want(t, 200, `"key":"LEVEL","value":"eu","locked":true`)
		for _, part := range []string{`"name":"review/eu"`, `"minimum_trust":null`, `"wait_timer_seconds":0`, `"concurrency_limit":2`,
			`"required_reviewers":["u1"]`, `"branch_restrictions":[]`, `"scope_pattern":"aws/**","host_pattern":"**"`,
			`"overrides":[{"routing_key":"generic:default:s","key":"LEVEL","value":"other"}]`, `"environment":{`} {
			do("GET", "/review%2Feu?orgId=default", nil).want(t, 200, part)
		}
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/default/aws%2Fprod/TOKEN", `{"value":"planted-value"}`).want(t, 200, "set")
		do("GET", "?orgId=default&includeSecrets=true", nil).want(t, 200, `"secret_keys":["TOKEN"]`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/environments?orgId=default", nil).want(t, 200, `"environments":[{`)
		do("DELETE", "/review%2Feu/variables/LEVEL?orgId=default&routingKey=generic:default:s", nil).want(t, 200, `{"deleted":true}`)
		do("DELETE", "/review%2Feu/variables/LEVEL?orgId=default", nil).want(t, 200, `{"deleted":true}`)
		do("GET", "/review%2Feu?orgId=default", nil).want(t, 200, `"variables":[],"overrides":[]`)
		do("POST", "/templates", `{"orgId":"default","templateName":"t","type":"template","enabled":false,"variables":{"A":"1","B":"2"}}`).want(t, 201, `"variablesSet":2`)
		do("GET", "/t?orgId=default", nil).want(t, 200, `"type":"fixed","glob_pattern":null,"enabled":false`)
		do("DELETE", "/review%2Feu?orgId=default", nil).want(t, 200, `{"deleted":true}`)
		do("GET", "/review%2Feu?orgId=default", nil).want(t, 404, `context not found (org=default, name=review/eu)`)
	})
}

func TestContextsRefuseWhatIsWrongByItsName(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		call(t, s, s.Owner, "POST", contextsPath, `{"orgId":"default","name":"prod"}`).want(t, 201, "created")
		for _, tt := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"POST", "", `{"name":"x"}`, 400, "orgId required"},
			{"POST", "", `{"orgId":"default"}`, 400, "name must have"},
			{"POST", "", `{"orgId":"default","name":1}`, 400, `"path":"name"`},
			{"POST", "", `{"orgId":"default","name":"x","type":"glob"}`, 400, "globPattern is required"},
			{"POST", "", `{"orgId":"default","name":"x","type":"other"}`, 400, "type must be"},
			{"POST", "", `{"orgId":"default","name":"x","minimumTrust":"some"}`, 400, "minimumTrust"},
			{"POST", "", `{"orgId":"default","name":"x","waitTimerSeconds":-1}`, 400, "waitTimerSeconds"},
			{"POST", "", `{"orgId":"default","name":"x","waitTimerSeconds":"1"}`, 400, `"path":"waitTimerSeconds"`},
			{"PATCH", "/prod/policy", `{"orgId":"default","type":"glob"}`, 400, "at least one policy field is required"},
			{"PATCH", "/none/policy", `{"orgId":"default","enabled":false}`, 404, "context not found (org=default, name=none)"},
			{"POST", "/prod/bind", `{"orgId":"default"}`, 400, `"path":"scopePattern"`},
			{"POST", "/prod/bind", `{"orgId":"default","scopePattern":"a","hostPattern":"/(a+)+$/"}`, 400, "hostPattern"},
			{"POST", "/none/bind", `{"orgId":"default","scopePattern":"a"}`, 404, "context not found"},
			{"PUT", "/prod/variables/KICI_X?orgId=default", `{"value":"v"}`, 400, "KICI_"},
			{"PUT", "/prod/variables/X?orgId=default", `{}`, 400, `"path":"value"`},
			{"PUT", "/prod/variables/X?orgId=default", `{"value":"v","locked":true,"routingKey":"r"}`, 400, `"path":"locked"`},
			{"PUT", "/prod/variables/X", `{"value":"v"}`, 400, "orgId required"},
			{"POST", "/templates", `{"orgId":"default","templateName":"t","variables":{"A":1}}`, 400, `"path":"variables"`},
			{"POST", "/templates", `{"orgId":"default","templateName":"t","type":"other"}`, 400, `"path":"type"`},
			{"POST", "", `{"orgId":"default","name":"x","waitTimerSeconds":9223372036854775807}`, 400, "waitTimerSeconds"},
			{"POST", "", `{"orgId":"default","name":"x","holdExpirySeconds":1e300}`, 400, `"path":"holdExpirySeconds"`},
			{"GET", "", ``, 400, "orgId required"},
			{"DELETE", "/none?orgId=default", ``, 404, "context not found"},
		} {
			call(t, s, s.Owner, tt.method, contextsPath+tt.path, tt.body).want(t, tt.status, tt.want)
		}
		call(t, s, s.Auditor, "GET", contextsPath+"?orgId=default", nil).want(t, 403, "")
		call(t, s, s.Scoped, "GET", contextsPath+"?orgId=default", nil).want(t, 403, "")
	})
}

func TestAContextWithPendingHoldsIsNotDeleted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		call(t, s, s.Owner, "POST", contextsPath, `{"orgId":"default","name":"reviews","type":"glob","globPattern":"review/*"}`).want(t, 201, "created")
		call(t, s, s.Owner, "POST", contextsPath, `{"orgId":"default","name":"prod"}`).want(t, 201, "created")
		s.Register(t, "run-1", scopedKey)
		hold := func(statement string) {
			t.Helper()
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		hold(`INSERT INTO held_runs (id, org_id, run_id, hold_scope, hold_type, queue_type, trigger_source, context_name, status, reason, clauses, created_at, expires_at)
			VALUES ('h', 'default', 'run-1', 'job', 'reviewer', 'context', 'context', 'review/PR-7', 'pending', '{}', '[]', 1, 2)`)
		call(t, s, s.Owner, "DELETE", contextsPath+"/prod?orgId=default", nil).want(t, 200, "deleted")
		call(t, s, s.Owner, "DELETE", contextsPath+"/reviews?orgId=default", nil).want(t, 409, `"errorCode":"pending_held_runs"`)
		call(t, s, s.Owner, "GET", contextsPath+"/reviews?orgId=default", nil).want(t, 200, `"glob_pattern":"review/*"`)
		hold(`UPDATE held_runs SET status = 'approved'`)
		call(t, s, s.Owner, "DELETE", contextsPath+"/reviews?orgId=default", nil).want(t, 200, "deleted")
	})
}
