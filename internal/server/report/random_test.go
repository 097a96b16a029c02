package report_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kici/internal/core/adminwire"
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

// TestWhateverHappensEveryJobSaysWhy lets anything happen to a run, and requires after each step that every job that has not
// ended says what it waits for, and every other by what it ended.
func TestWhateverHappensEveryJobSaysWhy(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFloor(t, db)
		limit, wait := int64(1), int64(30)
		f.rules["slots"], f.rules["timer"] = contexts.Context{ConcurrencyLimit: &limit}, contexts.Context{WaitTimerSeconds: &wait}
		f.rules["closed"] = contexts.Context{BranchRestrictions: []string{"release"}}
		n := 0
		rapid.Check(t, func(rt *rapid.T) {
			n++
			run := fmt.Sprint("r-", n)
			jobs := anyPlan(rt, f, run)
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				anyStep(rt, f, run, jobs)
				everyJobSaysWhy(rt, f, run)
			}
			_, _ = f.Cancel(t.Context(), run, "test", "", true) // the next one shall find its agent free; it may have ended
			f.millis += hour
			must(t, f.SweepOnce(t.Context()))
		})
	})
}

// anyPlan registers a run r of a few jobs, and gives their ids.
func anyPlan(rt *rapid.T, f *floor, run string) (ids []string) {
	p := plan.Plan{TimeoutMs: rapid.SampledFrom([]int64{0, 60_000}).Draw(rt, "timeout")}
	for i := range rapid.IntRange(1, 4).Draw(rt, "jobs") {
		j := job(fmt.Sprint("j", i), on(rapid.SampledFrom([]string{"linux", "gpu"}).Draw(rt, "label")))
		j.ID = run + j.ID
		j = bound(j, rapid.SampledFrom([][]string{nil, nil, {"slots"}, {"timer"}, {"reviewed"}, {"slots", "reviewed"}, {"closed"}}).Draw(rt, "contexts")...)
		if rapid.Bool().Draw(rt, "asks") {
			j.Approval = &lockfile.Approval{When: "always", Clauses: []lockfile.Clause{{User: "anna"}}}
		}
		if i > 0 && rapid.Bool().Draw(rt, "needs") {
			p.Edges = append(p.Edges, plan.Edge{Job: j.Name, Upstream: "j0", RunOn: rapid.SampledFrom([][]ci.JobStatus{{ci.JobSuccess}, {ci.JobFailed, ci.JobSkipped}}).Draw(rt, "run on")})
		}
		p.Jobs, ids = append(p.Jobs, j), append(ids, j.ID)
	}
	switch rapid.IntRange(0, 4).Draw(rt, "workflow") {
	case 0:
		p.Approval = &lockfile.Approval{When: "always"}
	case 1:
		p.Secrets = plan.WorkflowSecrets{InstallEnv: []string{"reviewed:TOKEN"}}
	}
	f.agent("a-1", []string{"linux"}, nil)
	f.register(run, p)
	return ids
}

// anyStep does one thing, which may be impossible now.
func anyStep(rt *rapid.T, f *floor, run string, jobs []string) {
	ctx := f.t.Context()
	job := rapid.SampledFrom(jobs).Draw(rt, "job")
	switch rapid.SampledFrom([]string{"claim", "ack", "reject", "report", "report", "lost", "wait", "cancel", "decide", "decide"}).Draw(rt, "step") {
	case "claim":
		f.claim(job, "a-1", rapid.IntRange(1, 5).Draw(rt, "attempt"))
	case "ack":
		_, _ = f.Acked(ctx, "a-1", run, job) // a job that is not the agent's is refused, here and below
	case "reject":
		_ = f.Rejected(ctx, "a-1", job, "busy")
	case "report":
		state := rapid.SampledFrom([]ci.JobStatus{ci.JobRunning, ci.JobSuccess, ci.JobFailed, ci.JobCancelled}).Draw(rt, "state")
		_ = f.JobReported(ctx, "a-1", wire.JobStatus{JobID: job, State: state})
	case "lost":
		must(f.t, f.Lost(ctx, "a-1", "c", false))
		f.agent("a-1", []string{"linux"}, nil)
	case "wait":
		f.millis += rapid.SampledFrom([]int64{1000, 31_000, 2 * hour, 30 * hour}).Draw(rt, "how long")
		must(f.t, f.SweepOnce(ctx))
		must(f.t, f.FollowOnce(ctx))
	case "cancel":
		_, _ = f.Cancel(ctx, run, "api_key:t", "", rapid.Bool().Draw(rt, "force"))
	case "decide":
		decideAny(rt, f, run)
	}
}

func decideAny(rt *rapid.T, f *floor, run string) {
	holds, err := report.Holds(f.t.Context(), f.db.Read(), report.HoldFilter{RunID: run, Statuses: []string{"pending"}, Limit: 10})
	must(f.t, err)
	if len(holds) == 0 {
		return
	}
	h := rapid.SampledFrom(holds).Draw(rt, "hold")
	answer := rapid.SampledFrom([]contexts.Answer{contexts.Approve, contexts.Approve, contexts.Reject}).Draw(rt, "answer")
	_, err = f.Decide(f.t.Context(), h.ID, engine.Vote{By: contexts.Actor{ID: "anna", Name: "anna", MayDecide: true}, Through: h.QueueType, Answer: answer})
	must(f.t, err)
}

func everyJobSaysWhy(rt *rapid.T, f *floor, run string) {
	x, err := report.Explain(f.t.Context(), f.db.Read(), run, "", f.millis)
	must(f.t, err)
	if x.Status.Terminal() && x.Status != ci.RunSuccess && (x.Reason == nil || x.Reason.Message == "") {
		rt.Fatalf("the run is %s and says nothing", x.Status)
	}
	for _, j := range x.Jobs {
		switch {
		case j.Reason.Code == "" || j.Reason.Message == "" || j.Reason.Code == "unknown":
			rt.Fatalf("job %s is %s because of %+v", j.JobName, j.Status, j.Reason)
		case j.Status.Terminal() && j.Status != ci.JobSuccess && strings.HasPrefix(j.Reason.Message, "ended as"):
			rt.Fatalf("job %s is %s and nobody wrote why: %+v", j.JobName, j.Status, j.Reason)
		case len(j.Reason.Details) > 0 && !json.Valid(j.Reason.Details):
			rt.Fatalf("job %s: details %s", j.JobName, j.Reason.Details)
		case j.Status.Terminal() && len(j.Holds) > 0:
			rt.Fatalf("job %s is %s and held by %+v", j.JobName, j.Status, j.Holds)
		}
	}
	open := slices.ContainsFunc(x.Jobs, func(j adminwire.ExplainedJob) bool { return !j.Status.Terminal() })
	if x.Status.Terminal() == open && len(x.Jobs) > 0 {
		rt.Fatalf("the run is %s, and its jobs %+v", x.Status, x.Jobs)
	}
}
