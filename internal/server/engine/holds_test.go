package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/contexts"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// fakeContexts are the contexts that exist, by name.
type fakeContexts map[string]contexts.Context

func (f fakeContexts) Bound(_ context.Context, _ *store.Tx, _ string, names []string) ([]contexts.Bound, error) {
	var out []contexts.Bound
	for _, name := range names {
		b := contexts.Bound{Name: name}
		if c, ok := f[name]; ok {
			c.Name, c.Enabled = name, true
			b.Context = &c
		}
		out = append(out, b)
	}
	return out, nil
}

// Keys gives every context that exists one secret, TOKEN.
func (f fakeContexts) Keys(_ context.Context, _ string, names []string) (map[string][]string, string, error) {
	keys := map[string][]string{}
	for _, name := range names {
		if _, ok := f[name]; ok {
			keys[name] = []string{"TOKEN"}
		}
	}
	return keys, "", nil
}

// guard gives the engine of a bench contexts to ask.
func (b *bench) guard(f fakeContexts) {
	settings := engine.DefaultSettings()
	settings.NodeID = "node-1"
	b.e = engine.New(engine.Deps{DB: b.db, Log: slog.New(slog.DiscardHandler), Settings: settings, Contexts: f,
		InstallJudged: func(j engine.InstallJudgement) {
			b.judged = append(b.judged, strings.TrimSpace(j.Decision+" "+j.Reason))
		},
		Clock: func() time.Time { return time.UnixMilli(b.now.Load()) }, Dispatch: service.NewPoke(), Effects: service.NewPoke()})
}

// hold finds the newest pending hold of a run.
func (b *bench) hold(runID string) string {
	b.t.Helper()
	return b.text("SELECT coalesce(max(id), '') FROM held_runs WHERE run_id = $1 AND status = 'pending'", runID)
}

func (b *bench) decide(holdID, user string, answer contexts.Answer) contexts.Decision {
	b.t.Helper()
	d, err := b.e.Decide(b.t.Context(), holdID, engine.Vote{By: contexts.Actor{ID: user, Name: user, MayDecide: true}, Through: ci.QueueContext, Answer: answer})
	b.must(err)
	return d
}

func number(n int64) *int64 { return &n }

const approval = `,"approval":{"clauses":[{"user":"anna"},{"user":"bert"}],"when":"always","reason":"ship it"}`

func TestAJobWaitsForTheApprovalThatItsAuthorAsksFor(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("test", ""), lockJob("deploy", `,"needs":["test"]`+approval))
		hold := b.hold("r")
		if hold == "" {
			t.Fatal("people are asked only when the job is ready")
		}
		b.run("agent-1", b.id("r", "test"), ci.JobSuccess, "")
		b.wantStates("r", "test=success deploy=pending")
		if got := b.text("SELECT reason FROM execution_jobs WHERE job_id = $1", b.id("r", "deploy")); !strings.Contains(got, "Requires approval from: anna, bert (ship it)") {
			t.Errorf("the job waits for %s", got)
		}
		if d := b.decide(hold, "carl", contexts.Approve); d.Result != contexts.Ineligible {
			t.Errorf("carl: %+v", d)
		}
		if d := b.decide(hold, "anna", contexts.Approve); d.Result != contexts.Pending {
			t.Errorf("anna: %+v", d)
		}
		b.wantStates("r", "test=success deploy=pending")
		if d := b.decide(hold, "bert", contexts.Approve); d.Result != contexts.Released {
			t.Errorf("bert: %+v", d)
		}
		b.wantStates("r", "test=success deploy=queued")
		if d := b.decide(hold, "bert", contexts.Reject); d.Result != contexts.NotFound {
			t.Errorf("a decided hold: %+v", d)
		}
		b.run("agent-1", b.id("r", "deploy"), ci.JobSuccess, "")
		b.wantRun("r", "success", "")
	})
}

func TestAnEarlyApprovalLetsTheJobGoWhenItIsReady(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("test", ""), lockJob("deploy", `,"needs":["test"],"approval":{"clauses":[],"when":"always"}`))
		b.decide(b.hold("r"), "anna", contexts.Approve)
		b.wantStates("r", "test=queued deploy=pending")
		b.run("agent-1", b.id("r", "test"), ci.JobSuccess, "")
		b.wantStates("r", "test=success deploy=queued")
	})
}

func TestARejectedOrForgottenHoldEndsWhatItHeld(t *testing.T) {
	tests := []struct {
		name string
		end  func(b *bench, hold string)
		want string
	}{
		{"rejected", func(b *bench, hold string) { b.decide(hold, "anna", contexts.Reject) }, "Rejected by anna"},
		{"expired", func(b *bench, _ string) {
			b.now.Add(24*time.Hour.Milliseconds() + 1)
			b.must(b.e.SweepOnce(b.t.Context()))
		}, "Approval expired for job hold"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(b *bench) {
				b.plan("r", nil, "", lockJob("deploy", approval), lockJob("after", `,"needs":["deploy"]`))
				tt.end(b, b.hold("r"))
				b.wantStates("r", "deploy=failed after=skipped")
				if got := b.text("SELECT error_message FROM execution_jobs WHERE job_id = $1", b.id("r", "deploy")); got != tt.want {
					t.Errorf("the job ended for %q", got)
				}
				b.wantRun("r", "failed", "Failed jobs: deploy")
			})
		})
	}
}

func TestAHeldWorkflowHoldsItsJobs(t *testing.T) {
	each(t, func(b *bench) {
		members := `,"approval":{"clauses":[],"when":"always"}`
		b.plan("r", nil, members, lockJob("a", ""), lockJob("b", approval), lockJob("c", `,"needs":["a"]`))
		holds := b.text("SELECT CAST(count(*) AS TEXT) FROM held_runs WHERE run_id = 'r' AND status = 'pending'")
		if holds != "2" {
			t.Fatalf("%s holds", holds)
		}
		whole := b.text("SELECT id FROM held_runs WHERE run_id = 'r' AND hold_scope = 'workflow'")
		b.decide(whole, "anna", contexts.Approve)
		b.wantStates("r", "a=queued b=pending c=pending")

		b.plan("no", nil, members, lockJob("a", ""), lockJob("c", `,"needs":["a"]`))
		b.decide(b.hold("no"), "anna", contexts.Reject)
		b.wantStates("no", "a=failed c=skipped")
	})
}

// TestNothingOfAHeldWorkflowRunsForWhatFailed has a job that waits for the failure of one that is born failed, and one that
// waits for the failure of one that is refused.
func TestNothingOfAHeldWorkflowRunsForWhatFailed(t *testing.T) {
	members := `,"approval":{"clauses":[],"when":"always"}`
	after := func(name string) string { return `,"needs":[{"name":"` + name + `","runOn":["failed"]}]` }
	each(t, func(b *bench) {
		plan := func(run string) string {
			b.plan(run, nil, members, lockJob("broken", `,"matrix":{"_type":"static","values":[]}`), lockJob("clean", after("broken")),
				lockJob("build", ""), lockJob("tell", after("build")))
			b.wantStates(run, "broken=failed clean=pending build=pending tell=pending")
			return b.hold(run)
		}
		b.decide(plan("yes"), "anna", contexts.Approve)
		b.wantStates("yes", "broken=failed clean=queued build=queued tell=pending")
		b.decide(plan("no"), "anna", contexts.Reject)
		b.wantStates("no", "broken=failed clean=failed build=failed tell=failed")
		if status := b.runStatus("no"); status != "failed" {
			t.Errorf("the run is %s", status)
		}
	})
}

func TestTheEndOfARunClosesItsHolds(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("test", ""), lockJob("deploy", `,"needs":["test"]`+approval))
		hold := b.hold("r")
		b.run("agent-1", b.id("r", "test"), ci.JobFailed, "")
		b.wantStates("r", "test=failed deploy=skipped")
		if d := b.decide(hold, "anna", contexts.Approve); d.Result != contexts.NotFound || b.hold("r") != "" {
			t.Errorf("decision %+v", d)
		}
		b.plan("r2", nil, "", lockJob("deploy", approval))
		_, err := b.e.Cancel(t.Context(), "r2", "api_key:1", "", false)
		b.must(err)
		if b.hold("r2") != "" {
			t.Error("the hold of a cancelled run is open")
		}
		b.wantRun("r2", "cancelled", "run cancelled via API")
		if _, err := b.e.Decide(t.Context(), "made up", engine.Vote{}); !errors.Is(err, engine.ErrHoldNotFound) {
			t.Errorf("unknown hold: %v", err)
		}
	})
}

func TestContextsGuardJobs(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{
			"open": {}, "main-only": {BranchRestrictions: []string{"release/*"}},
			"prod": {RequiredReviewers: []string{"anna"}, WaitTimerSeconds: number(60)},
		})
		in := func(name string) string { return `,"environments":[{"value":"` + name + `","dynamic":false}]` }
		b.plan("r", nil, "", lockJob("open", in("open")), lockJob("refused", in("main-only")), lockJob("gone", in("nowhere")), lockJob("prod", in("prod")))
		b.wantStates("r", "open=queued refused=failed gone=failed prod=pending")
		if got := b.text("SELECT error_message FROM execution_jobs WHERE job_id = $1", b.id("r", "refused")); got != "multi-environment gate: 'main-only' rejected (branch_restricted: branch 'main' not allowed)" {
			t.Errorf("refused for %q", got)
		}
		b.decide(b.hold("r"), "anna", contexts.Approve)
		b.wantStates("r", "open=queued refused=failed gone=failed prod=pending") // the timer follows
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r", "open=queued refused=failed gone=failed prod=pending")
		b.now.Add(60_000)
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r", "open=queued refused=failed gone=failed prod=queued")
	})
}

func TestSlotsOfAContextAreTakenInTurn(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {ConcurrencyLimit: number(1)}})
		in := `,"environments":[{"value":"prod","dynamic":false}]`
		b.plan("r1", nil, "", lockJob("a", in), lockJob("b", in))
		b.now.Add(1)
		b.plan("r2", nil, "", lockJob("c", in))
		b.wantStates("r1", "a=queued b=pending")
		b.wantStates("r2", "c=pending")
		if code := b.reasonCode("execution_jobs", "job_id", b.id("r1", "b")); code != ci.ReasonContextConcurrency {
			t.Errorf("the second job waits for %s", code)
		}
		b.run("agent-1", b.id("r1", "a"), ci.JobSuccess, "")
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r1", "a=success b=queued")
		b.wantStates("r2", "c=pending")
		b.run("agent-1", b.id("r1", "b"), ci.JobSuccess, "")
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r2", "c=queued")
	})
}

// TestSlotsAreThoseOfTheJobsOwnGroup has two jobs of one context that name groups of their own, and a third of no group.
func TestSlotsAreThoseOfTheJobsOwnGroup(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {ConcurrencyLimit: number(1)}})
		in := `,"environments":[{"value":"prod","dynamic":false}]`
		b.plan("r1", nil, "", lockJob("a", in+`,"concurrencyGroup":"east"`), lockJob("b", in+`,"concurrencyGroup":"west"`), lockJob("c", in))
		b.wantStates("r1", "a=queued b=queued c=queued")
		b.now.Add(1)
		b.plan("r2", nil, "", lockJob("d", in+`,"concurrencyGroup":"west"`))
		b.wantStates("r2", "d=pending")
		b.run("agent-1", b.id("r1", "a"), ci.JobSuccess, "")
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r2", "d=pending")
		b.run("agent-1", b.id("r1", "b"), ci.JobSuccess, "")
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r2", "d=queued")
	})
}

// TestALimitHoldsWhateverElseAJobBinds has a limit on a context that is not the first of its job, and one on a context that
// is not the first of its run.
func TestALimitHoldsWhateverElseAJobBinds(t *testing.T) {
	in := func(names ...string) string {
		var list []string
		for _, name := range names {
			list = append(list, `{"value":"`+name+`","dynamic":false}`)
		}
		return `,"environments":[` + strings.Join(list, ",") + `]`
	}
	each(t, func(b *bench) {
		b.guard(fakeContexts{"shared": {}, "stage": {}, "prod": {ConcurrencyLimit: number(1)}})
		b.plan("r1", nil, "", lockJob("a", in("shared", "prod")))
		b.now.Add(1)
		b.plan("r2", nil, "", lockJob("b", in("shared", "prod")))
		for range 3 { // however often it is looked at
			b.now.Add(1000)
			b.must(b.e.SweepOnce(t.Context()))
			b.wantStates("r2", "b=pending")
		}
		b.run("agent-1", b.id("r1", "a"), ci.JobSuccess, "")
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r2", "b=queued")
	})
	each(t, func(b *bench) {
		b.guard(fakeContexts{"shared": {}, "stage": {}, "prod": {ConcurrencyLimit: number(1)}})
		b.plan("r1", nil, "", lockJob("t", in("stage")), lockJob("a", in("prod")+`,"needs":["t"]`))
		b.plan("r2", nil, "", lockJob("b", in("prod")))
		b.run("agent-1", b.id("r1", "t"), ci.JobSuccess, "")
		b.wantStates("r1", "t=success a=pending")
		b.run("agent-1", b.id("r2", "b"), ci.JobSuccess, "")
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r1", "t=success a=queued")
	})
}

func TestManyThatWaitForSlotsHideNoTimer(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"full": {ConcurrencyLimit: number(0), ConcurrencyTimeoutMs: 86_400_000}, "timer": {WaitTimerSeconds: number(1)}})
		in := func(name string) string { return `,"environments":[{"value":"` + name + `","dynamic":false}]` }
		var jobs []string
		for i := range 501 { // one more than a sweep takes up
			jobs = append(jobs, lockJob(fmt.Sprint("p", i), in("full")))
		}
		b.plan("r1", nil, "", jobs...)
		b.now.Add(1)
		b.plan("r2", nil, "", lockJob("t", in("timer")))
		b.now.Add(2000)
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r2", "t=queued")
	})
}

func TestNobodyIsAskedAboutAStepOfAJobThatHasEnded(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("a", ""), lockJob("other", ""))
		b.begin("agent-1", b.id("r", "a"))
		b.step(b.id("r", "a"), "q1")
		b.report("agent-1", b.id("r", "a"), ci.JobFailed, "")
		if b.hold("r") != "" {
			t.Error("the hold is open")
		}
	})
}

func TestOnlyTheNewestWaitsWhereItsContextSaysSo(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {ConcurrencyLimit: number(1), ConcurrencyStrategy: contexts.CancelPending}})
		in := `,"environments":[{"value":"prod","dynamic":false}]`
		for _, run := range []string{"r1", "r2", "r3"} {
			b.plan(run, nil, "", lockJob("a", in))
			b.now.Add(1)
		}
		b.must(b.e.FollowOnce(t.Context()))
		got := []string{b.states("r1"), b.states("r2"), b.states("r3")}
		if diff := cmp.Diff([]string{"a=queued", "a=failed", "a=pending"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// Those that make room for a newer one are told in the order in which they came.
func TestOlderHoldsMakeRoomInOrder(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {ConcurrencyLimit: number(1), ConcurrencyStrategy: contexts.CancelPending}})
		const runs = 12
		for i := range runs {
			b.plan(fmt.Sprintf("r%02d", i), nil, "", lockJob("a", `,"environments":[{"value":"prod","dynamic":false}]`))
			b.now.Add(1)
		}
		told := b.list("SELECT target FROM outbox WHERE topic = 'run' AND payload LIKE '%rejectHold%' ORDER BY id")
		var want []string
		for newest := 2; newest < runs; newest++ { // the first has the slot
			for older := 1; older < newest; older++ {
				want = append(want, fmt.Sprintf("r%02d", older))
			}
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAnInitJobsContextsAreAskedOnceTheyAreKnown(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {RequiredReviewers: []string{"anna"}}, "closed": {BranchRestrictions: []string{"x"}}})
		dynamic := `,"environments":[{"value":"","dynamic":true}]`
		b.plan("r", nil, "", lockJob("a", dynamic), lockJob("m", dynamic+`,"matrix":{"_type":"dynamic"}`), lockJob("bad", dynamic))
		b.run("agent-1", b.id("r", "__init__ci__a"), ci.JobSuccess, `{"initComplete":true,"initResult":{"environmentNames":["prod"]}}`)
		b.run("agent-1", b.id("r", "__init__ci__m"), ci.JobSuccess, `{"initComplete":true,"initResult":{"environmentNames":["prod"],"matrixValues":[{"v":"1"},{"v":"2"}]}}`)
		b.run("agent-1", b.id("r", "__init__ci__bad"), ci.JobSuccess, `{"initComplete":true,"initResult":{"environmentNames":["closed"]}}`)
		b.wantStates("r", "__init__ci__a=success a=pending __init__ci__m=success m (1)=pending m (2)=pending __init__ci__bad=success bad=failed")
		for range 3 {
			b.decide(b.hold("r"), "anna", contexts.Approve)
		}
		b.wantStates("r", "__init__ci__a=success a=queued __init__ci__m=success m (1)=queued m (2)=queued __init__ci__bad=success bad=failed")
	})
}

// step asks people about a step, as an agent does.
func (b *bench) step(jobID, messageID string) *wire.ApprovalResolved {
	b.t.Helper()
	answer, err := engine.Approvals{Engine: b.e}.Request(b.t.Context(), "agent-1", wire.ApprovalRequest{MessageID: messageID, RunID: "r", JobID: jobID,
		StepIndex: 2, StepName: "apply", Clauses: []wire.Clause{{User: "anna"}}, Reason: "drift", TimeoutSeconds: 60})
	b.must(err)
	return answer
}

func TestAStepWaitsForPeople(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("a", ""))
		job := b.id("r", "a")
		b.begin("agent-1", job)
		if answer := b.step(job, "q1"); answer != nil {
			t.Fatalf("answered at once: %+v", answer)
		}
		if answer := b.step(job, "q1"); answer != nil || b.text("SELECT CAST(count(*) AS TEXT) FROM held_runs") != "1" {
			t.Fatalf("the question was not found again: %+v", answer)
		}
		b.decide(b.hold("r"), "anna", contexts.Approve)
		want := wire.ApprovalResolved{RequestID: "q1", RunID: "r", JobID: job, StepIndex: 2, Outcome: wire.ApprovalApproved}
		if diff := cmp.Diff([]wire.Message{want}, b.frames()); diff != "" {
			t.Error(diff)
		}
		if answer := b.step(job, "q1"); answer == nil || answer.Outcome != wire.ApprovalApproved {
			t.Errorf("the decided question: %+v", answer)
		}
		_, err := b.e.Connected(t.Context(), "agent-1", []wire.InFlightJob{{JobID: job, RunID: "r"}}, true)
		b.must(err)
		if frames := b.frames(); len(frames) != 1 {
			t.Errorf("on its return the agent is told %+v", frames)
		}
		b.step(job, "q2")
		b.now.Add(61_000)
		b.must(b.e.SweepOnce(t.Context()))
		frames := b.frames()
		if len(frames) != 1 || frames[0].(wire.ApprovalResolved).Outcome != wire.ApprovalExpired {
			t.Errorf("after its time: %+v", frames)
		}
	})
}
