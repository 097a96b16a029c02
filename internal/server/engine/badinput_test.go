package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/decide/contexts"
	"kici/internal/server/engine"
)

// failure reads the init failure of a run, or of a job of it.
func (b *bench) failure(table, key, id string) (f ci.InitFailure) {
	b.t.Helper()
	text := b.text("SELECT coalesce(init_failure, 'null') FROM "+table+" WHERE "+key+" = $1", id)
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		b.t.Fatal(err)
	}
	return f
}

func (b *bench) wantFailure(got, want ci.InitFailure) {
	b.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("init failure (-want +got):\n%s", diff)
	}
}

func TestARunOf1025JobsIsRefusedWhole(t *testing.T) {
	each(t, func(b *bench) {
		values := `,"matrix":{"_type":"static","values":[` + strings.TrimSuffix(strings.Repeat(`"x",`, 256), ",") + `]}`
		jobs := []string{lockJob("one", "")}
		for i := range 4 {
			jobs = append(jobs, lockJob(fmt.Sprint("m", i), values))
		}
		b.plan("r", nil, "", jobs...)
		const why = "workflow 'ci' expands to 1025 jobs (max 1024)"
		b.wantFailure(b.failure("execution_runs", "run_id", "r"), ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitMatrixExpansion, Message: why})
		b.wantRun("r", "failed", why)
		b.wantStates("r", "")
	})
}

func TestAnExpressionThatThrowsFailsItsJobAlone(t *testing.T) {
	each(t, func(b *bench) {
		throws := `,"env":{"_type":"inline","expression":"(e) => { throw new Error('no env for ' + e.type) }"}`
		b.plan("r", nil, "", lockJob("a", throws), lockJob("after", `,"needs":["a"]`), lockJob("other", ""))
		b.wantStates("r", "a=failed after=skipped other=queued")
		got := b.failure("execution_jobs", "job_id", b.id("r", "a"))
		if want := "Inline env evaluation failed for job 'a': "; !strings.HasPrefix(got.Message, want) || !strings.Contains(got.Message, "no env for push") {
			t.Errorf("message %q, want %q and what was thrown", got.Message, want)
		}
		got.Message = ""
		b.wantFailure(got, ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval, JobName: "a"})
		b.run("agent-1", b.id("r", "other"), ci.JobSuccess, "")
		b.wantRun("r", "failed", "Failed jobs: a")
	})
}

func TestAGeneratorOf101JobsFailsWithTheNumber(t *testing.T) {
	each(t, func(b *bench) {
		var made []string
		for i := range 101 {
			made = append(made, lockJob(fmt.Sprint("x", i), ""))
		}
		result := func(n int) string {
			return `{"dynamicComplete":true,"dynamicJobs":[` + strings.Join(made[:n], ",") + `]}`
		}
		for run, n := range map[string]int{"r": 101, "fine": 100} {
			b.plan(run, nil, "", lockJob("a", ""), generator)
			b.run("agent-1", b.id(run, "a"), ci.JobSuccess, "")
			b.run("agent-1", b.id(run, "__dynamic__ci__1"), ci.JobSuccess, result(n))
		}
		b.wantFailure(b.failure("execution_jobs", "job_id", b.id("r", "__dynamic__ci__1")), ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval,
			Message: "the generator gave 101 jobs (max 100)", JobName: "__dynamic__ci__1"})
		b.wantRun("r", "failed", "Failed jobs: __dynamic__ci__1")
		if n := strings.Count(b.states("fine"), "=queued"); n != 100 {
			t.Errorf("%d of 100 jobs are queued", n)
		}
	})
}

// TestACycleFoundLateEndsTheRun closes a cycle with a job that was there from the start.
func TestACycleFoundLateEndsTheRun(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("a", ""), generator, lockJob("b", `,"needs":[{"group":"g"}]`), lockJob("last", `,"needs":["b"]`))
		b.run("agent-1", b.id("r", "a"), ci.JobSuccess, "")
		b.run("agent-1", b.id("r", "__dynamic__ci__1"), ci.JobSuccess, `{"dynamicComplete":true,"dynamicJobs":[`+lockJob("x", `,"needs":["b"]`)+`,`+lockJob("y", "")+`]}`)
		b.wantStates("r", "a=success __dynamic__ci__1=success x=failed y=queued b=failed last=skipped")
		for _, name := range []string{"x", "b"} {
			b.wantFailure(b.failure("execution_jobs", "job_id", b.id("r", name)), ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval,
				Message: "cycle detected: b -> x -> b", JobName: name})
		}
		b.run("agent-1", b.id("r", "y"), ci.JobSuccess, "")
		b.wantRun("r", "failed", "Failed jobs: x, b")
	})
}

// TestAHoldIsDecidedOnce lets people approve and reject one hold at the same time, and once more afterwards.
func TestAHoldIsDecidedOnce(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("d", `,"approval":{"clauses":[{"user":"anna"}],"when":"always","reason":"ship it"}`))
		id := b.hold("r")
		vote := func(answer contexts.Answer) contexts.Decision {
			d, err := b.e.Decide(t.Context(), id, engine.Vote{By: contexts.Actor{ID: "anna", MayDecide: true}, Through: ci.QueueContext, Answer: answer})
			if err != nil {
				t.Error(err)
			}
			return d
		}
		var all [8]contexts.Decision
		var voting sync.WaitGroup
		for i := range all {
			voting.Go(func() { all[i] = vote([]contexts.Answer{contexts.Approve, contexts.Reject}[i%2]) })
		}
		voting.Wait()
		decided := 0
		for _, d := range all {
			if d.Result != contexts.NotFound {
				decided++
			} else if !strings.HasPrefix(d.Reason.Message, "the hold is decided already: ") {
				t.Errorf("who came late reads %q", d.Reason.Message)
			}
		}
		if decided != 1 {
			t.Errorf("%d of 8 votes decided", decided)
		}
		if d := vote(contexts.Approve); d.Result != contexts.NotFound {
			t.Errorf("a later vote: %+v", d)
		}
		if n := b.text("SELECT count(*) FROM dispatch_queue WHERE run_id = 'r'"); n > "1" {
			t.Errorf("the job is queued %s times", n)
		}
	})
}
