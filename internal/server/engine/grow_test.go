package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/plan"
	"kici/internal/server/fleet"
)

// plan registers a run of a workflow with these lock file jobs, as the pipeline does.
func (b *bench) plan(runID string, packing *plan.Packing, members string, jobs ...string) {
	b.t.Helper()
	f, perr := lockfile.Load([]byte(`{"schemaVersion":29,"source":{"file":".kici/workflows/ci.ts","export":"#ci"},"workflows":[`+
		`{"name":"ci","contentHash":"c0ffee","compileSchemaVersion":5,"triggers":[]`+members+`,"jobs":[`+strings.Join(jobs, ",")+`]}]}`), "acme/app", "main")
	if perr != nil {
		b.t.Fatal(perr)
	}
	event := ci.Event{Type: "push", TargetBranch: "main", Payload: json.RawMessage(`{}`)}
	known, err := fleet.Members(b.t.Context(), b.db.Read())
	b.must(err)
	p, err := plan.Build(plan.Input{Workflow: f.Workflows[0], Event: event, Org: "default", RunID: runID, Packing: packing,
		Roster: fleet.Roster(known), Now: b.now.Load(), RosterGrace: time.Minute,
		Source: plan.Source{Repo: "acme/app", Ref: "main", SHA: "abc", Provider: "local"}})
	b.must(err)
	r := registration(runID)
	r.Plan, r.TrustTier, r.TriggeredBy = p, b.tier, b.by
	r.Event, err = json.Marshal(event)
	b.must(err)
	register := func() error { return b.e.Register(b.t.Context(), r) }
	if b.insist != nil {
		register = func() error { return b.insist(func() error { return b.e.Register(b.t.Context(), r) }) }
	}
	b.must(register())
}

func lockJob(name, members string) string {
	return fmt.Sprintf(`{"_type":"static","name":%q,"runsOn":[{"kind":"exact","value":"linux"}],"steps":[]%s}`, name, members)
}

const generator = `{"_type":"dynamic","source":{"file":".kici/workflows/ci.ts","index":1},"group":"g","needs":["a"]}`

// id finds a job of a run by its name.
func (b *bench) id(runID, name string) string {
	b.t.Helper()
	return b.text("SELECT coalesce(max(job_id), '') FROM execution_jobs WHERE run_id = $1 AND job_name = $2", runID, name)
}

// states is every job of a run with its status, in their order.
func (b *bench) states(runID string) string {
	b.t.Helper()
	rows, err := b.db.Read().QueryContext(b.t.Context(), `SELECT j.job_name, j.status, coalesce(q.status, '-') FROM execution_jobs j
LEFT JOIN dispatch_queue q ON q.id = j.job_id WHERE j.run_id = $1 ORDER BY j.position`, runID)
	b.must(err)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var name, status, row string
		b.must(rows.Scan(&name, &status, &row))
		if row == "pending" {
			status = "queued"
		}
		out = append(out, name+"="+status)
	}
	b.must(rows.Err())
	return strings.Join(out, " ")
}

func (b *bench) wantStates(runID, want string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.states(runID)); diff != "" {
		b.t.Errorf("jobs of run %s (-want +got):\n%s", runID, diff)
	}
}

func TestAnInitJobCompletesThePlaceThatWaitsForIt(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("a", `,"dynamicEnv":true`), lockJob("b", `,"needs":["a"]`))
		b.wantStates("r", "__init__ci__a=queued a=pending b=pending")
		if code := b.reasonCode("execution_jobs", "job_id", b.id("r", "a")); code != ci.ReasonInit {
			t.Errorf("the place waits for %s", code)
		}
		b.run("agent-1", b.id("r", "__init__ci__a"), ci.JobSuccess, `{"initComplete":true,"initResult":{"env":{"A":"1"}}}`)
		b.wantStates("r", "__init__ci__a=success a=queued b=pending")
		in, err := b.e.Input(t.Context(), b.id("r", "a"))
		b.must(err)
		if !strings.Contains(string(in.Config), `"jobEnv":{"A":"1"}`) {
			t.Errorf("configuration %s", in.Config)
		}
		b.run("agent-1", b.id("r", "a"), ci.JobSuccess, "")
		b.run("agent-1", b.id("r", "b"), ci.JobSuccess, "")
		b.wantRun("r", "success", "")
	})
}

func TestAMatrixOfAnAgentTakesItsPlace(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("first", ""), lockJob("m", `,"needs":["first"],"matrix":{"_type":"dynamic"},"maxParallel":1`), lockJob("last", `,"needs":["m"]`))
		b.run("agent-1", b.id("r", "first"), ci.JobSuccess, "")
		b.wantStates("r", "first=success __init__ci__m=queued m=pending last=pending")
		b.run("agent-1", b.id("r", "__init__ci__m"), ci.JobSuccess, `{"initComplete":true,"initResult":{"matrixValues":[{"v":"1"},{"v":"2"}]}}`)
		b.wantStates("r", "first=success __init__ci__m=success m (1)=queued m (2)=pending last=pending")
		b.run("agent-1", b.id("r", "m (1)"), ci.JobSuccess, `{"outputs":{"s":{"k":"1"}}}`)
		b.run("agent-1", b.id("r", "m (2)"), ci.JobSuccess, "")
		in, err := b.e.Input(t.Context(), b.id("r", "last"))
		b.must(err)
		if diff := cmp.Diff([]string{"m"}, in.Bases); diff != "" || len(in.Upstreams) != 2 {
			t.Errorf("upstreams %+v: %s", in.Upstreams, diff)
		}
		b.run("agent-1", b.id("r", "last"), ci.JobSuccess, "")
		b.wantRun("r", "success", "")
	})
}

func TestAnInitJobThatFailsFailsItsPlace(t *testing.T) {
	tests := []struct {
		name, data string
		end        ci.JobStatus
		reason     string
	}{
		{"with its own reason", `{"error":"boom","initFailed":true}`, ci.JobFailed, "boom"},
		{"with a category", `{"initFailure":{"scope":"job","category":"matrix_expansion","message":"too wide"}}`, ci.JobFailed, "too wide"},
		{"without a result", `{}`, ci.JobSuccess, "the agent reported success without a result"},
		{"with null for a result", `{"initComplete":true,"initResult":null}`, ci.JobSuccess, "the agent reported success without a result"},
		{"with a result that cannot be used", `{"initComplete":true,"initResult":{"matrixValues":[]}}`, ci.JobSuccess, "dynamic matrix for job 'm' resolved to zero combinations"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(b *bench) {
				b.plan("r", nil, "", lockJob("m", `,"matrix":{"_type":"dynamic"}`), lockJob("last", `,"needs":["m"]`), lockJob("always", `,"needs":[{"name":"m","runOn":["failed"]}]`))
				b.run("agent-1", b.id("r", "__init__ci__m"), tt.end, tt.data)
				b.wantStates("r", "__init__ci__m=failed m=failed last=skipped always=queued")
				if got := b.text("SELECT error_message FROM execution_jobs WHERE job_id = $1", b.id("r", "m")); got != tt.reason {
					t.Errorf("the place failed with %q", got)
				}
				b.run("agent-1", b.id("r", "always"), ci.JobSuccess, "")
				b.wantRun("r", "failed", "Failed jobs: __init__ci__m, m")
			})
		})
	}
}

func TestAGeneratorsJobsJoinTheRun(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("a", ""), generator, lockJob("last", `,"needs":[{"group":"g"}],"dependsOnGroups":["g"]`))
		b.run("agent-1", b.id("r", "a"), ci.JobSuccess, `{"outputs":{"list":{"n":2}}}`)
		b.wantStates("r", "a=success __dynamic__ci__1=queued last=pending")
		in, err := b.e.Input(t.Context(), b.id("r", "__dynamic__ci__1"))
		b.must(err)
		if want := `"upstreamSnapshot":{"groups":{},"jobs":{"a":{"list":{"n":2}}},"statuses":{"a":"success"}}`; !strings.Contains(string(in.Config), want) {
			t.Errorf("configuration of the generator %s lacks %s", in.Config, want)
		}
		b.run("agent-1", b.id("r", "__dynamic__ci__1"), ci.JobSuccess, `{"dynamicComplete":true,"dynamicJobs":[`+
			lockJob("x", "")+`,`+lockJob("y", `,"needs":["x"]`)+`,`+lockJob("z", `,"needs":["a"]`)+`]}`)
		b.wantStates("r", "a=success __dynamic__ci__1=success x=queued y=pending z=queued last=pending")
		if in, err = b.e.Input(t.Context(), b.id("r", "x")); err != nil {
			t.Fatal(err)
		}
		if want := `"dynamicSource":{"index":1,"expectedJobNames":["x","y","z"],"upstreamSnapshot":{"groups":{},"jobs":{"a":{"list":{"n":2}}},"statuses":{"a":"success"}},"declaredNeeds":["a"],"event":{`; !strings.Contains(string(in.Config), want) {
			t.Errorf("configuration of a generated job %s lacks %s", in.Config, want)
		}
		for _, name := range []string{"x", "y", "z"} {
			b.run("agent-1", b.id("r", name), ci.JobSuccess, "")
		}
		if in, err = b.e.Input(t.Context(), b.id("r", "last")); err != nil || !strings.Contains(string(in.Config), `"upstreamGroups":{"g":["x","y","z"]}`) {
			t.Errorf("configuration of the dependant %s, %v", in.Config, err)
		}
		b.run("agent-1", b.id("r", "last"), ci.JobSuccess, "")
		b.wantRun("r", "success", "")
	})
}

func TestGeneratorsThatGiveNothingOrFail(t *testing.T) {
	tests := []struct {
		name, data string
		end        ci.JobStatus
		want       string
	}{
		{"an empty group holds up nobody", `{"dynamicComplete":true,"dynamicJobs":[]}`, ci.JobSuccess, "a=success __dynamic__ci__1=success last=queued on-failure=queued"},
		{"a failure counts as the group's", `{"error":"threw","dynamicFailed":true}`, ci.JobFailed, "a=success __dynamic__ci__1=failed last=skipped on-failure=queued"},
		{"success without a result is a failure", `{}`, ci.JobSuccess, "a=success __dynamic__ci__1=failed last=skipped on-failure=queued"},
		{"and so is one that has null for it", `{"dynamicComplete":true,"dynamicJobs":null}`, ci.JobSuccess, "a=success __dynamic__ci__1=failed last=skipped on-failure=queued"},
		{"too many jobs", `{"dynamicComplete":true,"dynamicJobs":[` + strings.TrimSuffix(strings.Repeat(`{},`, 101), ",") + `]}`, ci.JobSuccess, "a=success __dynamic__ci__1=failed last=skipped on-failure=queued"},
		{"a job that cannot run fails alone", `{"dynamicComplete":true,"dynamicJobs":[` + lockJob("x", `,"needs":["nobody"]`) + `]}`, ci.JobSuccess, "a=success __dynamic__ci__1=success x=failed last=skipped on-failure=queued"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(b *bench) {
				b.plan("r", nil, "", lockJob("a", ""), generator, lockJob("last", `,"needs":[{"group":"g"}]`),
					lockJob("on-failure", `,"needs":[{"group":"g","runOn":["failed"]}]`))
				b.run("agent-1", b.id("r", "a"), ci.JobSuccess, "")
				b.run("agent-1", b.id("r", "__dynamic__ci__1"), tt.end, tt.data)
				b.wantStates("r", tt.want)
			})
		})
	}
}

func TestACycleOfTwoGroupsEndsTheRun(t *testing.T) {
	each(t, func(b *bench) {
		other := `{"_type":"dynamic","source":{"file":".kici/workflows/ci.ts","index":2},"group":"h"}`
		b.plan("r", nil, "", lockJob("a", ""), generator, other, lockJob("last", `,"needs":[{"group":"h","runOn":["success"]}]`))
		b.run("agent-1", b.id("r", "a"), ci.JobSuccess, "")
		b.run("agent-1", b.id("r", "__dynamic__ci__1"), ci.JobSuccess, `{"dynamicComplete":true,"dynamicJobs":[`+lockJob("x", `,"needs":[{"group":"h","runOn":["success"]}]`)+`]}`)
		b.run("agent-1", b.id("r", "__dynamic__ci__2"), ci.JobSuccess, `{"dynamicComplete":true,"dynamicJobs":[`+lockJob("y", `,"needs":[{"group":"g","runOn":["success"]}]`)+`]}`)
		b.wantStates("r", "a=success __dynamic__ci__1=success x=failed __dynamic__ci__2=success y=failed last=skipped")
		b.wantRun("r", "failed", "Failed jobs: x, y")
	})
}

func TestWhatAnAgentNoLongerFindsIsDropped(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("a", ""), generator, lockJob("last", `,"needs":[{"group":"g","runOn":["success","drift_dropped"]}]`))
		b.run("agent-1", b.id("r", "a"), ci.JobSuccess, "")
		b.run("agent-1", b.id("r", "__dynamic__ci__1"), ci.JobSuccess, `{"dynamicComplete":true,"dynamicJobs":[`+lockJob("keep", "")+`,`+lockJob("lost", "")+`,`+lockJob("busy", "")+`]}`)
		if !b.claim(b.id("r", "busy"), "agent-2") {
			t.Fatal("not claimed")
		}
		b.start("agent-2", b.id("r", "busy"))
		b.run("agent-1", b.id("r", "keep"), ci.JobSuccess, `{"droppedJobs":["lost","busy","a","keep"]}`)
		b.wantStates("r", "a=success __dynamic__ci__1=success keep=success lost=drift_dropped busy=drift_dropped last=queued")
		if effects := b.effects(); len(effects) != 1 || effects[0].JobID != b.id("r", "busy") || !effects[0].Force {
			t.Errorf("effects %+v", effects)
		}
		b.report("agent-2", b.id("r", "busy"), ci.JobSuccess, "") // too late
		b.run("agent-1", b.id("r", "last"), ci.JobSuccess, "")
		b.wantRun("r", "failed", "Failed jobs: lost, busy")
	})
}

func TestNothingRunsBeforeTheBuild(t *testing.T) {
	each(t, func(b *bench) {
		jobs := []string{lockJob("a", ""), generator, lockJob("b", `,"dynamicEnv":true`), lockJob("c", `,"needs":["b"]`)}
		b.plan("ok", &plan.Packing{SourceNeeded: true}, "", jobs...)
		b.wantStates("ok", "__build__ci=queued a=pending __dynamic__ci__1=pending __init__ci__b=pending b=pending c=pending")
		b.run("agent-1", b.id("ok", "__build__ci"), ci.JobSuccess, `{"buildComplete":true}`)
		b.wantStates("ok", "__build__ci=success a=queued __dynamic__ci__1=pending __init__ci__b=queued b=pending c=pending")

		b.plan("bad", &plan.Packing{SourceNeeded: true}, "", jobs...)
		b.run("agent-2", b.id("bad", "__build__ci"), ci.JobFailed, `{"buildFailed":true,"error":"npm ci failed"}`)
		b.wantStates("bad", "__build__ci=failed a=failed __dynamic__ci__1=skipped __init__ci__b=failed b=failed c=skipped")
		b.wantRun("bad", "failed", "npm ci failed")
		var f ci.InitFailure
		b.must(json.Unmarshal([]byte(b.text("SELECT init_failure FROM execution_runs WHERE run_id = 'bad'")), &f))
		if f.Category != ci.InitBuildCoordination || f.Scope != ci.ScopeRun {
			t.Errorf("init failure %+v", f)
		}
	})
}

func TestACancelledRunDoesNotGrow(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("m", `,"matrix":{"_type":"dynamic"}`), lockJob("last", `,"needs":["m"]`))
		init := b.id("r", "__init__ci__m")
		if !b.claim(init, "agent-1") {
			t.Fatal("not claimed")
		}
		b.start("agent-1", init)
		_, err := b.e.Cancel(t.Context(), "r", "api_key:1", "", false)
		b.must(err)
		b.report("agent-1", init, ci.JobSuccess, `{"initComplete":true,"initResult":{"matrixValues":[{"v":"1"}]}}`)
		b.wantStates("r", "__init__ci__m=success m=cancelled last=cancelled")
		b.wantRun("r", "cancelled", "run cancelled via API")
	})
	each(t, func(b *bench) {
		b.plan("r", nil, "", lockJob("a", ""), generator, lockJob("last", `,"needs":[{"group":"g"}]`))
		b.run("agent-1", b.id("r", "a"), ci.JobSuccess, "")
		made := b.id("r", "__dynamic__ci__1")
		if !b.claim(made, "agent-1") {
			t.Fatal("not claimed")
		}
		b.start("agent-1", made)
		_, err := b.e.Cancel(t.Context(), "r", "api_key:1", "", false)
		b.must(err)
		b.report("agent-1", made, ci.JobSuccess, `{"dynamicComplete":true,"dynamicJobs":[`+lockJob("x", "")+`]}`)
		b.wantStates("r", "a=success __dynamic__ci__1=success last=cancelled")
		b.wantRun("r", "cancelled", "run cancelled via API")
	})
}
