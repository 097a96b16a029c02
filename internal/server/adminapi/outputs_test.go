package adminapi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/adminwire"
	"kici/internal/core/wire"
	"kici/internal/kit/seal"
	"kici/internal/server/auth"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// giveOutput stores a secret output of a job as its agent sealed it.
func giveOutput(t *testing.T, s *rig, run, job, key, value string) {
	t.Helper()
	var public, private string
	check(t, s.DB.Read().QueryRowContext(t.Context(), "SELECT public_key, sealed_private_key FROM execution_runs WHERE run_id = $1", run).Scan(&public, &private))
	own, err := seal.NewKeyPair()
	check(t, err)
	agreed, err := seal.Agree(own.Private, public, seal.RunOutputs)
	check(t, err)
	check(t, s.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := s.Secrets.StoreOutputsTx(ctx, tx, run, job, private, map[string]wire.SecretOutput{key: {AgentPublicKey: own.Public, Encrypted: agreed.Seal([]byte(value))}})
		return err
	}))
}

func TestSecretOutputsAreShownToThoseWhoMaySeeThem(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1")
		s.Register(t, "r2", "generic:default:other")
		const value = "planted-output-value"
		const path = "/api/v1/admin/runs/r1/secret-outputs"
		call(t, s, s.Auditor, "GET", path, nil).want(t, 200, `{"outputs":[]}`)
		giveOutput(t, s, "r1", "r1-build", "TOKEN", value)
		giveOutput(t, s, "r1", "r1-test", "OTHER", "v")
		call(t, s, s.Auditor, "GET", "/api/v1/admin/runs/r1/ephemeral-key", nil).want(t, 200, `{"exists":true,"createdAt":"2026-01-01T00:00:00.000Z"}`)
		call(t, s, s.Owner, "POST", "/api/v1/admin/runs/r2/cancel", nil).want(t, 200, `"cancelled"`)
		call(t, s, s.Auditor, "GET", "/api/v1/admin/runs/r2/ephemeral-key", nil).want(t, 200, `{"exists":false,"createdAt":null}`)
		for _, token := range []string{s.Owner, s.Admin, s.Auditor, s.Scoped} {
			if got := call(t, s, token, "GET", path, nil).want(t, 200, `"outputKey":"TOKEN","createdAt":"2026-01-01T00:00:00.000Z","value":"***","masked":true}`); strings.Contains(got.body, value) {
				t.Errorf("unasked, the value is shown: %s", got.body)
			}
		}
		call(t, s, s.Auditor, "GET", path+"?reveal=true", nil).want(t, 403, `Role \"auditor\" does not have permission \"secret.reveal\"`)
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/r2/secret-outputs?reveal=true", nil).want(t, 403, "single routing key")
		call(t, s, s.Admin, "GET", "/api/v1/admin/runs/none/secret-outputs?reveal=true", nil).want(t, 404, "Run none not found")
		got := decode[adminwire.SecretOutputList](t, call(t, s, s.Admin, "GET", path+"?reveal=true&outputKey=TOKEN", nil))
		want := []adminwire.SecretOutput{{ID: "r1-build:TOKEN", JobID: "r1-build", OutputKey: "TOKEN", CreatedAt: adminwire.At(startTime), Value: value}}
		if diff := cmp.Diff(want, got.Outputs); diff != "" {
			t.Error(diff)
		}
		if audit := call(t, s, s.Owner, "GET", "/api/v1/admin/audit?action=secret-outputs.reveal", nil).want(t, 200, `"contextName":"run:r1"`); strings.Count(audit.body, `"id"`) != 1 || strings.Contains(audit.body, value) {
			t.Errorf("audited %s", audit.body)
		}
		noted := map[string]int{}
		entries, _, err := s.Tokens.AccessLog(t.Context(), auth.AccessFilter{Action: "secret.reveal"})
		check(t, err)
		for _, e := range entries {
			noted[e.Outcome]++
		}
		if diff := cmp.Diff(map[string]int{auth.OutcomeAllowed: 1, auth.OutcomeDenied: 2, auth.OutcomeError: 1}, noted); diff != "" {
			t.Errorf("noted (- want, + got):\n%s", diff)
		}
	})
}

func TestPurgingTakesTheEndedRunsOfOtherRoutingKeys(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Register(t, "mine", scopedKey)
		s.Register(t, "ended", "generic:default:other")
		s.Register(t, "open", "generic:default:other")
		for _, run := range []string{"mine", "ended"} {
			call(t, s, s.Owner, "POST", "/api/v1/admin/runs/"+run+"/cancel", nil).want(t, 200, `"cancelled"`)
		}
		const path = "/api/v1/admin/execution/purge-stale"
		call(t, s, s.Owner, "POST", path, `{}`).want(t, 400, "routingKey is required")
		call(t, s, s.Owner, "POST", path, `{"routingKey":"generic:default:mistyped"}`).want(t, 404, "No source and no run has routing key generic:default:mistyped")
		call(t, s, s.Owner, "POST", path, `{"routingKey":"`+scopedKey+`"}`).want(t, 200, `{"jobsDeleted":4,"runsDeleted":1}`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs/ended", nil).want(t, 404, "was removed")
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs?count=1", nil).want(t, 200, `"total":2`)
		call(t, s, s.Owner, "POST", path, `{"routingKey":"`+scopedKey+`"}`).want(t, 200, `{"jobsDeleted":0,"runsDeleted":0}`)
	})
}
