package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
)

// workflow is a workflow `ci` with the given jobs, through the document's reader.
func workflow(t *testing.T, jobs ...string) lockfile.Workflow {
	t.Helper()
	return parseWorkflow(t, `"jobs":[`+strings.Join(jobs, ",")+`]`)
}

type failer interface {
	Helper()
	Fatal(...any)
}

func parseWorkflow(t failer, members string) lockfile.Workflow {
	t.Helper()
	f, perr := lockfile.Load([]byte(`{"schemaVersion":29,"source":{"file":".kici/workflows/ci.ts","export":"#ci"},"workflows":[`+
		`{"name":"ci","contentHash":"c0ffee","compileSchemaVersion":5,"triggers":[],`+members+`}]}`), "acme/app", "main")
	if perr != nil {
		t.Fatal(perr)
	}
	return f.Workflows[0]
}

func job(name, members string) string {
	if members != "" {
		members = "," + members
	}
	return fmt.Sprintf(`{"_type":"static","name":%q,"steps":[]%s}`, name, members)
}

func input(w lockfile.Workflow) Input {
	return Input{
		Workflow: w,
		Event:    ci.Event{Type: "push", TargetBranch: "main", Payload: json.RawMessage(`{"n":3}`)},
		Source:   Source{Repo: "acme/app", CloneURL: "file:///srv/app", Ref: "main", SHA: "abc", Provider: "local"},
		Org:      "default", RunID: "run-1",
	}
}

func build(t failer, in Input) Plan {
	t.Helper()
	p, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func find(t *testing.T, p Plan, name string) Job {
	t.Helper()
	i := slices.IndexFunc(p.Jobs, func(j Job) bool { return j.Name == name })
	if i < 0 {
		t.Fatalf("no job %s in the plan", name)
	}
	return p.Jobs[i]
}

func TestBuildPlansTheWorkedExample(t *testing.T) {
	w := workflow(t,
		job("test", `"runsOn":[{"kind":"exact","value":"linux"}],"runsOnPick":"deterministic","needs":[],`+
			`"matrix":{"_type":"static","values":{"os":["linux","mac"],"node":["20","22"]}},"exclude":[{"os":"mac","node":"20"}]`),
		job("deploy", `"runsOn":[{"kind":"exact","value":"linux"}],"excludeLabels":[{"kind":"regex","source":"^spot-","flags":""}],`+
			`"needs":[{"name":"test","runOn":["success"]}],"environments":[{"value":"base","dynamic":false},`+
			`{"value":{"_type":"inline","expression":"(e) => e.targetBranch === 'main' ? 'prod' : 'stage'"},"dynamic":true}],`+
			`"env":{"_type":"inline","expression":"({ targetBranch }) => ({ REF: targetBranch })"},"dynamicEnv":true,`+
			`"gracePeriod":1.5,"timeout":60000,"checkout":false,"container":"alpine"`))
	w.TimeoutMs = 3600000
	p := build(t, input(w))
	if p.InitFailure != nil || p.TimeoutMs != 3600000 || p.Workflow != "ci" {
		t.Fatalf("plan %+v", p)
	}
	var names []string
	for _, j := range p.Jobs {
		names = append(names, fmt.Sprintf("%s %d/%d root=%v", j.Name, j.FanoutIndex, j.FanoutTotal, j.Root))
	}
	want := []string{
		"test (20, linux) 0/3 root=true", "test (22, linux) 1/3 root=true", "test (22, mac) 2/3 root=true", "deploy 0/0 root=false",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	success := []ci.JobStatus{ci.JobSuccess}
	edges := []Edge{{Job: "deploy", Upstream: "test (20, linux)", RunOn: success}, {Job: "deploy", Upstream: "test (22, linux)", RunOn: success}, {Job: "deploy", Upstream: "test (22, mac)", RunOn: success}}
	if diff := cmp.Diff(edges, p.Edges); diff != "" {
		t.Error(diff)
	}
	deploy := find(t, p, "deploy")
	selector := label.Selector{Labels: []string{"linux"}, ExcludePatterns: []label.Matcher{{Kind: label.Regex, Source: "^spot-"}}}
	if diff := cmp.Diff(selector, deploy.Selector) + cmp.Diff([]string{"base", "prod"}, deploy.Contexts); diff != "" {
		t.Error(diff)
	}
	if deploy.ID != JobID("run-1", "deploy") || deploy.TimeoutMs != 60000 || deploy.GraceMs != 1500 || deploy.Pick != "deterministic" {
		t.Errorf("deploy %+v", deploy)
	}
	config := `{"source":{"file":".kici/workflows/ci.ts","export":"#ci"},"workflowName":"ci","name":"deploy","baseJobName":"deploy",` +
		`"runsOnPick":"deterministic","steps":[],"needs":[{"name":"test","runOn":["success"]}],"contentHash":"c0ffee",` +
		`"environment":"base","jobEnv":{"REF":"main"},"timeout":60000,"checkout":false,"container":"alpine",` +
		`"cacheOrgId":"default","cacheRepoId":"acme/app","cacheRefScope":"isolated","provider":"local"}`
	if diff := cmp.Diff(config, string(deploy.Config)); diff != "" {
		t.Error(diff)
	}
	child := find(t, p, "test (22, linux)")
	config = `{"source":{"file":".kici/workflows/ci.ts","export":"#ci"},"workflowName":"ci","name":"test (22, linux)",` +
		`"baseJobName":"test","matrixValues":{"node":"22","os":"linux"},"fanoutIndex":1,"fanoutTotal":3,"runsOnPick":"deterministic",` +
		`"steps":[],"needs":[],"contentHash":"c0ffee","cacheOrgId":"default","cacheRepoId":"acme/app","cacheRefScope":"isolated","provider":"local"}`
	if diff := cmp.Diff(config, string(child.Config)); diff != "" {
		t.Error(diff)
	}
}

func TestBuildForwardsHowTheRunWasStarted(t *testing.T) {
	in := input(workflow(t, job("a", "")))
	in.ContentHashOmitted, in.CacheShared, in.CheckMode = true, true, "check"
	in.DispatchInputs = json.RawMessage(`{"target":"eu"}`)
	config := string(build(t, in).Jobs[0].Config)
	for _, part := range []string{`"cacheRefScope":"shared"`, `"checkMode":"check"`, `"dispatchInputs":{"target":"eu"}`} {
		if !strings.Contains(config, part) {
			t.Errorf("%s lacks %s", config, part)
		}
	}
	if strings.Contains(config, "contentHash") {
		t.Errorf("%s has a content hash", config)
	}
}

func TestJobsThatCannotRunAreBornFailed(t *testing.T) {
	inline := func(expression string) string { return fmt.Sprintf(`{"_type":"inline","expression":%q}`, expression) }
	tests := []struct{ name, members, category, message string }{
		{"failing expression", `"env":` + inline("() => 1"), ci.InitDynamicEval, "Inline env evaluation failed for job 'a': Inline expression must return an object, got number: () => 1"},
		{"endless expression", `"concurrencyGroup":` + inline("() => { for (;;); }"), ci.InitDynamicEval, "Inline concurrencyGroup evaluation failed for job 'a': "},
		{"empty matrix", `"matrix":{"_type":"static","values":[]}`, ci.InitMatrixExpansion, "matrix for job 'a' expands to zero combinations"},
		{"resources", `"resources":{"cpus":1}`, ci.InitEnvironmentRules, `job 'a': resources: unknown member "cpus"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := build(t, input(workflow(t, job("a", tt.members), job("b", `"needs":["a"]`), job("c", ""))))
			if len(p.Jobs) != 3 || p.InitFailure != nil {
				t.Fatalf("plan %+v", p)
			}
			f := p.Jobs[0].InitFailure
			if f == nil || f.Category != tt.category || !strings.HasPrefix(f.Message, tt.message) || f.Scope != ci.ScopeJob || f.JobName != "a" {
				t.Errorf("init failure %+v, want %s: %s", f, tt.category, tt.message)
			}
			if len(p.Edges) != 1 || p.Jobs[1].InitFailure != nil || p.Jobs[2].InitFailure != nil {
				t.Errorf("the others are planned as ever: %+v", p)
			}
		})
	}
}

func TestApprovalsAreForWhoeverHoldsRunsAndJobs(t *testing.T) {
	w := parseWorkflow(t, `"approval":{"clauses":[{"team":"ops"}],"when":"always"},"jobs":[`+job("a", `"approval":{"clauses":[],"when":"always"}`)+`]`)
	p := build(t, input(w))
	if p.InitFailure != nil || p.Approval == nil || p.Approval.Clauses[0].Team != "ops" || p.Jobs[0].Approval == nil {
		t.Errorf("plan %+v", p)
	}
}

func TestWorkflowsThatCannotBePlannedFailTheRun(t *testing.T) {
	tests := []struct {
		name     string
		jobs     []string
		category string
		message  string
	}{
		{"unknown need", []string{job("b", `"needs":["bild"]`), job("build", "")}, ci.InitLockResolution, "job 'b' of workflow 'ci' needs 'bild', which is no job of the workflow (its jobs: b, build)"},
		{"unknown group", []string{job("b", `"needs":[{"group":"g"}]`)}, ci.InitLockResolution, "job 'b' of workflow 'ci' needs group 'g', which no generator of the workflow makes"},
		{"cycle", []string{job("x", `"needs":["a"]`), job("a", `"needs":["b"]`), job("b", `"needs":["c"]`), job("c", `"needs":["a"]`)}, ci.InitLockResolution, "needs of workflow 'ci': cycle detected: a -> b -> c -> a"},
		{"self", []string{job("a", `"needs":["a"]`)}, ci.InitLockResolution, "needs of workflow 'ci': cycle detected: a -> a"},
		{"through a group", []string{job("a", `"needs":[{"group":"g"}]`), `{"_type":"dynamic","source":{"file":"f","index":1},"group":"g","needs":["a"]}`}, ci.InitLockResolution, "needs of workflow 'ci': cycle detected: a -> __dynamic__ci__1 -> a"},
		{"same name", []string{job("a", ""), job("a", "")}, ci.InitLockResolution, "workflow 'ci' has two jobs called 'a'"},
		{"no name", []string{job("", "")}, ci.InitLockResolution, "entry 1 of the jobs of workflow 'ci' has no name"},
		{"wrong type", []string{job("a", `"timeout":"5m"`)}, ci.InitLockResolution, "workflow 'ci' of the lock file cannot be used: job 'a' timeout: expected a number, found text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := build(t, input(workflow(t, tt.jobs...)))
			f := p.InitFailure
			if f == nil || f.Scope != ci.ScopeRun || f.Category != tt.category || f.Message != tt.message || len(p.Jobs) > 0 {
				t.Errorf("init failure %+v, want %s: %s", f, tt.category, tt.message)
			}
		})
	}
}

func TestAPlanWithTooManyJobsIsRefusedWithItsCount(t *testing.T) {
	values := `"matrix":{"_type":"static","values":[` + strings.TrimSuffix(strings.Repeat(`"x",`, 256), ",") + `]}`
	var jobs []string
	for i := range 4 {
		jobs = append(jobs, job(fmt.Sprint("m", i), values))
	}
	if p := build(t, input(workflow(t, jobs...))); p.InitFailure != nil || len(p.Jobs) != 1024 {
		t.Errorf("1024 jobs are within the limit: %+v, %d jobs", p.InitFailure, len(p.Jobs))
	}
	p := build(t, input(workflow(t, append(jobs, job("one", ""), job("more", values))...)))
	want := &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitMatrixExpansion, Message: "workflow 'ci' expands to 1281 jobs (max 1024)"}
	if diff := cmp.Diff(want, p.InitFailure); diff != "" || len(p.Jobs) > 0 {
		t.Error(diff)
	}
}

func TestChildrenOfOneNameAreToldApart(t *testing.T) {
	p := build(t, input(workflow(t, job("t", `"matrix":{"_type":"static","values":["1","1","2"]}`), job("t (2)", ""), job("u", `"needs":["t"]`))))
	var names []string
	for _, j := range p.Jobs {
		names = append(names, j.Name)
	}
	if diff := cmp.Diff([]string{"t (1)", "t (1) #2", "t (2) #2", "t (2)", "u"}, names); diff != "" {
		t.Error(diff)
	}
	if len(p.Edges) != 3 || p.Edges[1].Upstream != "t (1) #2" {
		t.Errorf("edges %+v", p.Edges)
	}
}

func TestWavesHoldTheLaterPositions(t *testing.T) {
	p := build(t, input(workflow(t, job("t", `"matrix":{"_type":"static","values":["c","a","b"]},"maxParallel":2,"failFast":true`))))
	for _, j := range p.Jobs {
		if j.WaveGated != (j.VariantLabel == "c") || j.MaxParallel != 2 || !j.FailFast {
			t.Errorf("job %+v", j)
		}
	}
}

func TestAHugeMatrixIsCountedAndNotBuilt(t *testing.T) {
	tests := []struct {
		name string
		dims int
		want string
	}{
		{"countable", 3, "matrix for job 'j' expands to 1000000 combinations (max 256)"},
		{"beyond counting", 40, "matrix for job 'j' expands to 9223372036854775807 combinations (max 256)"},
	}
	for _, tt := range tests {
		m := &lockfile.Matrix{Type: "static", HasValues: true}
		for i := range tt.dims {
			m.Dimensions = append(m.Dimensions, lockfile.Dimension{Name: fmt.Sprint(i), Values: make([]string, 100)})
		}
		if _, err := FanOut(lockfile.Job{Name: "j", Matrix: m}); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
		m.Dimensions = append(m.Dimensions, lockfile.Dimension{Name: "empty"})
		if _, err := FanOut(lockfile.Job{Name: "j", Matrix: m}); err == nil || !strings.Contains(err.Error(), "zero combinations") {
			t.Errorf("%s with an empty dimension: %v", tt.name, err)
		}
	}
}

func TestEndlessExpressionsAreGivenUpOn(t *testing.T) {
	e := evaluator{event: func() (json.RawMessage, error) { return json.RawMessage(`{}`), nil }, timeouts: maxTimeouts}
	if _, err := e.text("() => 'x'"); err == nil || !strings.Contains(err.Error(), "not evaluated, since 5 other expressions") {
		t.Errorf("error %v", err)
	}
}

// genWorkflow draws a workflow with arbitrary needs, matrices and names, valid or not.
func genWorkflow(t *rapid.T) lockfile.Workflow {
	names := []string{"a", "b", "c", "d (1)", "d"}
	n := rapid.IntRange(1, len(names)).Draw(t, "jobs")
	var jobs []string
	for _, name := range names[:n] {
		needs, err := json.Marshal(rapid.SliceOfN(rapid.SampledFrom(names[:n]), 0, 2).Draw(t, "needs"))
		if err != nil {
			t.Fatal(err)
		}
		members := `"needs":` + string(needs)
		if rapid.Bool().Draw(t, "matrix") {
			values, err := json.Marshal(map[string][]string{
				"x": rapid.SliceOfN(rapid.SampledFrom([]string{"1", "2", "1, 2"}), 0, 3).Draw(t, "x"),
				"y": rapid.SliceOfN(rapid.SampledFrom([]string{"1", "2, 1"}), 1, 2).Draw(t, "y"),
			})
			if err != nil {
				t.Fatal(err)
			}
			members += `,"matrix":{"_type":"static","values":` + string(values) + `}`
		}
		jobs = append(jobs, job(name, members))
	}
	return parseWorkflow(t, `"jobs":[`+strings.Join(jobs, ",")+`]`)
}

func TestAPlanIsSoundOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(genWorkflow(t))
		p := build(t, in)
		if diff := cmp.Diff(p, build(t, in)); diff != "" {
			t.Fatalf("the same input is planned differently: %s", diff)
		}
		if p.InitFailure != nil {
			if len(p.Jobs) > 0 || p.InitFailure.Message == "" {
				t.Fatalf("refused plan %+v", p)
			}
			return
		}
		upstreams := map[string][]string{}
		for _, j := range p.Jobs {
			if _, twice := upstreams[j.Name]; twice {
				t.Fatalf("two jobs called %s", j.Name)
			}
			upstreams[j.Name] = nil
			if (j.InitFailure == nil) != (len(j.Config) > 0) {
				t.Fatalf("job %+v", j)
			}
		}
		for _, e := range p.Edges {
			if _, ok := upstreams[e.Upstream]; !ok {
				t.Fatalf("edge to %s, which is no job", e.Upstream)
			}
			upstreams[e.Job] = append(upstreams[e.Job], e.Upstream)
		}
		for _, j := range p.Jobs {
			if j.Root != (len(upstreams[j.Name]) == 0) {
				t.Fatalf("job %s: root %v with upstreams %q", j.Name, j.Root, upstreams[j.Name])
			}
		}
		finish(t, upstreams)
	})
}

// finish runs the jobs in any order that the edges allow; in an acyclic plan all of them end.
func finish(t *rapid.T, upstreams map[string][]string) {
	done := map[string]bool{}
	for progress := true; progress; {
		progress = false
		for name, needs := range upstreams {
			if !done[name] && !slices.ContainsFunc(needs, func(u string) bool { return !done[u] }) {
				done[name], progress = true, true
			}
		}
	}
	if len(done) != len(upstreams) {
		t.Fatalf("%d of %d jobs can end", len(done), len(upstreams))
	}
}

func BenchmarkBuild1000Jobs(b *testing.B) {
	var values []string
	for i := range 250 {
		values = append(values, fmt.Sprintf(`"v%d"`, i))
	}
	matrix := `"matrix":{"_type":"static","values":[` + strings.Join(values, ",") + `]}`
	w := parseWorkflow(b, `"jobs":[`+strings.Join([]string{job("a", matrix), job("b", matrix), job("c", matrix), job("d", matrix), job("e", `"needs":["a","b","c","d"]`)}, ",")+`]`)
	in := input(w)
	for b.Loop() {
		build(b, in)
	}
}
