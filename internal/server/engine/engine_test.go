package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/outbox"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// bench is an engine on a store with a clock that the test moves, and agents that exist in the fleet.
type bench struct {
	t      *testing.T
	db     *store.DB
	e      *engine.Engine
	now    atomic.Int64
	frame  int
	tier   ci.Tier                  // of who starts the runs to come
	by     string                   // who starts them
	judged []string                 // decisions about install secrets, once a bench has contexts
	insist func(func() error) error // gives a command until it is answered; nil: once
}

func newBench(t *testing.T, db *store.DB) *bench {
	b := &bench{t: t, db: db}
	b.now.Store(1_000_000)
	settings := engine.DefaultSettings()
	settings.NodeID = "node-1"
	b.e = engine.New(engine.Deps{
		DB: db, Log: slog.New(slog.DiscardHandler), Settings: settings,
		Clock:    func() time.Time { return time.UnixMilli(b.now.Load()) },
		Dispatch: service.NewPoke(), Effects: service.NewPoke(),
	})
	for _, id := range []string{"agent-1", "agent-2"} {
		b.write(func(ctx context.Context, tx *store.Tx) error {
			return fleet.Seen(ctx, tx, fleet.Agent{ID: id, Labels: []string{"linux"}, Features: []string{wire.FeatureFrameAck},
				Lifecycle: fleet.Static, MaxConcurrency: 1, NodeID: "node-1", ConnectionID: "c-" + id, LastSeenAt: b.now.Load()})
		})
	}
	return b
}

func each(t *testing.T, test func(b *bench)) {
	storetest.Each(t, func(t *testing.T, db *store.DB) { test(newBench(t, db)) })
}

func (b *bench) write(fn func(ctx context.Context, tx *store.Tx) error) {
	b.t.Helper()
	if err := b.db.Write(b.t.Context(), fn); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// job is a plan's job with that name and needs "a", "b:failed" and so on.
type job struct {
	name  string
	needs []string
	edit  func(*plan.Job)
}

func (b *bench) register(runID string, jobs ...job) {
	b.t.Helper()
	b.must(b.e.Register(b.t.Context(), registration(runID, jobs...)))
}

func registration(runID string, jobs ...job) engine.Registration {
	r := engine.Registration{RunID: runID, OrgID: "default", RoutingKey: "generic:default:s", Provider: "local", Repo: "local/app",
		Ref: "main", SHA: "abc", CloneURL: "file:///srv/app", Event: json.RawMessage(`{"type":"push"}`), Plan: plan.Plan{Workflow: "ci"}}
	for _, j := range jobs {
		p := plan.Job{ID: runID + "/" + j.name, Name: j.name, BaseName: j.name, Selector: label.Selector{Labels: []string{"linux"}},
			Config: json.RawMessage(`{"name":"` + j.name + `"}`), Root: len(j.needs) == 0}
		if j.edit != nil {
			j.edit(&p)
		}
		r.Plan.Jobs = append(r.Plan.Jobs, p)
		for _, need := range j.needs {
			edge := plan.Edge{Job: j.name, Upstream: need, RunOn: []ci.JobStatus{ci.JobSuccess}}
			if name, on, ok := cutNeed(need); ok {
				edge.Upstream, edge.RunOn = name, on
			}
			r.Plan.Edges = append(r.Plan.Edges, edge)
		}
	}
	return r
}

func cutNeed(need string) (string, []ci.JobStatus, bool) {
	for i := range need {
		if need[i] == ':' {
			if need[i+1:] == "always" {
				return need[:i], ci.TerminalJobStatuses, true
			}
			return need[:i], []ci.JobStatus{ci.JobStatus(need[i+1:])}, true
		}
	}
	return "", nil, false
}

// claim gives a job to an agent, as the dispatcher does.
func (b *bench) claim(jobID, agent string) bool {
	b.t.Helper()
	var ok bool
	b.write(func(ctx context.Context, tx *store.Tx) (err error) {
		ok, err = queue.Claim(ctx, tx, jobID, agent, "node-1", 1, b.now.Load(), b.now.Load()+10_000)
		return err
	})
	return ok
}

func (b *bench) report(agent, jobID string, state ci.JobStatus, data string) {
	b.t.Helper()
	b.frame++
	m := wire.JobStatus{MessageID: fmt.Sprint("m", b.frame), JobID: jobID, State: state, Timestamp: b.now.Load()}
	if data != "" {
		m.Data = json.RawMessage(data)
	}
	b.must(b.e.JobReported(b.t.Context(), agent, m))
}

// run takes a job from the queue to its end on an agent.
func (b *bench) run(agent, jobID string, end ci.JobStatus, data string) {
	b.t.Helper()
	if !b.claim(jobID, agent) {
		b.t.Fatalf("job %s cannot be claimed: %s", jobID, b.jobStatus(jobID))
	}
	b.start(agent, jobID)
	b.report(agent, jobID, end, data)
}

func (b *bench) start(agent, jobID string) {
	b.t.Helper()
	ack, err := b.e.Acked(b.t.Context(), agent, "", jobID)
	b.must(err)
	if ack.Fenced {
		b.t.Fatalf("agent %s is fenced off from job %s", agent, jobID)
	}
	b.report(agent, jobID, ci.JobRunning, "")
}

func (b *bench) text(query string, args ...any) string {
	b.t.Helper()
	var s *string
	b.must(b.db.Read().QueryRowContext(b.t.Context(), query, args...).Scan(&s))
	if s == nil {
		return ""
	}
	return *s
}

// list reads a query of one text.
func (b *bench) list(query string, args ...any) []string {
	b.t.Helper()
	out, err := store.Texts(b.t.Context(), b.db.Read(), query, args...)
	b.must(err)
	return out
}

func (b *bench) jobStatus(id string) string {
	b.t.Helper()
	return b.text("SELECT status FROM execution_jobs WHERE job_id = $1", id)
}

func (b *bench) rowStatus(id string) string {
	b.t.Helper()
	return b.text("SELECT status FROM dispatch_queue WHERE id = $1", id)
}

func (b *bench) runStatus(id string) string {
	b.t.Helper()
	return b.text("SELECT status FROM execution_runs WHERE run_id = $1", id)
}

func (b *bench) reasonCode(table, key, id string) string {
	b.t.Helper()
	var r ci.Reason
	b.must(json.Unmarshal([]byte(b.text("SELECT reason FROM "+table+" WHERE "+key+" = $1", id)), &r))
	return r.Code
}

func (b *bench) wantJobs(want map[string]string) {
	b.t.Helper()
	for id, status := range want {
		if got := b.jobStatus(id); got != status {
			b.t.Errorf("job %s is %s, want %s", id, got, status)
		}
	}
}

func (b *bench) wantRun(id, status, reason string) {
	b.t.Helper()
	if got := b.runStatus(id); got != status {
		b.t.Errorf("run is %s, want %s", got, status)
	}
	if got := b.text("SELECT failure_reason FROM execution_runs WHERE run_id = $1", id); got != reason {
		b.t.Errorf("run's reason is %q, want %q", got, reason)
	}
}

// effects takes what is to be told to agents.
func (b *bench) effects() []engine.AgentEffect {
	b.t.Helper()
	due, err := outbox.Due(b.t.Context(), b.db.Read(), engine.AgentTopic, b.now.Load(), 100)
	b.must(err)
	var out []engine.AgentEffect
	for _, d := range due {
		var e engine.AgentEffect
		b.must(json.Unmarshal(d.Payload, &e))
		out = append(out, e)
		b.write(func(ctx context.Context, tx *store.Tx) error { _, err := outbox.Done(ctx, tx, d.ID); return err })
	}
	return out
}

func TestRunFollowsItsNeeds(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "build"}, job{name: "test", needs: []string{"build"}}, job{name: "ship", needs: []string{"test"}},
			job{name: "report", needs: []string{"test:failed"}})
		if b.rowStatus("r/build") != "pending" || b.claim("r/test", "agent-2") {
			t.Fatal("only the root may be queued")
		}
		b.run("agent-1", "r/build", ci.JobSuccess, `{"outputs":{"make":{"v":"1"}},"stepResults":[]}`)
		if b.runStatus("r") != "running" {
			t.Errorf("run is %s after its first job", b.runStatus("r"))
		}
		in, err := b.e.Input(t.Context(), "r/test")
		b.must(err)
		if string(in.Config) != `{"name":"test","event":{"type":"push"}}` || len(in.Upstreams) != 1 || string(in.Upstreams[0].Outputs) != `{"make":{"v":"1"}}` {
			t.Errorf("input of the dependant: %s %+v", in.Config, in.Upstreams)
		}
		b.run("agent-1", "r/test", ci.JobFailed, `{"stepResults":[{"name":"unit","status":"failed","durationMs":3,"error":"exit 3"}]}`)
		b.wantJobs(map[string]string{"r/ship": "skipped", "r/report": "pending"})
		if code := b.reasonCode("execution_jobs", "job_id", "r/ship"); code != ci.ReasonUpstreamUnmet {
			t.Errorf("reason of the skipped job is %s", code)
		}
		b.run("agent-1", "r/report", ci.JobSuccess, "")
		b.wantRun("r", "failed", "Failed jobs: test")
		if got := b.text("SELECT error_message FROM execution_jobs WHERE job_id = 'r/test'"); got != "step 'unit' failed: exit 3" {
			t.Errorf("error of the failed job is %q", got)
		}
	})
}

func TestRegisterTwiceMakesOneRun(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		b.run("agent-1", "r/a", ci.JobSuccess, "")
		b.register("r", job{name: "a"})
		b.wantRun("r", "success", "")
		if n := b.text("SELECT CAST(count(*) AS TEXT) FROM execution_jobs"); n != "1" {
			t.Errorf("%s jobs after registering twice", n)
		}
	})
}

func TestWhatIsDoneWithARegistrationStandsOrFallsWithIt(t *testing.T) {
	each(t, func(b *bench) {
		note := func(id string, err error) func(ctx context.Context, tx *store.Tx) error {
			return func(ctx context.Context, tx *store.Tx) error {
				_, failed := tx.ExecContext(ctx, "INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, 1, 1)", id)
				return errors.Join(failed, err)
			}
		}
		lost := errors.New("lost")
		if err := b.e.Register(t.Context(), registration("r"), note("a", nil), note("b", lost)); !errors.Is(err, lost) {
			t.Errorf("registered with what failed: %v", err)
		}
		b.must(b.e.Register(t.Context(), registration("s"), note("c", nil)))
		got, err := store.Texts(t.Context(), b.db.Read(), "SELECT run_id FROM execution_runs UNION SELECT id FROM nodes WHERE id IN ('a', 'b', 'c') ORDER BY 1")
		b.must(err)
		if !slices.Equal(got, []string{"c", "s"}) {
			t.Errorf("runs and notes %v", got)
		}
	})
}

func TestJobsThatCannotBeMadeFailWithTheirReason(t *testing.T) {
	failure := &ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval, Message: "no such field", JobName: "bad"}
	bad := job{name: "bad", edit: func(j *plan.Job) { j.InitFailure = failure; j.Config = nil }}
	each(t, func(b *bench) {
		b.register("some", bad, job{name: "after", needs: []string{"bad"}}, job{name: "ok"})
		b.wantJobs(map[string]string{"some/bad": "failed", "some/after": "skipped", "some/ok": "pending"})
		b.run("agent-1", "some/ok", ci.JobSuccess, "")
		b.wantRun("some", "failed", "Failed jobs: bad")

		b.register("all", bad)
		b.wantRun("all", "failed", "no such field")

		whole := registration("whole")
		whole.Plan.InitFailure = &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitLockResolution, Message: "line 3, column 7"}
		b.must(b.e.Register(t.Context(), whole))
		b.wantRun("whole", "failed", "line 3, column 7")

		b.register("none")
		b.wantRun("none", "failed", "the workflow has no jobs to run")
	})
}

func TestWaveRunsAFewAtATime(t *testing.T) {
	child := func(i int) job {
		return job{name: fmt.Sprintf("t (%d)", i), edit: func(j *plan.Job) {
			j.BaseName, j.VariantKind, j.VariantLabel = "t", plan.VariantMatrix, fmt.Sprint(i)
			j.MaxParallel, j.FailFast, j.WaveGated = 2, true, i >= 2
		}}
	}
	each(t, func(b *bench) {
		b.register("r", child(0), child(1), child(2), child(3))
		if b.rowStatus("r/t (0)") != "pending" || b.claim("r/t (2)", "agent-1") {
			t.Fatal("a held child is queued")
		}
		b.run("agent-1", "r/t (0)", ci.JobSuccess, "")
		if b.rowStatus("r/t (2)") != "pending" {
			t.Error("the free place did not go to the next child")
		}
		b.run("agent-1", "r/t (1)", ci.JobFailed, "")
		b.wantJobs(map[string]string{"r/t (2)": "pending", "r/t (3)": "skipped"})
		b.run("agent-1", "r/t (2)", ci.JobSuccess, "")
		b.wantRun("r", "failed", "Failed jobs: t (1)")
	})
}

func TestReplaysAndConflictsChangeNothing(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		b.run("agent-1", "r/a", ci.JobSuccess, "")
		for _, state := range []ci.JobStatus{ci.JobSuccess, ci.JobFailed, ci.JobRunning, ci.JobCancelled, ci.JobPending} {
			b.report("agent-1", "r/a", state, "")
		}
		b.report("agent-2", "r/a", ci.JobFailed, "")
		b.wantRun("r", "success", "")
		err := b.e.JobReported(t.Context(), "agent-1", wire.JobStatus{JobID: "made up", State: ci.JobSuccess})
		if !errors.Is(err, engine.ErrNotOwner) {
			t.Errorf("report about an unknown job: %v", err)
		}
	})
}

func TestStepsAreFrozenWithTheirJob(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		if !b.claim("r/a", "agent-1") {
			t.Fatal("no claim")
		}
		b.start("agent-1", "r/a")
		step := func(index int, state ci.StepStatus, data string) {
			t.Helper()
			m := wire.StepStatus{JobID: "r/a", StepIndex: index, StepName: fmt.Sprint("s", index), State: state, Timestamp: b.now.Add(10)}
			if data != "" {
				m.Data = json.RawMessage(data)
			}
			b.must(b.e.Reported(t.Context(), "agent-1", engine.Owned{RunID: "r", JobID: "r/a", JobName: "a"}, m))
		}
		status := func(index int) string {
			return b.text("SELECT status FROM execution_steps WHERE job_id = 'r/a' AND step_index = $1", index)
		}
		step(0, ci.StepRunning, "")
		step(0, ci.StepFailed, `{"durationMs":4,"error":{"message":"boom","exitCode":3}}`)
		step(0, ci.StepRunning, "")
		if status(0) != "running" {
			t.Errorf("a retried step is %s", status(0))
		}
		step(0, ci.StepSuccess, `{"durationMs":4}`)
		step(1, ci.StepRunning, "")
		step(2, ci.StepFailed, "") // a rule that did not pass: the terminal report says skipped
		b.report("agent-1", "r/a", ci.JobSuccess, `{"stepResults":[{"name":"s0","status":"success","durationMs":4},{"name":"s1","status":"success","durationMs":1},{"name":"s2","status":"skipped","durationMs":0},{"name":"s3","status":"skipped","durationMs":0}]}`)
		step(0, ci.StepFailed, "")
		for i, want := range []string{"success", "success", "skipped", "skipped"} { // nothing was said of the last before
			if status(i) != want {
				t.Errorf("step %d is %s, want %s", i, status(i), want)
			}
		}
		if got := b.text("SELECT error_message FROM execution_steps WHERE job_id = 'r/a' AND step_index = 0"); got != "" {
			t.Errorf("a step that succeeded in the end keeps the error %q", got)
		}
		if got := b.text("SELECT step_name FROM execution_steps WHERE job_id = 'r/a' AND step_index = 3"); got != "s3" {
			t.Errorf("the name of a step known from its result alone is %q", got)
		}
	})
}

func TestRefusedDispatchesEndAfterFiveAttempts(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		for range ci.MaxDispatchAttempts {
			if !b.claim("r/a", "agent-1") {
				t.Fatal("the job is not offered again")
			}
			b.must(b.e.Rejected(t.Context(), "agent-2", "r/a", wire.RejectBusy)) // not its to refuse
			b.must(b.e.Rejected(t.Context(), "agent-1", "r/a", wire.RejectBusy))
		}
		b.wantJobs(map[string]string{"r/a": "failed"})
		want := "Job failed: re-dispatch attempts exhausted after 5 attempts (agent rejected dispatch (busy))"
		if got := b.text("SELECT error_message FROM execution_jobs WHERE job_id = 'r/a'"); got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	})
}

func TestUnansweredDispatchIsOfferedAgainAndItsAgentDropped(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		b.claim("r/a", "agent-1")
		b.must(b.e.SweepOnce(t.Context()))
		if b.rowStatus("r/a") != "dispatched" {
			t.Fatal("swept before the deadline")
		}
		b.now.Add(10_001)
		b.must(b.e.SweepOnce(t.Context()))
		if b.rowStatus("r/a") != "recovering" {
			t.Fatalf("row is %s while its agent is being dropped", b.rowStatus("r/a"))
		}
		b.now.Add(2001)
		b.must(b.e.SweepOnce(t.Context()))
		if b.rowStatus("r/a") != "pending" {
			t.Fatalf("row is %s after the deadline", b.rowStatus("r/a"))
		}
		effects := b.effects()
		if len(effects) != 2 || effects[0].JobID+effects[1].JobID != "r/a" {
			t.Errorf("effects %+v: want a cancel of the job and the end of the connection", effects)
		}
		ack, err := b.e.Acked(t.Context(), "agent-1", "", "r/a")
		b.must(err)
		if !ack.Fenced {
			t.Error("a late ack is taken")
		}
		owned, err := b.e.Owned(t.Context(), "agent-1", "r/a")
		b.must(err)
		if !owned.Past {
			t.Error("the former owner's frames are taken as an owner's")
		}
		if _, err := b.e.Owned(t.Context(), "agent-2", "r/a"); !errors.Is(err, engine.ErrNotOwner) {
			t.Errorf("a stranger's frame: %v", err)
		}
	})
}

func TestLostAgents(t *testing.T) {
	inFlight := []wire.InFlightJob{{JobID: "r/a", RunID: "r"}}
	tests := []struct {
		name    string
		started bool
		then    func(b *bench)
		job     string
		row     string
	}{
		{"it comes back with the job", true, func(b *bench) { b.connected(inFlight) }, "running", "dispatched"},
		{"it comes back without the job it ran", true, func(b *bench) { b.connected(nil) }, "failed", "failed"},
		{"it comes back without a job it never answered", false, func(b *bench) { b.connected(nil) }, "pending", "pending"},
		{"it does not come back", true, func(b *bench) { b.pass(120_001) }, "failed", "failed"},
		{"it does not come back and never answered", false, func(b *bench) { b.pass(120_001) }, "pending", "pending"},
		{"its end arrives on a new connection", true, func(b *bench) { b.report("agent-1", "r/a", ci.JobSuccess, "") }, "success", "completed"},
		{"the run is cancelled meanwhile", true, func(b *bench) { b.cancel("r", false) }, "cancelled", "failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(b *bench) {
				b.register("r", job{name: "a"})
				b.claim("r/a", "agent-1")
				if tt.started {
					b.start("agent-1", "r/a")
				}
				b.must(b.e.Lost(b.t.Context(), "agent-1", "c-agent-1", false))
				if b.rowStatus("r/a") != "recovering" {
					b.t.Fatalf("row is %s after the loss", b.rowStatus("r/a"))
				}
				tt.then(b)
				if b.jobStatus("r/a") != tt.job || b.rowStatus("r/a") != tt.row {
					b.t.Errorf("job %s, row %s; want %s, %s", b.jobStatus("r/a"), b.rowStatus("r/a"), tt.job, tt.row)
				}
			})
		})
	}
}

func (b *bench) connected(inFlight []wire.InFlightJob) []wire.JobCancel {
	b.t.Helper()
	cancels, err := b.e.Connected(b.t.Context(), "agent-1", inFlight, true)
	b.must(err)
	return cancels
}

func (b *bench) pass(ms int64) {
	b.t.Helper()
	b.now.Add(ms)
	b.must(b.e.SweepOnce(b.t.Context()))
}

func (b *bench) cancel(runID string, force bool) engine.CancelResult {
	b.t.Helper()
	result, err := b.e.Cancel(b.t.Context(), runID, "api_key:1", "", force)
	b.must(err)
	return result
}

func TestStrayJobsAreCancelledOnTheirAgent(t *testing.T) {
	each(t, func(b *bench) {
		cancels := b.connected([]wire.InFlightJob{{JobID: "long gone", RunID: "r"}})
		if len(cancels) != 1 || cancels[0].JobID != "long gone" || cancels[0].Reason != "job no longer assigned to this agent" {
			t.Errorf("cancels %+v", cancels)
		}
	})
}

func TestRestartWaitsForTheAgentsOfBefore(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		b.claim("r/a", "agent-1")
		b.start("agent-1", "r/a")
		b.must(b.e.Adopt(t.Context(), "node-1"))
		if b.jobStatus("r/a") != "recovering" {
			t.Fatalf("job is %s after the boot", b.jobStatus("r/a"))
		}
		b.connected([]wire.InFlightJob{{JobID: "r/a", RunID: "r"}})
		b.report("agent-1", "r/a", ci.JobSuccess, "")
		b.wantRun("r", "success", "")
	})
}

func TestCancel(t *testing.T) {
	each(t, func(b *bench) {
		b.register("idle", job{name: "a"}, job{name: "b", needs: []string{"a"}})
		if r := b.cancel("idle", false); r.Status != ci.RunCancelled || r.Cancelled != 2 {
			t.Errorf("cancel of a waiting run: %+v", r)
		}
		b.wantRun("idle", "cancelled", "run cancelled via API")
		if b.rowStatus("idle/a") != "expired" {
			t.Errorf("row is %s", b.rowStatus("idle/a"))
		}
		if _, err := b.e.Cancel(t.Context(), "idle", "x", "", false); !errors.Is(err, engine.ErrRunTerminal) {
			t.Errorf("second cancel: %v", err)
		}
		if _, err := b.e.Cancel(t.Context(), "nothing", "x", "", false); !errors.Is(err, engine.ErrRunNotFound) {
			t.Errorf("cancel of nothing: %v", err)
		}

		b.register("r", job{name: "a"}, job{name: "b", needs: []string{"a:always"}})
		b.claim("r/a", "agent-1")
		b.start("agent-1", "r/a")
		if r := b.cancel("r", false); r.Status != ci.RunCancelling {
			t.Errorf("cancel of a running run: %+v", r)
		}
		if e := b.effects(); len(e) != 1 || e[0].JobID != "r/a" || e[0].Force {
			t.Errorf("effects %+v", e)
		}
		b.cancel("r", false) // again: harmless
		b.cancel("r", true)
		if e := b.effects(); len(e) != 1 || !e[0].Force {
			t.Errorf("effects of force %+v", e)
		}
		b.report("agent-1", "r/a", ci.JobCancelled, "")
		b.wantJobs(map[string]string{"r/a": "cancelled", "r/b": "cancelled"})
		b.wantRun("r", "cancelled", "run cancelled via API")
	})
}

func TestCancelThatIsNotObeyedIsForcedThenGivenUp(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		b.claim("r/a", "agent-1")
		b.start("agent-1", "r/a")
		b.cancel("r", false)
		b.effects()
		beat := func() {
			b.must(b.e.JobBeat(t.Context(), "agent-1", wire.JobHeartbeat{JobID: "r/a", Timestamp: b.now.Load()}))
		}
		beat()
		b.pass((6 * time.Minute).Milliseconds())
		if e := b.effects(); len(e) != 1 || !e[0].Force {
			t.Fatalf("effects after the polite time %+v", e)
		}
		beat()
		b.pass((30 * time.Second).Milliseconds())
		b.wantRun("r", "cancelled", "run cancelled via API")
	})
}

func TestRunsAndJobsPastTheirTime(t *testing.T) {
	each(t, func(b *bench) {
		limited := registration("slow", job{name: "a"})
		limited.Plan.TimeoutMs = 5000
		b.must(b.e.Register(t.Context(), limited))
		b.claim("slow/a", "agent-1")
		b.start("agent-1", "slow/a")
		b.pass(5001)
		if b.runStatus("slow") != "cancelling" {
			t.Errorf("run past its timeout is %s", b.runStatus("slow"))
		}
		b.report("agent-1", "slow/a", ci.JobCancelled, "")
		b.wantRun("slow", "cancelled", "workflow_timeout: run exceeded the workflow timeout of 5000ms")

		b.register("silent", job{name: "a"})
		b.claim("silent/a", "agent-1")
		b.start("agent-1", "silent/a")
		b.pass(121_000)
		b.wantJobs(map[string]string{"silent/a": "timed_out_stale"})
		b.wantRun("silent", "failed", "Failed jobs: a")

		b.register("waiting", job{name: "fits"}, job{name: "odd", edit: func(j *plan.Job) { j.Selector.Labels = []string{"gpu"} }})
		b.pass(time.Hour.Milliseconds() + 1)
		b.wantJobs(map[string]string{"waiting/fits": "timed_out_stale", "waiting/odd": "unroutable"})
	})
}

func TestAJobThatIsPutBackHasItsOldTime(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		hour := engine.DefaultSettings().QueueTimeout.Milliseconds()
		b.now.Add(hour - 5_000)
		b.claim("r/a", "agent-1")
		b.must(b.e.SweepOnce(t.Context()))
		b.must(b.e.Rejected(t.Context(), "agent-1", "r/a", wire.RejectBusy))
		b.wantJobs(map[string]string{"r/a": "pending"})
		b.now.Add(5_001)
		b.must(b.e.SweepOnce(t.Context()))
		b.wantJobs(map[string]string{"r/a": "timed_out_stale"})
	})
}

func TestAJobThatItsAgentDoesNotEndIsEnded(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a", edit: func(j *plan.Job) { j.TimeoutMs, j.Kind = 60_000, ci.KindInit }})
		b.claim("r/a", "agent-1")
		b.start("agent-1", "r/a")
		beat := func(ms int64) {
			b.now.Add(ms)
			b.must(b.e.JobBeat(t.Context(), "agent-1", wire.JobHeartbeat{JobID: "r/a"}))
			b.must(b.e.SweepOnce(t.Context()))
		}
		for range 7 { // its limit of a minute, and the six that a polite end may take
			beat(59_999)
			b.wantJobs(map[string]string{"r/a": "running"})
		}
		beat(10)
		b.wantJobs(map[string]string{"r/a": "failed"})
		if code := b.reasonCode("execution_jobs", "job_id", "r/a"); code != ci.ReasonJobTimeout {
			t.Errorf("it ended for %s", code)
		}
		if effects := b.effects(); len(effects) != 1 || effects[0].JobID != "r/a" || !effects[0].Force {
			t.Errorf("its agent is told %+v", effects)
		}
	})
}

func TestAJobThatCannotBeSweptHidesNoOther(t *testing.T) {
	each(t, func(b *bench) {
		for _, id := range []string{"bad", "good"} {
			b.register(id, job{name: "a"})
			b.claim(id+"/a", "agent-1")
			b.now.Add(1)
		}
		b.must(b.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE execution_runs SET reason = 'broken' WHERE run_id = 'bad'")
			return err
		}))
		b.now.Add(10_001)
		if err := b.e.SweepOnce(t.Context()); err == nil {
			t.Error("the run that cannot be read made no error")
		}
		if status := b.rowStatus("good/a"); status == "dispatched" {
			t.Error("the job behind it was not looked at")
		}
	})
}

func TestStepsOfAJobAreBounded(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		b.claim("r/a", "agent-1")
		b.start("agent-1", "r/a")
		say := func(index int, state ci.StepStatus) {
			b.must(b.e.Reported(t.Context(), "agent-1", engine.Owned{RunID: "r", JobID: "r/a", JobName: "a"}, wire.StepStatus{JobID: "r/a", StepIndex: index, StepName: "s", State: state, Timestamp: 1}))
		}
		say(1_000_000, ci.StepRunning)
		b.must(b.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			rows := make([][]any, 9_999)
			for i := range rows {
				rows[i] = []any{"r/a", 20_000 + i, "r", "s", "success", "p"}
			}
			return store.InsertAll(ctx, tx, "INSERT INTO execution_steps (job_id, step_index, run_id, step_name, status, log_path) VALUES", 6, "", rows)
		}))
		say(1_000_000, ci.StepSuccess) // is known
		say(1_000_001, ci.StepRunning) // is one too many
		say(9_999, ci.StepRunning)     // is among the first
		got, err := store.Texts(t.Context(), b.db.Read(), "SELECT step_index || ' ' || status FROM execution_steps WHERE step_index < 20000 OR step_index >= 1000000 ORDER BY step_index")
		b.must(err)
		if !slices.Equal(got, []string{"9999 running", "1000000 success"}) {
			t.Errorf("steps %v", got)
		}
	})
}

func TestOnlyOneOfManyClaimsWins(t *testing.T) {
	each(t, func(b *bench) {
		const jobs, claimers = 20, 8
		var plans []job
		for i := range jobs {
			plans = append(plans, job{name: fmt.Sprint("j", i)})
		}
		b.register("r", plans...)
		won := make([][]string, claimers)
		done := make(chan error, claimers)
		for c := range claimers {
			go func() {
				done <- func() error {
					for i := range jobs {
						id := fmt.Sprint("r/j", i)
						var ok bool
						err := b.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
							ok, err = queue.Claim(ctx, tx, id, fmt.Sprint("claimer-", c), "node-1", jobs, 1, 2)
							return err
						})
						if err != nil {
							return err
						}
						if ok {
							won[c] = append(won[c], id)
						}
					}
					return nil
				}()
			}()
		}
		for range claimers {
			b.must(<-done)
		}
		all := slices.Concat(won...)
		slices.Sort(all)
		if len(all) != jobs || len(slices.Compact(all)) != jobs {
			t.Errorf("%d claims won of %d jobs: %v", len(all), jobs, all)
		}
	})
}

func TestAnAgentWithoutRoomClaimsNothing(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"}, job{name: "b"})
		if !b.claim("r/a", "agent-1") || b.claim("r/b", "agent-1") {
			t.Error("an agent of one slot holds two jobs, or none")
		}
	})
}

func TestQueueFullRefusesNewRunsOnly(t *testing.T) {
	each(t, func(b *bench) {
		settings := engine.DefaultSettings()
		settings.QueueMaxDepth = 1
		small := engine.New(engine.Deps{DB: b.db, Log: slog.New(slog.DiscardHandler), Settings: settings, Clock: time.Now,
			Dispatch: service.NewPoke(), Effects: service.NewPoke()})
		b.must(small.Register(t.Context(), registration("first", job{name: "a"}, job{name: "b", needs: []string{"a"}})))
		b.must(small.Register(t.Context(), registration("second", job{name: "a"})))
		b.wantRun("second", "failed", "queue full: 1 jobs are waiting already")
		b.run("agent-1", "first/a", ci.JobSuccess, "")
		b.run("agent-1", "first/b", ci.JobSuccess, "")
		b.wantRun("first", "success", "")
	})
}
