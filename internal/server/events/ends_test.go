package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
	"kici/internal/server/engine"
)

func TestTheEndOfAJobAndOfARunAreEvents(t *testing.T) {
	each(t, func(r *rig) {
		reg := registration("r1", plan.Job{Name: "build"}, plan.Job{Name: "test"}, plan.Job{Name: "after"})
		reg.ChainDepth = 2
		reg.Plan.Edges = []plan.Edge{{Job: "after", Upstream: "test", RunOn: []ci.JobStatus{ci.JobSuccess}}}
		r.must(r.e.Register(r.t.Context(), reg))
		r.run("r1", "build", ci.JobSuccess, `{"stepResults":[{"name":"go","status":"success","durationMs":7},{"name":"vet","status":"skipped","durationMs":0}]}`)
		r.end("r1/build", ci.JobSuccess, "") // an agent's replay
		if d := cmp.Diff([]string{jobComplete}, r.names()); d != "" {
			r.t.Errorf("after the first job:\n%s", d)
		}
		r.run("r1", "test", ci.JobFailed, `{"stepResults":[{"name":"run","status":"failed","durationMs":9,"error":"the secret is 42"}]}`)

		common := `"sourceRepo":"a/b","sourceRoutingKey":"github:1"}`
		want := []row{
			{Name: jobComplete, Job: "r1/build", Payload: `{"workflowName":"ci","jobName":"build","runId":"r1","jobId":"r1/build","status":"success","duration":250,` +
				`"stepResults":[{"name":"go","status":"success","durationMs":7},{"name":"vet","status":"skipped","durationMs":0}],` + common},
			{Name: jobComplete, Job: "r1/test", Payload: `{"workflowName":"ci","jobName":"test","runId":"r1","jobId":"r1/test","status":"failed","duration":250,` +
				`"stepResults":[{"name":"run","status":"failed","durationMs":9}],` + common},
			{Name: jobComplete, Job: "r1/after", Payload: `{"workflowName":"ci","jobName":"after","runId":"r1","jobId":"r1/after","status":"skipped","duration":0,` +
				`"stepResults":[],` + common},
			{Name: workflowComplete, Payload: `{"workflowName":"ci","runId":"r1","status":"failed","conclusion":"failure","duration":500,` +
				`"jobResults":[{"name":"build","status":"success"},{"name":"test","status":"failed"},{"name":"after","status":"skipped"}],` + common},
		}
		for i := range want {
			want[i].Org, want[i].Repo, want[i].RoutingKey, want[i].Run, want[i].Depth = "acme", "a/b", "github:1", "r1", 3
		}
		got := r.rows()
		for i := range got {
			got[i].CreatedAt, got[i].ExpiresAt = 0, 0
		}
		if d := cmp.Diff(want, got); d != "" {
			r.t.Error(d)
		}
		if !r.woken() {
			r.t.Error("nobody was woken")
		}
	})
}

func TestJobsThatWorkForOthersAreNotToldOf(t *testing.T) {
	each(t, func(r *rig) {
		reg := registration("r1", plan.Job{Name: "__build__ci", Kind: ci.KindBuild}, plan.Job{Name: "one"})
		reg.Plan.Edges = []plan.Edge{{Job: "one", Upstream: "__build__ci", RunOn: []ci.JobStatus{ci.JobSuccess}}}
		r.must(r.e.Register(r.t.Context(), reg))
		r.run("r1", "__build__ci", ci.JobSuccess, `{"buildComplete":true}`)
		if names := r.names(); len(names) > 0 {
			r.t.Errorf("the build alone makes events: %v", names)
		}
		r.run("r1", "one", ci.JobSuccess, "")
		if d := cmp.Diff([]string{jobComplete, workflowComplete}, r.names()); d != "" {
			r.t.Error(d)
		}
		want := `{"workflowName":"ci","runId":"r1","status":"success","conclusion":"success","duration":500,` +
			`"jobResults":[{"name":"one","status":"success"}],"sourceRepo":"a/b","sourceRoutingKey":"github:1"}`
		if got := r.rows()[1].Payload; got != want {
			r.t.Errorf("payload %s, want %s", got, want)
		}
	})
}

func TestARunWithoutJobsEnds(t *testing.T) {
	each(t, func(r *rig) {
		r.must(r.e.Register(r.t.Context(), registration("r1")))
		want := `{"workflowName":"ci","runId":"r1","status":"failed","conclusion":"failure","duration":0,"jobResults":[],"sourceRepo":"a/b","sourceRoutingKey":"github:1"}`
		if rows := r.rows(); len(rows) != 1 || rows[0].Name != workflowComplete || rows[0].Payload != want {
			r.t.Errorf("rows %+v, want one with %s", rows, want)
		}
	})
}

func TestACancelledRunTellsOfAllItsJobs(t *testing.T) {
	each(t, func(r *rig) {
		r.must(r.e.Register(r.t.Context(), registration("r1", plan.Job{Name: "one"}, plan.Job{Name: "two"})))
		_, err := r.e.Cancel(r.t.Context(), "r1", "user:x", "", false)
		r.must(err)
		if d := cmp.Diff([]string{jobComplete, jobComplete, workflowComplete}, r.names()); d != "" {
			r.t.Error(d)
		}
	})
}

func TestOfRunsThatOnlyTrySomethingOutNobodyIsTold(t *testing.T) {
	each(t, func(r *rig) {
		r.must(r.e.Register(r.t.Context(), registration("r1", plan.Job{Name: "one"})))
		r.exec("UPDATE execution_runs SET is_test_run = TRUE WHERE run_id = 'r1'")
		r.run("r1", "one", ci.JobSuccess, "")
		if names := r.names(); len(names) > 0 {
			r.t.Errorf("a test run makes events: %v", names)
		}
	})
}

func TestARepetitionIsAnEvent(t *testing.T) {
	each(t, func(r *rig) {
		r.must(r.e.Register(r.t.Context(), registration("r1", plan.Job{Name: "one"})))
		reg := registration("r2", plan.Job{Name: "one"})
		reg.ParentRunID, reg.TriggeredBy, reg.ChainDepth = "r1", "user:x", 3
		r.must(r.e.Register(r.t.Context(), reg))
		r.must(r.e.Register(r.t.Context(), reg)) // changes nothing
		got := r.rows()
		want := []row{{Name: "workflow.rerun", Org: "acme", Repo: "a/b", RoutingKey: "github:1", Run: "r2", CreatedAt: r.now, ExpiresAt: got[0].ExpiresAt,
			Payload: `{"parentRunId":"r1","newRunId":"r2","workflowName":"ci","repo":"a/b","sha":"abc","triggeredBy":"user:x"}`}}
		if d := cmp.Diff(want, got); d != "" {
			r.t.Error(d)
		}
	})
}

func TestConclusions(t *testing.T) {
	stale := []lifecycle.Summary{{Name: "a", Status: ci.JobSuccess}, {Name: "b", Status: ci.JobTimedOutStale}}
	tests := []struct {
		run  engine.EndedRun
		want string
	}{
		{engine.EndedRun{Status: ci.RunSuccess}, "success"},
		{engine.EndedRun{Status: ci.RunFailed}, "failure"},
		{engine.EndedRun{Status: ci.RunFailed, Jobs: stale}, "timed_out"},
		{engine.EndedRun{Status: ci.RunCancelled, Jobs: stale}, "cancelled"},
	}
	for _, tt := range tests {
		if got := conclusion(tt.run); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.run, got, tt.want)
		}
	}
}
