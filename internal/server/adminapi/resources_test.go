package adminapi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/server/auth"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestTokensAreMadeListedAndRevoked(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		made := decode[adminwire.CreatedAdminToken](t, call(t, s, s.Owner, "POST", "/api/v1/admin/tokens",
			`{"label":"ci","role":"auditor","expiresAt":"2026-02-01T00:00:00Z"}`).want(t, 201, `"token"`))
		call(t, s, made.Token, "GET", "/api/v1/admin/runs", nil).want(t, 200, `"runs":[]`)
		listed := call(t, s, s.Owner, "GET", "/api/v1/admin/tokens", nil).want(t, 200, `"label":"ci"`)
		if strings.Contains(listed.body, made.Token) {
			t.Error("the list shows a token")
		}
		list := decode[adminwire.AdminTokenList](t, listed)
		if len(list.Tokens) != 5 || !strings.Contains(listed.body, `"expires_at":"2026-02-01T00:00:00.000Z"`) {
			t.Errorf("listed %s", listed.body)
		}
		call(t, s, s.Owner, "DELETE", "/api/v1/admin/tokens/"+made.ID, nil).want(t, 200, `{"revoked":true}`)
		call(t, s, made.Token, "GET", "/api/v1/admin/runs", nil).want(t, 401, "Invalid or expired token")
		call(t, s, s.Owner, "DELETE", "/api/v1/admin/tokens/none", nil).want(t, 404, "Token not found")
		call(t, s, s.Owner, "POST", "/api/v1/admin/tokens", `{"label":"x","role":"auditor","expiresAt":"2020-01-01T00:00:00Z"}`).want(t, 400, "in the future")
		for _, token := range list.Tokens {
			if token.Role == "owner" && token.RoutingKey == nil {
				call(t, s, s.Owner, "DELETE", "/api/v1/admin/tokens/"+token.ID, nil).want(t, 409, "Cannot revoke the last owner token")
			}
		}
		entries, _, err := s.Tokens.AccessLog(t.Context(), auth.AccessFilter{Action: "token.create", Outcome: auth.OutcomeAllowed})
		if err != nil || len(entries) != 1 || entries[0].TargetID != made.ID || entries[0].ActorMeta["role"] != "owner" {
			t.Errorf("access log %+v, %v", entries, err)
		}
	})
}

func TestRevokedAgentTokenLosesItsConnections(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	made := decode[adminwire.CreatedAgentToken](t, call(t, s, s.Owner, "POST", "/api/v1/agent-tokens",
		`{"labels":["linux","gpu"],"mandatoryLabels":["gpu"]}`).want(t, 201, `"agentType":"static"`))
	if !strings.HasPrefix(made.Token, made.TokenPrefix) {
		t.Errorf("made %+v", made)
	}
	call(t, s, s.Owner, "GET", "/api/v1/agent-tokens?type=static", nil).want(t, 200, `"labels":["linux","gpu"],"mandatoryLabels":["gpu"]`)
	call(t, s, s.Owner, "GET", "/api/v1/agent-tokens?type=ephemeral", nil).want(t, 200, `{"tokens":[]}`)
	call(t, s, s.Owner, "GET", "/api/v1/agent-tokens?type=other", nil).want(t, 400, "type must be")
	call(t, s, s.Owner, "DELETE", "/api/v1/agent-tokens/"+made.ID, nil).want(t, 200, `{"kicked":2}`)
	call(t, s, s.Owner, "DELETE", "/api/v1/agent-tokens/"+made.ID, nil).want(t, 404, "Agent token not found or already revoked")
	if s.Kicked.Load() != 1 {
		t.Errorf("kicked %d tokens", s.Kicked.Load())
	}
}

func TestSecretsGoInAndNeverComeOut(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		const value = "planted-secret-value"
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/default/aws%2Fprod/TOKEN", `{"value":"`+value+`"}`).want(t, 200, `{"set":true}`)
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/default/aws%2Fprod/TOKEN", `{}`).want(t, 400, `"path":"value"`)
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/default/__x__/TOKEN", `{"value":""}`).want(t, 400, "reserved namespace")
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/default/a/b%20c", `{"value":""}`).want(t, 400, "key must be")
		call(t, s, s.Owner, "POST", "/api/v1/admin/secrets/scopes", `{"orgId":"default","scope":"empty"}`).want(t, 200, `{"created":true}`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/secrets/scopes?orgId=default", nil).want(t, 200, `{"scopes":["aws/prod","empty"]}`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/secrets/keys?orgId=default&scope=aws%2Fprod", nil).want(t, 200, `{"keys":["TOKEN"]}`)
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/scopes/rename", `{"orgId":"default","oldScope":"aws/prod","newScope":"aws/live"}`).want(t, 200, `{"renamed":true}`)
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/scopes/rename", `{"orgId":"default","oldScope":"none","newScope":"x"}`).want(t, 404, "Scope not found")
		call(t, s, s.Owner, "PUT", "/api/v1/admin/secrets/scopes/rename", `{"orgId":"default","oldScope":"empty","newScope":"aws/live"}`).want(t, 409, "Scope already exists")
		call(t, s, s.Owner, "DELETE", "/api/v1/admin/secrets/default/aws%2Flive/TOKEN", nil).want(t, 200, `{"deleted":true}`)
		call(t, s, s.Owner, "DELETE", "/api/v1/admin/secrets/scopes/default/empty", nil).want(t, 200, `{"deleted":true}`)
		audit := call(t, s, s.Owner, "GET", "/api/v1/admin/audit?action=setSecret", nil).want(t, 200, `"secretKeys":["TOKEN"]`)
		if strings.Contains(audit.body, value) {
			t.Error("the audit log holds a value")
		}
		call(t, s, s.Scoped, "GET", "/api/v1/admin/audit", nil).want(t, 200, `{"entries":[]}`)
	})
}

// repository makes a repository below base with one commit, and gives the commit's id.
func repository(t *testing.T, base, name string) string {
	t.Helper()
	dir := filepath.Join(base, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "first")
	return git("rev-parse", "HEAD")
}

func TestSourcesAreMadeChangedAndTriggered(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		base := t.TempDir()
		sha := repository(t, base, "app")
		const sources = "/api/v1/admin/generic-sources"
		body := fmt.Sprintf(`{"orgId":"default","name":"repos","verificationConfig":{"secret":"planted-one"},"localConfig":{"repoBasePath":%q}}`, base)
		made := call(t, s, s.Owner, "POST", sources, body).want(t, 201, `"providerType":"local"`)
		src := decode[adminwire.OneSource](t, made).Source
		if src.WebhookPath != "/webhook/default/generic/repos" || src.RateLimitRPM != 600 || src.VerificationMethod != "hmac_sha256" {
			t.Errorf("made %+v", src)
		}
		call(t, s, s.Owner, "POST", sources, body).want(t, 409, "A source of this name exists already")
		one := sources + "/" + src.ID
		call(t, s, s.Owner, "PATCH", one, `{"rateLimitRpm":5,"verificationConfig":{"secret":"***","secretNext":"planted-two"}}`).want(t, 200, `"rateLimitRpm":5`)
		call(t, s, s.Owner, "PATCH", one, `{"rateLimitRpm":null,"allowedEvents":["push"]}`).want(t, 200, `"allowedEvents":["push"]`)
		call(t, s, s.Owner, "PATCH", one, `{"allowedEvents":null,"name":3}`).want(t, 400, `"path":"name"`)
		stored, err := s.Sources.Get(t.Context(), src.ID)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := s.Sources.Verification(stored); err != nil || v.Secret != "planted-one" || v.Next != "planted-two" || stored.RateLimitRPM != 600 {
			t.Errorf("stored %+v %+v, %v", stored, v, err)
		}
		done := decode[adminwire.Triggered](t, call(t, s, s.Owner, "POST", one+"/trigger", `{"repo":"app","ref":"main"}`).want(t, 202, "deliveryId"))
		if done.SHA != sha {
			t.Errorf("triggered %+v, want commit %s", done, sha)
		}
		call(t, s, s.Owner, "GET", "/api/v1/admin/event-log/"+done.DeliveryID+"?orgId=default", nil).want(t, 200, `"status":"received"`)
		payload := "/api/v1/admin/event-log/" + done.DeliveryID + "?orgId=default&includePayload=true"
		call(t, s, s.Owner, "GET", payload, nil).want(t, 200, `"payload":{`)
		call(t, s, s.Auditor, "GET", payload, nil).want(t, 403, `event_log.read_payload`)
		write := func(statement string, args ...any) {
			t.Helper()
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.ExecContext(ctx, statement, args...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		write("UPDATE inbox SET payload = $1", []byte("no JSON"))
		call(t, s, s.Owner, "GET", payload, nil).want(t, 200, `"payload":"no JSON"`)
		write("DELETE FROM inbox")
		call(t, s, s.Owner, "GET", payload, nil).want(t, 200, `"payloadReadError":"the payload is kept`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/event-log?deliveryId="+done.DeliveryID[8:14], nil).want(t, 200, `"total":1`)
		call(t, s, s.Scoped, "GET", "/api/v1/admin/event-log", nil).want(t, 200, `"total":0`)
		call(t, s, s.Scoped, "GET", "/api/v1/admin/event-log/"+done.DeliveryID+"?orgId=default", nil).want(t, 403, "single routing key")
		call(t, s, s.Owner, "POST", one+"/trigger", `{"repo":"app","ref":"none"}`).want(t, 404, "no such commit, branch or tag")
		call(t, s, s.Owner, "POST", one+"/trigger", `{"repo":"../app"}`).want(t, 400, "refused")
		call(t, s, s.Owner, "POST", one+"/trigger", `{}`).want(t, 400, `"path":"repo"`)
		call(t, s, s.Owner, "POST", sources+"/none/trigger", `{"repo":"app"}`).want(t, 404, "Source not found")
		call(t, s, s.Owner, "POST", one+"/disable", nil).want(t, 200, `{"enabled":false}`)
		call(t, s, s.Owner, "POST", one+"/trigger", `{"repo":"app"}`).want(t, 409, "no run can be started")
		listed := call(t, s, s.Owner, "GET", sources+"?orgId=default", nil).want(t, 200, `"enabled":false`)
		if strings.Contains(listed.body+made.body, "planted") {
			t.Error("an answer holds a source's secret")
		}
		call(t, s, s.Owner, "DELETE", one, nil).want(t, 200, `{"deleted":true,"hard":false}`)
		call(t, s, s.Owner, "GET", sources+"?orgId=default", nil).want(t, 200, `{"sources":[]}`)
		call(t, s, s.Owner, "GET", sources+"?orgId=default&includeDeleted=true", nil).want(t, 200, `"name":"repos"`)
		call(t, s, s.Owner, "DELETE", one+"?hard=true", nil).want(t, 200, `{"deleted":true,"hard":true}`)
		call(t, s, s.Owner, "GET", one, nil).want(t, 404, "Source not found")
	})
}

func TestSourcesWithMistakesAreRefused(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	for _, tt := range []struct{ name, body, text string }{
		{"no organisation", `{"name":"x"}`, `"path":"orgId"`},
		{"no secret", `{"orgId":"default","name":"x"}`, `"path":"verificationConfig.secret"`},
		{"unknown method", `{"orgId":"default","name":"x","verificationMethod":"guess"}`, `"path":"verificationMethod"`},
		{"no name", `{"orgId":"default","verificationMethod":"none"}`, `"path":"name"`},
		{"local without a folder", `{"orgId":"default","name":"x","verificationMethod":"none","providerType":"local"}`, `"path":"localConfig"`},
		{"folder of a generic one", `{"orgId":"default","name":"x","verificationMethod":"none","providerType":"generic","localConfig":{"repoBasePath":"/a"}}`, `"path":"providerType"`},
		{"relative folder", `{"orgId":"default","name":"x","verificationMethod":"none","localConfig":{"repoBasePath":"a"}}`, `"path":"localConfig.repoBasePath"`},
		{"window past all bounds", `{"orgId":"default","name":"x","verificationMethod":"none","dedupWindowSeconds":9223372036854775807}`, `"path":"dedupWindowSeconds"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			call(t, s, s.Owner, "POST", "/api/v1/admin/generic-sources", tt.body).want(t, 400, tt.text)
		})
	}
}

func TestRunsAreListedShownAndExplained(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1")
		s.Register(t, "r2", "generic:default:other")
		const runs = "/api/v1/admin/runs"
		call(t, s, s.Auditor, "GET", runs, nil).want(t, 200, `"total":2,"limit":20,"offset":0`)
		call(t, s, s.Auditor, "GET", runs+"?limit=1000&offset=-1", nil).want(t, 200, `"limit":100,"offset":0`)
		call(t, s, s.Auditor, "GET", runs+"?status=pending,%20failed,pending", nil).want(t, 200, `"total":2`)
		call(t, s, s.Auditor, "GET", runs+"?status=drift_dropped", nil).want(t, 200, `{"runs":[],"total":0,"limit":20,"offset":0}`)
		call(t, s, s.Auditor, "GET", runs+"?status=done", nil).want(t, 400, `Invalid status \"done\". Allowed: pending, running`)
		call(t, s, s.Auditor, "GET", runs+"?count=1&repo=app", nil).want(t, 200, `{"repo":"app","since":null,"status":null,"total":2,"workflowName":null}`)
		call(t, s, s.Scoped, "GET", runs, nil).want(t, 200, `"total":1`)
		call(t, s, s.Scoped, "GET", runs+"/r1", nil).want(t, 200, `"runId":"r1"`)
		call(t, s, s.Scoped, "GET", runs+"/r2", nil).want(t, 403, "single routing key")
		call(t, s, s.Scoped, "POST", runs+"/r2/cancel", nil).want(t, 403, "single routing key")
		call(t, s, s.Scoped, "GET", runs+"/none", nil).want(t, 404, `{"error":"Run none not found","errorCode":"run_not_found"}`)
		for _, part := range []string{"", "/jobs", "/structured", "/explain"} {
			call(t, s, s.Auditor, "GET", runs+"/none"+part, nil).want(t, 404, "Run none not found")
			call(t, s, s.Scoped, "GET", runs+"/r2"+part, nil).want(t, 403, "single routing key")
		}
		call(t, s, s.Auditor, "GET", runs+"/r1/jobs?includeSteps=true", nil).want(t, 200, `"steps":[]`)
		call(t, s, s.Auditor, "GET", runs+"/r1/structured", nil).want(t, 200, `"workflowName":{"untrusted":true,"value":"ci"}`)
		call(t, s, s.Auditor, "GET", runs+"/r1/explain", nil).want(t, 200, `no connected agent fits; the nearest, a-1, lacks label gpu`)
		call(t, s, s.Auditor, "GET", "/api/v1/admin/queue?status=pending", nil).want(t, 200, `"job_name":"gpu"`)
		call(t, s, s.Auditor, "GET", "/api/v1/admin/queue?status=lost", nil).want(t, 400, "Invalid status")
		call(t, s, s.Auditor, "GET", "/api/v1/admin/queue/r1-gpu", nil).want(t, 200, `"reason":{"code":"no_agent"`)
		call(t, s, s.Auditor, "GET", "/api/v1/admin/queue/none", nil).want(t, 404, "Queue entry not found")
		call(t, s, s.Scoped, "GET", "/api/v1/admin/queue/r2-gpu", nil).want(t, 403, "single routing key")
		call(t, s, s.Auditor, "GET", "/api/v1/admin/hosts", nil).want(t, 200, `"agentId":"a-1","lifecycleClass":"static","status":"ready"`)
	})
}

func TestCancelTellsWhatItDid(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1")
		s.Register(t, "r2", scopedKey)
		call(t, s, s.Owner, "POST", "/api/v1/admin/runs/r1/cancel", nil).want(t, 200, `{"status":"cancelling","cancelledJobs":`)
		call(t, s, s.Owner, "POST", "/api/v1/admin/runs/r2/cancel", `{"force":true}`).want(t, 200, `{"status":"cancelled","cancelledJobs":`)
		call(t, s, s.Owner, "POST", "/api/v1/admin/runs/r2/cancel", nil).want(t, 409, `{"error":"Run already in terminal state","status":"cancelled"}`)
		call(t, s, s.Owner, "POST", "/api/v1/admin/runs/none/cancel", nil).want(t, 404, `{"error":"Run not found"}`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs/r2/structured", nil).want(t, 200, `"failureCategory":"cancelled"`)
		entries, _, err := s.Tokens.AccessLog(t.Context(), auth.AccessFilter{Action: "run.cancel"})
		if err != nil || len(entries) != 4 || entries[1].Outcome != auth.OutcomeError {
			t.Errorf("access log %+v, %v", entries, err)
		}
	})
}
