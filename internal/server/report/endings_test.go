package report_test

import (
	"context"
	"fmt"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/core/wire"
	"kici/internal/decide/contexts"
	"kici/internal/decide/plan"
	"kici/internal/server/engine"
	"kici/internal/server/report"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

const hour = 3_600_000

// endings are the ways in which a run r and its job "one" end otherwise than well, with by what and why.
var endings = []struct {
	name     string
	end      func(f *floor)
	run, job string
}{
	{"its agent says why", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		f.starts("id-one", "a-1")
		f.reports("id-one", "a-1", ci.JobFailed, `{"error":"boom"}`)
	}, "Failed jobs: one", "boom"},
	{"its agent says nothing", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		f.starts("id-one", "a-1")
		f.reports("id-one", "a-1", ci.JobFailed, "")
	}, "Failed jobs: one", "the agent reported the job as failed"},
	{"its agent cancelled it unasked", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		f.starts("id-one", "a-1")
		f.reports("id-one", "a-1", ci.JobCancelled, "")
	}, "Cancelled jobs: one", "cancelled on the agent"},
	{"somebody cancels it", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		_, err := f.Cancel(f.t.Context(), "r", "api_key:t-1", "", false)
		must(f.t, err)
	}, "run cancelled via API (api_key:t-1)", "run cancelled via API"},
	{"it is cancelled and its agent stays silent", func(f *floor) {
		f.cancels("r")
		for range 2 { // force, then giving up
			f.millis += hour
			must(f.t, f.SweepOnce(f.t.Context()))
		}
	}, "run cancelled via API (api_key:t-1)", "run cancelled via API (agent a-1 did not confirm that it stopped)"},
	{"it is cancelled and its agent goes and stays away", func(f *floor) {
		f.cancels("r")
		must(f.t, f.Lost(f.t.Context(), "a-1", "c", false))
		f.millis += hour
		must(f.t, f.SweepOnce(f.t.Context()))
	}, "run cancelled via API (api_key:t-1)", "run cancelled via API (agent a-1 did not confirm that it stopped)"},
	{"it is to be killed and its agent goes", func(f *floor) {
		f.cancels("r")
		_, err := f.Cancel(f.t.Context(), "r", "api_key:t-1", "", true)
		must(f.t, err)
		must(f.t, f.Lost(f.t.Context(), "a-1", "c", false))
	}, "run cancelled via API (api_key:t-1)", "run cancelled via API (agent a-1 did not confirm that it stopped)"},
	{"it is cancelled while its agent is away", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		f.starts("id-one", "a-1")
		must(f.t, f.Lost(f.t.Context(), "a-1", "c", false))
		_, err := f.Cancel(f.t.Context(), "r", "api_key:t-1", "", false)
		must(f.t, err)
	}, "run cancelled via API (api_key:t-1)", "run cancelled via API (agent a-1 did not confirm that it stopped)"},
	{"it is cancelled and its agent confirms", func(f *floor) {
		f.cancels("r")
		f.reports("id-one", "a-1", ci.JobCancelled, "")
	}, "run cancelled via API (api_key:t-1)", "run cancelled via API"},
	{"it is cancelled before its agent took it", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		f.claim("id-one", "a-1", 1)
		_, err := f.Cancel(f.t.Context(), "r", "api_key:t-1", "", false)
		must(f.t, err)
	}, "run cancelled via API (api_key:t-1)", "run cancelled via API"},
	{"its workflow's time is over and its agent stays silent", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}, TimeoutMs: hour / 2})
		f.starts("id-one", "a-1")
		f.millis += hour/2 + 1
		must(f.t, f.JobBeat(f.t.Context(), "a-1", wire.JobHeartbeat{JobID: "id-one"}))
		for range 3 {
			must(f.t, f.SweepOnce(f.t.Context()))
			must(f.t, f.FollowOnce(f.t.Context()))
			f.millis += hour
		}
	}, "workflow_timeout: run exceeded the workflow timeout of 1800000ms (server)",
		"workflow_timeout: run exceeded the workflow timeout of 1800000ms (agent a-1 did not confirm that it stopped)"},
	{"somebody cancels it whose token has a name", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return tx.Do(ctx, "INSERT INTO admin_tokens (id, label, token_hash, role, created_at, revoked) VALUES ('t-2', 'release bot', 'h', 'admin', 1, TRUE)")
		}))
		_, err := f.Cancel(f.t.Context(), "r", "api_key:t-2", "", false)
		must(f.t, err)
	}, "run cancelled via API (api_key:t-2, release bot)", "run cancelled via API"},
	{"a newer run takes its place", func(f *floor) {
		for i, run := range []string{"r", "newer"} {
			cancel, agent := true, fmt.Sprint("a-", i+1)
			j := job("one", on(run))
			j.ID = map[string]string{"r": "id-one", "newer": "id-two"}[run]
			f.agent(agent, []string{run}, nil)
			f.register(run, plan.Plan{Jobs: []plan.Job{j}, Concurrency: &lockfile.Concurrency{HasGroup: true, CancelInProgress: &cancel}})
			f.claim(j.ID, agent, 1)
			_, err := engine.Groups{Engine: f.Engine}.Report(f.t.Context(), agent, true, wire.ConcurrencyReport{MessageID: run, RunID: run, JobID: j.ID, Group: "deploy"})
			must(f.t, err)
		}
		must(f.t, f.FollowOnce(f.t.Context()))
		f.reports("id-one", "a-1", ci.JobCancelled, "")
	}, "Superseded by run in concurrency group 'deploy': run newer (server)", "Superseded by run in concurrency group 'deploy': run newer"},
	{"its workflow's time is over", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}, TimeoutMs: hour / 2})
		f.starts("id-one", "a-1")
		f.millis += hour/2 + 1
		must(f.t, f.JobBeat(f.t.Context(), "a-1", wire.JobHeartbeat{JobID: "id-one"}))
		must(f.t, f.SweepOnce(f.t.Context()))
		must(f.t, f.FollowOnce(f.t.Context()))
		f.reports("id-one", "a-1", ci.JobCancelled, "")
	}, "workflow_timeout: run exceeded the workflow timeout of 1800000ms (server)", "workflow_timeout: run exceeded the workflow timeout of 1800000ms"},
	{"its agent is lost", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		f.starts("id-one", "a-1")
		must(f.t, f.Lost(f.t.Context(), "a-1", "c", false))
		f.millis += hour
		must(f.t, f.SweepOnce(f.t.Context()))
	}, "Failed jobs: one", "Job failed: agent disconnected and did not reconnect within the recovery window: agent a-1"},
	{"its agent falls silent", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		f.starts("id-one", "a-1")
		f.millis += hour
		must(f.t, f.SweepOnce(f.t.Context()))
	}, "Failed jobs: one", "No heartbeat received for 3600s: agent a-1"},
	{"no agent ever fits", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux", "gpu"))}})
		f.millis += 2 * hour
		must(f.t, f.SweepOnce(f.t.Context()))
	}, "Failed jobs: one", "Queue timeout expired (job was never dispatched to an agent); it asked for linux, gpu"},
	{"it is offered too often", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		for i := range ci.MaxDispatchAttempts {
			f.claim("id-one", "a-1", i+1)
			must(f.t, f.Rejected(f.t.Context(), "a-1", "id-one", "busy"))
		}
	}, "Failed jobs: one", "Job failed: re-dispatch attempts exhausted after 5 attempts (agent rejected dispatch (busy))"},
	{"its hold is rejected", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{bound(job("one", on("linux")), "prod")}})
		f.holdIDs()
		_, err := f.Decide(f.t.Context(), "hold-1", engine.Vote{By: contexts.Actor{ID: "anna"}, Through: ci.QueueContext, Answer: contexts.Reject, Comment: "not now"})
		must(f.t, err)
	}, "Failed jobs: one", "Rejected by anna: not now"},
	{"nobody decides about its hold", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{bound(job("one", on("linux")), "prod")}})
		f.millis += 30 * hour
		must(f.t, f.SweepOnce(f.t.Context()))
	}, "Failed jobs: one", "Approval expired for job hold: Requires approval from: anna"},
	{"no slot of its context comes free", func(f *floor) {
		one := int64(1)
		f.rules["prod"] = contexts.Context{ConcurrencyLimit: &one, ConcurrencyTimeoutMs: 60_000}
		f.register("before", plan.Plan{Jobs: []plan.Job{bound(job("holder", on("linux")), "prod")}})
		f.register("r", plan.Plan{Jobs: []plan.Job{bound(job("one", on("linux")), "prod")}})
		f.millis += 61_000
		must(f.t, f.SweepOnce(f.t.Context()))
	}, "Failed jobs: one", "Approval expired for job hold: Concurrency limit reached (1/1)"},
	{"its workflow's hold is rejected", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}, Secrets: plan.WorkflowSecrets{InstallEnv: []string{"prod:TOKEN"}}})
		f.holdIDs()
		_, err := f.Decide(f.t.Context(), "hold-1", engine.Vote{By: contexts.Actor{ID: "anna", Name: "Anna"}, Through: ci.QueueContext, Answer: contexts.Reject})
		must(f.t, err)
	}, "Rejected by Anna (anna)", "Rejected by Anna"},
	{"nobody decides about its workflow's hold", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}, Approval: &lockfile.Approval{When: "always"}})
		f.millis += 30 * hour
		must(f.t, f.SweepOnce(f.t.Context()))
	}, "Failed jobs: one", "Approval expired for workflow hold: Requires approval from: anyone who may approve"},
	{"its context refuses it", func(f *floor) {
		f.rules["prod"] = contexts.Context{BranchRestrictions: []string{"release"}}
		f.register("r", plan.Plan{Jobs: []plan.Job{bound(job("one", on("linux")), "prod")}})
	}, "multi-environment gate: 'prod' rejected (branch_restricted: branch 'main' not allowed)", "multi-environment gate: 'prod' rejected (branch_restricted: branch 'main' not allowed)"},
	{"what it needs failed", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("before", on("linux")), job("one", on("linux"))},
			Edges: []plan.Edge{{Job: "one", Upstream: "before", RunOn: []ci.JobStatus{ci.JobSuccess}}}})
		f.starts("id-before", "a-1")
		f.reports("id-before", "a-1", ci.JobFailed, `{"error":"boom"}`)
	}, "Failed jobs: before", "upstream_unmet: before (failed)"},
	{"the queue was full", func(f *floor) {
		f.register("r", plan.Plan{InitFailure: &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitEnvironmentRules, Message: "no"}})
	}, "no", ""},
}

// cancels has a job start and its run be cancelled.
func (f *floor) cancels(run string) {
	f.t.Helper()
	f.register(run, plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
	f.starts("id-one", "a-1")
	_, err := f.Cancel(f.t.Context(), run, "api_key:t-1", "", false)
	must(f.t, err)
}

func bound(j plan.Job, names ...string) plan.Job {
	j.Contexts, j.ContextDisplay = names, names
	return j
}

func TestWhateverEndsSaysByWhatAndWhy(t *testing.T) {
	for _, tt := range endings {
		t.Run(tt.name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, db *store.DB) {
				f := newFloor(t, db)
				f.agent("a-1", []string{"linux"}, nil)
				tt.end(f)
				x, err := report.Explain(t.Context(), db.Read(), "r", "", f.millis)
				must(t, err)
				if x.Reason == nil {
					t.Fatalf("run is %s and says nothing", x.Status)
				}
				got := x.Reason.Message
				if x.CancelledBy != nil {
					by := *x.CancelledBy
					if x.CancelledByName != "" {
						by += ", " + x.CancelledByName
					}
					got += " (" + by + ")"
				}
				if got != tt.run {
					t.Errorf("the run ended because of %q, want %q", got, tt.run)
				}
				for _, j := range x.Jobs {
					if j.JobName == "one" && (j.Reason.Message != tt.job || !j.Status.Terminal()) {
						t.Errorf("the job is %s because of %q, want %q", j.Status, j.Reason.Message, tt.job)
					}
				}
			})
		})
	}
}
