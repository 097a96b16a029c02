package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/core/wire"
	"kici/internal/decide/contexts"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/server/cluster"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/report"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

var update = flag.Bool("update", false, "write golden files")

// floor is a place where runs wait: an engine whose clock the test sets, over a database.
type floor struct {
	*engine.Engine
	t      *testing.T
	db     *store.DB
	millis int64
	rules  reviewed
}

func newFloor(t *testing.T, db *store.DB) *floor {
	f := &floor{t: t, db: db, millis: now, rules: reviewed{}}
	settings := engine.DefaultSettings()
	settings.NodeID = "n"
	f.Engine = engine.New(engine.Deps{DB: db, Clock: func() time.Time { return time.UnixMilli(f.millis) }, Log: slog.New(slog.DiscardHandler),
		Settings: settings, Dispatch: service.NewPoke(), Effects: service.NewPoke(), Contexts: f.rules})
	return f
}

// reviewed are contexts by name, which have one secret. Those of other names want anna's approval.
type reviewed map[string]contexts.Context

func (r reviewed) Bound(_ context.Context, _ *store.Tx, _ string, names []string) ([]contexts.Bound, error) {
	var out []contexts.Bound
	for _, name := range names {
		c, ok := r[name]
		if !ok {
			c = contexts.Context{RequiredReviewers: []string{"anna"}}
		}
		c.Name, c.Enabled = name, true
		out = append(out, contexts.Bound{Name: name, Context: &c})
	}
	return out, nil
}

func (reviewed) Keys(_ context.Context, _ string, names []string) (map[string][]string, string, error) {
	return map[string][]string{names[0]: {"TOKEN"}}, "", nil
}

// register plans a run of one workflow.
func (f *floor) register(run string, p plan.Plan) {
	f.t.Helper()
	p.Workflow = "ci"
	must(f.t, f.Register(f.t.Context(), engine.Registration{RunID: run, OrgID: "default", RoutingKey: "generic:default:s", Provider: "local",
		Repo: "local/app", Ref: "main", SHA: "abc", TriggerEvent: "push", Plan: p}))
}

func job(name string, s label.Selector) plan.Job {
	return plan.Job{ID: "id-" + name, Name: name, BaseName: name, Selector: s, Config: json.RawMessage(`{}`)}
}

func on(labels ...string) label.Selector { return label.Selector{Labels: labels} }

// node is another server process.
func (f *floor) node(id string, draining bool) {
	f.t.Helper()
	must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := cluster.Beat(ctx, tx, cluster.Node{ID: id, SeenAt: f.millis, Draining: draining})
		return err
	}))
}

// agent connects an agent with one place.
func (f *floor) agent(id string, labels, mandatory []string) {
	f.t.Helper()
	f.agentAt("n", id, labels, mandatory)
}

func (f *floor) agentAt(node, id string, labels, mandatory []string) {
	f.t.Helper()
	must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return fleet.Seen(ctx, tx, fleet.Agent{ID: id, Labels: labels, MandatoryLabels: mandatory, Lifecycle: fleet.Static, MaxConcurrency: 1,
			NodeID: node, ConnectionID: "c", LastSeenAt: f.millis})
	}))
}

// reboots notes that the host of an agent is back from a reboot within so many milliseconds.
func (f *floor) reboots(agent string, within int64) {
	f.t.Helper()
	must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := fleet.AwaitReboot(ctx, tx, agent, "c", f.millis+within)
		return err
	}))
}

// claim gives a job to an agent, without its answer.
func (f *floor) claim(job, agent string, attempt int) {
	f.t.Helper()
	must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := queue.Claim(ctx, tx, job, agent, "n", attempt, f.millis, f.millis+10_000)
		return err
	}))
}

// holdIDs gives the only hold an id that golden files can name.
func (f *floor) holdIDs() {
	f.t.Helper()
	must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE held_runs SET id = 'hold-1'")
		return err
	}))
}

// heldAs gives the hold of a run an id.
func (f *floor) heldAs(run, id string) {
	f.t.Helper()
	must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE held_runs SET id = $2 WHERE run_id = $1", run, id)
		return err
	}))
}

func (f *floor) starts(job, agent string) {
	f.t.Helper()
	f.claim(job, agent, 1)
	_, err := f.Acked(f.t.Context(), agent, "r", job)
	must(f.t, err)
	f.reports(job, agent, ci.JobRunning, "")
}

func (f *floor) reports(job, agent string, status ci.JobStatus, data string) {
	f.t.Helper()
	must(f.t, f.JobReported(f.t.Context(), agent, wire.JobStatus{JobID: job, State: status, Data: json.RawMessage(data)}))
}

// situations are the states of a run r that the golden files explain.
var situations = []struct {
	name  string
	setup func(f *floor)
}{
	{"waiting", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux")), job("test", on("linux")), job("other", on("linux")), job("later", on("linux")),
			job("gpu", on("linux", "gpu", "cuda"))},
			Edges: []plan.Edge{{Job: "test", Upstream: "build", RunOn: []ci.JobStatus{ci.JobSuccess}}, {Job: "test", Upstream: "gpu", RunOn: []ci.JobStatus{ci.JobSuccess, ci.JobFailed}}}})
		f.claim("id-build", "a-1", 1)
	}},
	{"no agent at all", func(f *floor) { f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}}) }},
	{"every agent lacks something else", func(f *floor) {
		f.agent("a-mac", []string{"mac", "fast"}, nil)
		f.agent("b-reserved", []string{"linux", "fast", "gpu"}, []string{"gpu"})
		f.agent("c-old", []string{"linux", "old"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{
			job("build", label.Selector{Labels: []string{"linux"}, Exclude: []string{"old"}, Patterns: []label.Matcher{{Kind: label.Regex, Source: "^fa"}}}),
			job("pinned", label.Selector{Pin: "d-host"}), job("pinned well", label.Selector{Pin: "c-old", Patterns: []label.Matcher{{Kind: label.Regex, Source: "^fa"}}})}})
	}},
	{"all busy", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.agent("a-2", []string{"linux"}, nil)
		f.register("q", plan.Plan{Jobs: []plan.Job{job("one", on("linux")), job("two", on("linux"))}})
		f.millis += 1000
		f.starts("id-two", "a-2")
		f.millis += 1000
		f.starts("id-one", "a-1")
		f.register("r", plan.Plan{Jobs: []plan.Job{job("third", on("linux")), job("fourth", on("linux"))}})
	}},
	{"away", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.agent("gpu-1", []string{"linux", "gpu"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("gpu", on("gpu"))}})
		f.millis += 5000
		must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := fleet.Gone(ctx, tx, "gpu-1", "c", f.millis)
			return err
		}))
	}},
	{"requeued", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
		f.claim("id-build", "a-1", 1)
		must(f.t, f.Rejected(f.t.Context(), "a-1", "id-build", "busy"))
	}},
	{"what its agent needs is away", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
		f.claim("id-build", "a-1", 1)
		must(f.t, f.Deferred(f.t.Context(), "a-1", "id-build", f.millis))
	}},
	{"no answer to a dispatch", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
		f.claim("id-build", "a-1", 1)
		f.millis += 11_000
		must(f.t, f.SweepOnce(f.t.Context()))
	}},
	{"every step skipped", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux")), job("empty", on("linux"))}})
		f.starts("id-build", "a-1")
		f.reports("id-build", "a-1", ci.JobSuccess, `{"stepResults":[{"name":"a","status":"skipped"},{"name":"b","status":"skipped"}]}`)
		f.starts("id-empty", "a-1")
		f.reports("id-empty", "a-1", ci.JobSuccess, `{"stepResults":[]}`)
	}},
	{"running, taken and recovering", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("running", on("x")), job("taken", on("x")), job("lost", on("x"))}})
		for _, name := range []string{"a-1", "a-2", "a-3"} {
			f.agent(name, []string{"x"}, nil)
		}
		f.starts("id-running", "a-1")
		f.claim("id-taken", "a-2", 1)
		_, err := f.Acked(f.t.Context(), "a-2", "r", "id-taken")
		must(f.t, err)
		f.starts("id-lost", "a-3")
		f.millis += 30_000
		must(f.t, f.JobBeat(f.t.Context(), "a-1", wire.JobHeartbeat{JobID: "id-running"}))
		must(f.t, f.Lost(f.t.Context(), "a-3", "c", false))
	}},
	{"ended", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("good", on("linux")), job("bad", on("linux")), job("after", on("linux"))},
			Edges: []plan.Edge{{Job: "after", Upstream: "bad", RunOn: []ci.JobStatus{ci.JobSuccess}}}})
		f.starts("id-good", "a-1")
		f.reports("id-good", "a-1", ci.JobSuccess, "")
		f.starts("id-bad", "a-1")
		must(f.t, f.Reported(f.t.Context(), "a-1", engine.Owned{RunID: "r", JobID: "id-bad", JobName: "bad"}, wire.StepStatus{JobID: "id-bad", StepIndex: 0, StepName: "compile", State: ci.StepFailed, Timestamp: f.millis,
			Data: json.RawMessage(`{"durationMs":5,"error":{"message":"exit 3","exitCode":3}}`)}))
		must(f.t, f.Reported(f.t.Context(), "a-1", engine.Owned{RunID: "r", JobID: "id-bad", JobName: "bad"}, wire.StepStatus{JobID: "id-bad", StepIndex: 1, StepName: "upload", State: ci.StepRunning, Timestamp: f.millis}))
		f.millis += 2000
		f.reports("id-bad", "a-1", ci.JobFailed, `{"error":"boom"}`)
	}},
	{"cancelling", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("running", on("linux")), job("waiting", on("linux"))}})
		f.starts("id-running", "a-1")
		f.millis += 3000
		_, err := f.Cancel(f.t.Context(), "r", "api_key:t-1", "no longer wanted", false)
		must(f.t, err)
	}},
	{"expired", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("nobody", on("gpu")), job("late", on("linux"))}})
		f.register("q", plan.Plan{Jobs: []plan.Job{job("one", on("linux"))}})
		f.starts("id-one", "a-1")
		f.millis += 2 * 3_600_000
		must(f.t, f.JobBeat(f.t.Context(), "a-1", wire.JobHeartbeat{JobID: "id-one"}))
		must(f.t, f.SweepOnce(f.t.Context()))
	}},
	{"held", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		deploy := job("deploy", on("linux"))
		deploy.Approval = &lockfile.Approval{When: "always", Reason: "ship it", TimeoutSeconds: 3600, Clauses: []lockfile.Clause{{User: "anna"}, {Team: "ops"}}}
		f.register("r", plan.Plan{Jobs: []plan.Job{deploy, job("after", on("linux"))},
			Edges: []plan.Edge{{Job: "after", Upstream: "deploy", RunOn: []ci.JobStatus{ci.JobSuccess}}}})
		f.holdIDs()
		_, err := f.Decide(f.t.Context(), "hold-1", engine.Vote{By: contexts.Actor{ID: "anna"}, Through: ci.QueueContext, Answer: contexts.Approve})
		must(f.t, err)
	}},
	{"held workflow", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux")), job("after", on("linux"))}, Approval: &lockfile.Approval{When: "always"},
			Edges: []plan.Edge{{Job: "after", Upstream: "build", RunOn: []ci.JobStatus{ci.JobSuccess}}}})
		f.holdIDs()
	}},
	{"held for install secrets", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux")), job("after", on("linux"))},
			Secrets: plan.WorkflowSecrets{InstallEnv: []string{"prod:TOKEN"}},
			Edges:   []plan.Edge{{Job: "after", Upstream: "build", RunOn: []ci.JobStatus{ci.JobSuccess}}}})
		f.holdIDs()
	}},
	{"slots of a context", func(f *floor) {
		one := int64(1)
		f.rules["prod"] = contexts.Context{ConcurrencyLimit: &one, ConcurrencyTimeoutMs: 60_000}
		for _, run := range []string{"first", "second", "r"} {
			j := bound(job(run, on("linux")), "prod")
			f.register(run, plan.Plan{Jobs: []plan.Job{j}})
			f.millis += 1000
		}
		f.heldAs("r", "hold-1")
	}},
	{"slots of a context that lets only the newest wait", func(f *floor) {
		one := int64(1)
		f.rules["prod"] = contexts.Context{ConcurrencyLimit: &one, ConcurrencyStrategy: contexts.CancelPending, ConcurrencyTimeoutMs: 60_000}
		for _, run := range []string{"first", "r"} {
			f.register(run, plan.Plan{Jobs: []plan.Job{bound(job(run, on("linux")), "prod")}})
			f.millis += 1000
		}
		f.heldAs("r", "hold-1")
	}},
	{"timer of a context", func(f *floor) {
		wait := int64(60)
		f.rules["prod"] = contexts.Context{WaitTimerSeconds: &wait}
		f.register("r", plan.Plan{Jobs: []plan.Job{bound(job("deploy", on("linux")), "prod")}})
		f.holdIDs()
	}},
	{"concurrency", func(f *floor) {
		for i, run := range []string{"first", "second", "r"} {
			f.agent(fmt.Sprint("a-", i), []string{run}, nil)
			wait := false
			j := job(run, on(run))
			f.register(run, plan.Plan{Jobs: []plan.Job{j}, Concurrency: &lockfile.Concurrency{HasGroup: true, CancelInProgress: &wait}})
			f.claim("id-"+run, fmt.Sprint("a-", i), 1)
			f.millis += 1000
			_, err := engine.Groups{Engine: f.Engine}.Report(f.t.Context(), fmt.Sprint("a-", i), i == 1, wire.ConcurrencyReport{MessageID: run, RunID: run, JobID: "id-" + run, Group: "deploy"})
			must(f.t, err)
		}
	}},
	{"concurrency, and its agent is away", func(f *floor) {
		f.lineUp()
		must(f.t, f.Lost(f.t.Context(), "a-1", "c", false))
	}},
	{"concurrency passed", func(f *floor) {
		f.lineUp()
		f.millis += 1000
		f.reports("id-first", "a-0", ci.JobSuccess, "")
	}},
	{"running without progress, and waiting within a step", func(f *floor) {
		f.register("r", plan.Plan{Jobs: []plan.Job{job("silent", on("x")), job("uncounted", on("x")), job("asks", on("x"))}})
		for i, name := range []string{"silent", "uncounted", "asks"} {
			agent := fmt.Sprint("a-", i+1)
			f.agent(agent, []string{"x"}, nil)
			f.starts("id-"+name, agent)
		}
		progress := int64(7)
		for range 2 {
			f.millis += 300_000
			must(f.t, f.JobBeat(f.t.Context(), "a-1", wire.JobHeartbeat{JobID: "id-silent", Progress: &progress}))
			must(f.t, f.JobBeat(f.t.Context(), "a-2", wire.JobHeartbeat{JobID: "id-uncounted"}))
		}
		_, err := engine.Approvals{Engine: f.Engine}.Request(f.t.Context(), "a-3", wire.ApprovalRequest{MessageID: "m", RunID: "r", JobID: "id-asks",
			StepIndex: 2, StepName: "apply", Clauses: []wire.Clause{{User: "anna"}}, Reason: "drift", TimeoutSeconds: 60})
		must(f.t, err)
		f.holdIDs()
	}},
	{"left to an agent", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		helper, place := job("__init__ci__deploy", on("kici:role:init-runner")), job("deploy", on("linux"))
		helper.Kind, helper.Target, place.Deferred = ci.KindInit, "deploy", true
		f.register("r", plan.Plan{Jobs: []plan.Job{helper, place, job("after", on("linux"))}, Edges: []plan.Edge{
			{Job: "after", Upstream: "deploy", RunOn: []ci.JobStatus{ci.JobSuccess}}}})
	}},
	{"draining", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
		f.node("n", true)
	}},
	{"draining of several nodes", func(f *floor) {
		for _, n := range []string{"1", "2", "3"} {
			f.agentAt("n-"+n, "a-"+n, []string{"linux"}, nil)
			f.node("n-"+n, true)
		}
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
	}},
	{"draining beside a busy one", func(f *floor) {
		f.agentAt("here", "a-1", []string{"linux"}, nil)
		f.agentAt("there", "a-2", []string{"linux"}, nil)
		f.node("here", false)
		f.node("there", true)
		f.register("other", plan.Plan{Jobs: []plan.Job{job("first", on("linux"))}})
		f.claim("id-first", "a-1", 1)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
	}},
	{"reboot of a host that the job is pinned to", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		f.agent("a-2", []string{"linux"}, nil)
		f.reboots("a-1", 900_000)
		must(f.t, f.db.Write(f.t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := fleet.Gone(ctx, tx, "a-1", "c", f.millis)
			return err
		}))
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", label.Selector{Pin: "a-1"})}})
	}},
	{"reboot of all hosts", func(f *floor) {
		for i, id := range []string{"a-1", "a-2"} {
			f.agent(id, []string{"linux"}, nil)
			f.reboots(id, int64(i+1)*60_000)
		}
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
	}},
	{"reboot beside a busy agent and a draining node", func(f *floor) {
		f.agentAt("here", "a-1", []string{"linux"}, nil)
		f.agentAt("here", "a-2", []string{"linux"}, nil)
		f.agentAt("there", "a-3", []string{"linux", "gpu"}, nil)
		f.node("here", false)
		f.node("there", true)
		f.reboots("a-2", 900_000)
		f.register("other", plan.Plan{Jobs: []plan.Job{job("first", on("linux"))}})
		f.claim("id-first", "a-1", 1)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
	}},
	{"reboot and a draining node", func(f *floor) {
		f.agentAt("here", "a-1", []string{"linux"}, nil)
		f.agentAt("there", "a-2", []string{"linux"}, nil)
		f.node("there", true)
		f.reboots("a-1", 900_000)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
	}},
	{"bring-up", func(f *floor) {
		up, child := job("__bringup__ci__web-3", on(plan.CapabilitySSH)), job("deploy (web-3)", label.Selector{Pin: "web-3"})
		up.Kind, up.BringsUp, up.VariantLabel = ci.KindBringup, "web-3", "web-3"
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux")), up, child}, Edges: []plan.Edge{
			{Job: "deploy (web-3)", Upstream: "build", RunOn: []ci.JobStatus{ci.JobSuccess}},
			{Job: "deploy (web-3)", Upstream: "__bringup__ci__web-3", RunOn: []ci.JobStatus{ci.JobSuccess, ci.JobSkipped}}}})
	}},
	{"wave", func(f *floor) {
		f.agent("a-1", []string{"linux"}, nil)
		var jobs []plan.Job
		for _, v := range []string{"a", "b", "c"} {
			j := job("test ("+v+")", on("linux"))
			j.BaseName, j.VariantKind, j.VariantLabel = "test", plan.VariantMatrix, v
			j.WaveGated, j.MaxParallel = v != "a", 1
			jobs = append(jobs, j)
		}
		f.register("r", plan.Plan{Jobs: jobs})
	}},
}

// lineUp has run r, on agent a-1, wait for the place in its group that run first, on a-0, has.
func (f *floor) lineUp() {
	for i, run := range []string{"first", "r"} {
		agent := fmt.Sprint("a-", i)
		f.agent(agent, []string{run}, nil)
		wait := false
		f.register(run, plan.Plan{Jobs: []plan.Job{job(run, on(run))}, Concurrency: &lockfile.Concurrency{HasGroup: true, CancelInProgress: &wait}})
		f.starts("id-"+run, agent)
		_, err := engine.Groups{Engine: f.Engine}.Report(f.t.Context(), agent, true, wire.ConcurrencyReport{MessageID: run, RunID: run, JobID: "id-" + run, Group: "deploy"})
		must(f.t, err)
	}
}

// The golden files are the API's answers, the same on both engines.
func TestExplainIsExact(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, db *store.DB) {
				f := newFloor(t, db)
				s.setup(f)
				x, err := report.Explain(t.Context(), db.Read(), "r", "", f.millis)
				must(t, err)
				golden(t, s.name, x)
			})
		})
	}
}

func golden(t *testing.T, name string, value any) {
	t.Helper()
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetIndent("", "  ")
	must(t, e.Encode(value))
	path := filepath.Join("testdata", "explain", name+".json")
	if *update {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
