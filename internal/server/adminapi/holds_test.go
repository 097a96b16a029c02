package adminapi_test

import (
	"errors"
	"strings"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/decide/plan"
	"kici/internal/server/auth"
	"kici/internal/server/engine"
	"kici/internal/server/pipeline"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// hold registers a run whose only job waits for a user and a team, and gives the id of the hold.
func (s *rig) hold(t *testing.T, run, routingKey string) string {
	t.Helper()
	return s.holdIn(t, run, "default", routingKey)
}

func (s *rig) holdIn(t *testing.T, run, org, routingKey string) string {
	t.Helper()
	deploy := plan.Job{ID: run + "-deploy", Name: "deploy", BaseName: "deploy", Selector: label.Selector{Labels: []string{"linux"}}, Config: []byte(`{}`),
		Approval: &lockfile.Approval{When: "always", Clauses: []lockfile.Clause{{User: "anna"}, {Team: "ops"}}}}
	check(t, s.Engine.Register(t.Context(), engine.Registration{RunID: run, OrgID: org, RoutingKey: routingKey, Provider: "local", Repo: "app",
		Ref: "main", SHA: "abc", TriggerEvent: "push", Plan: plan.Plan{Workflow: "ci", Jobs: []plan.Job{deploy}}}))
	got := decode[adminwire.HeldRunList](t, call(t, s, s.Auditor, "GET", "/api/v1/admin/held-runs?runId="+run, nil).want(t, 200, `"jobName":"deploy"`))
	if len(got.HeldRuns) != 1 {
		t.Fatalf("holds %+v", got)
	}
	return got.HeldRuns[0].ID
}

func TestHoldIsReleasedOnceEverybodyHasApproved(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		id := s.hold(t, "r1", scopedKey)
		const path = "/api/v1/admin/held-runs/decision"
		vote := func(token, as, decision string) reply {
			return call(t, s, token, "POST", path, adminwire.HoldAnswer{HoldID: id, Decision: decision, As: as})
		}
		vote(s.Auditor, "anna", "approve").want(t, 403, "does not have permission")
		vote(s.Admin, "", "approve").want(t, 403, "approval is still required from")
		vote(s.Admin, "carl", "approve").want(t, 403, "approval is still required from")
		vote(s.Admin, "anna", "perhaps").want(t, 400, "decision must be approve or reject")
		call(t, s, s.Admin, "POST", path, `{"decision":"approve"}`).want(t, 400, "holdId is required")
		call(t, s, s.Admin, "POST", path, `{"decision":"approve","holdId":"none"}`).want(t, 404, "Hold none not found")
		vote(s.Admin, "anna", "approve").want(t, 200, `{"status":"pending","remainingClauses":[{"team":"ops"}]}`)
		vote(s.Scoped, "team:ops", "approve").want(t, 200, `{"status":"released"}`)
		vote(s.Admin, "anna", "reject").want(t, 409, "decided already: approved")
		call(t, s, s.Auditor, "GET", "/api/v1/admin/held-runs", nil).want(t, 200, `{"heldRuns":[]}`)
		call(t, s, s.Auditor, "GET", "/api/v1/admin/held-runs?status=approved", nil).want(t, 200, `"approverId":"anna","decision":"approve"`)
		call(t, s, s.Auditor, "GET", "/api/v1/admin/held-runs?status=lost", nil).want(t, 400, "Invalid status")
		call(t, s, s.Auditor, "GET", "/api/v1/admin/queue?status=pending", nil).want(t, 200, `"job_name":"deploy"`)
		entries, _, err := s.Tokens.AccessLog(t.Context(), auth.AccessFilter{Action: "held_run.approve", Outcome: auth.OutcomeAllowed})
		if err != nil || len(entries) != 2 || entries[1].TargetID != id || entries[1].Meta["as"] != "anna" {
			t.Errorf("access log %+v, %v", entries, err)
		}
	})
}

// An organisation that is named narrows every list that tells of runs, and gives a scoped token nothing that it would not see.
func TestListsAreNarrowedToAnOrganisation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.holdIn(t, "r1", "default", scopedKey)
		s.holdIn(t, "r2", "elsewhere", "generic:elsewhere:s")
		s.Register(t, "r3", scopedKey)
		for _, path := range []string{"/runs?", "/executions?", "/held-runs?", "/queue?"} {
			seen := func(token, query string) (runs string) {
				body := call(t, s, token, "GET", "/api/v1/admin"+path+query, nil).want(t, 200, "").body
				for _, id := range []string{"r1", "r2", "r3"} {
					if strings.Contains(body, `"`+id+`"`) {
						runs += id
					}
				}
				return runs
			}
			all, mine := "r1r2r3", "r1r3"
			switch path {
			case "/held-runs?":
				all, mine = "r1r2", "r1"
			case "/queue?":
				all, mine = "r3", "r3"
			}
			for query, want := range map[string]string{"": all, "orgId=": all, "orgId=default": mine, "orgId=elsewhere": strings.ReplaceAll(strings.ReplaceAll(all, "r1", ""), "r3", ""),
				"orgId=none": ""} {
				if got := seen(s.Auditor, query); got != want {
					t.Errorf("%s%s: %q, want %q", path, query, got, want)
				}
			}
			if got := seen(s.Scoped, "orgId=elsewhere"); got != "" {
				t.Errorf("%s: a scoped token sees %q of another organisation", path, got)
			}
		}
		call(t, s, s.Auditor, "GET", "/api/v1/admin/runs?count=true&orgId=elsewhere", nil).want(t, 200, `"total":1`)
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs?count=true&orgId=elsewhere", nil).want(t, 200, `"total":0`)
	})
}

func TestRejectedHoldEndsItsJob(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	id := s.hold(t, "r1", "generic:default:other")
	const path = "/api/v1/admin/held-runs/decision"
	body := adminwire.HoldAnswer{HoldID: id, Decision: "reject", Comment: "not on a Friday"}
	call(t, s, s.Scoped, "POST", path, body).want(t, 403, "single routing key")
	call(t, s, s.Scoped, "GET", "/api/v1/admin/held-runs", nil).want(t, 200, `{"heldRuns":[]}`)
	call(t, s, s.Owner, "POST", path, body).want(t, 200, `{"status":"rejected"}`)
	call(t, s, s.Owner, "GET", "/api/v1/admin/runs/r1/explain", nil).want(t, 200, "Rejected by owner: not on a Friday")
}

func TestRerunSaysWhatStandsInItsWay(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	s.Register(t, "other", "generic:default:other")
	const path = "/api/v1/admin/runs/r1/rerun"
	call(t, s, s.Owner, "POST", path, nil).want(t, 201, `{"runId":"again","parentRunId":"r1"}`)
	if !strings.HasPrefix(s.RerunBy, "api_key:") {
		t.Errorf("asked by %s", s.RerunBy)
	}
	call(t, s, s.Scoped, "POST", "/api/v1/admin/runs/other/rerun", nil).want(t, 403, "single routing key")
	call(t, s, s.Owner, "POST", "/api/v1/admin/runs/none/rerun", nil).want(t, 404, "Run none not found")
	for kind, status := range map[pipeline.RerunKind]int{pipeline.RerunUnknown: 404, pipeline.RerunForgotten: 410, pipeline.RerunOpen: 409, pipeline.RerunTest: 400,
		pipeline.RerunTooSoon: 429, pipeline.RerunLockMissing: 422, pipeline.RerunWorkflowMissing: 422, pipeline.RerunSourceMissing: 422} {
		s.RerunErr = &pipeline.RerunRefusal{Kind: kind, Message: "because of " + string(kind)}
		call(t, s, s.Owner, "POST", path, nil).want(t, status, "because of "+string(kind))
	}
	s.RerunErr = errors.New("planted cause")
	if got := call(t, s, s.Owner, "POST", path, nil).want(t, 500, "Internal server error"); strings.Contains(got.body, "planted") {
		t.Error("the cause of a failure is shown")
	}
}
