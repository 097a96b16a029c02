package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
)

const linux = `"runsOn":[{"kind":"exact","value":"linux"}]`

// known is what a run has once the plan is registered.
func known(p Plan) Known {
	k := Known{Bases: map[string][]string{}, Groups: map[string][]string{}, Edges: p.Edges}
	for _, j := range p.Jobs {
		k.Bases[j.BaseName] = append(k.Bases[j.BaseName], j.Name)
		if j.Group != "" {
			k.Groups[j.Group] = append(k.Groups[j.Group], j.Name)
		}
	}
	return k
}

func arrows(edges []Edge) []string {
	out := []string{}
	for _, e := range edges {
		arrow := fmt.Sprintf("%s <- %s", e.Job, e.Upstream)
		if e.ViaGroup {
			arrow += " (group)"
		}
		out = append(out, arrow)
	}
	return out
}

func jobNamesOf(jobs []Job) []string {
	out := []string{}
	for _, j := range jobs {
		name := j.Name
		if j.InitFailure != nil {
			name += " failed: " + j.InitFailure.Message
		}
		out = append(out, name)
	}
	return out
}

func TestWhatOnlyAnAgentCanComputeHasAPlaceAndAnInitJob(t *testing.T) {
	tests := []struct{ name, members, config string }{
		{"context", `"environments":[{"value":"base","dynamic":false},{"value":"","dynamic":true}]`, `"dynamicEnvironment":true,"dynamicEnv":false,"dynamicConcurrencyGroup":false,"dynamicMatrix":false`},
		{"context whose expression gives nothing", `"environments":[{"value":{"_type":"inline","expression":"() => ''"},"dynamic":true}]`, `"dynamicEnvironment":true,"dynamicEnv":false,"dynamicConcurrencyGroup":false,"dynamicMatrix":false`},
		{"env", `"dynamicEnv":true`, `"dynamicEnvironment":false,"dynamicEnv":true,"dynamicConcurrencyGroup":false,"dynamicMatrix":false`},
		{"group", `"dynamicConcurrencyGroup":true`, `"dynamicEnvironment":false,"dynamicEnv":false,"dynamicConcurrencyGroup":true,"dynamicMatrix":false`},
		{"matrix", `"matrix":{"_type":"dynamic","source":{"file":"f","jobName":"a"}}`, `"dynamicEnvironment":false,"dynamicEnv":false,"dynamicConcurrencyGroup":false,"dynamicMatrix":true`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := input(workflow(t, job("before", ""), job("a", linux+`,"needs":["before"],`+tt.members), job("b", `"needs":["a"]`)))
			in.Platform, in.Arch = "linux", "x64"
			p := build(t, in)
			if diff := cmp.Diff([]string{"before", "__init__ci__a", "a", "b"}, jobNamesOf(p.Jobs)); diff != "" || p.Document == nil {
				t.Fatal(diff)
			}
			init, place := p.Jobs[1], p.Jobs[2]
			if init.Kind != ci.KindInit || init.Target != "a" || !init.Root || !place.Deferred || place.Config != nil || place.Root {
				t.Errorf("init job %+v, place %+v", init, place)
			}
			if diff := cmp.Diff([]string{"kici:role:init-runner", "kici:os:linux", "kici:arch:x64"}, init.Selector.Labels); diff != "" {
				t.Error(diff)
			}
			config := `{"initOnly":true,"targetJobName":"a","workflowName":"ci","source":".kici/workflows/ci.ts",` + tt.config + `,"timeoutMs":60000,"contentHash":"c0ffee"}`
			if diff := cmp.Diff(config, string(init.Config)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"a <- before", "b <- a"}, arrows(p.Edges)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAPlaceIsFilledWithWhatTheAgentComputed(t *testing.T) {
	matrix := `"matrix":{"_type":"dynamic","source":{"file":"f","jobName":"a"}}`
	tests := []struct {
		name, members, result string
		want                  []string // names, contexts, env
		category, message     string
	}{
		{"contexts and env", `"environments":[{"value":"base","dynamic":false},{"value":"","dynamic":true}],"dynamicEnv":true`,
			`{"environmentNames":["base","prod"],"env":{"A":"1"}}`, []string{`a [base prod] {"A":"1"}`}, "", ""},
		{"an env that was not asked for is left", `"environments":[{"value":"","dynamic":true}],"env":{"B":"2"}`,
			`{"environmentNames":["prod"],"env":{"A":"1"}}`, []string{`a [prod] {"B":"2"}`}, "", ""},
		{"matrix", matrix, `{"matrixValues":[{"v":"2"},{"v":"1"}]}`, []string{"a (2) [] null", "a (1) [] null"}, "", ""},
		{"empty matrix", matrix, `{"matrixValues":[]}`, nil, ci.InitMatrixExpansion, "dynamic matrix for job 'a' resolved to zero combinations"},
		{"matrix that is no list", matrix, `{"matrixValues":3}`, nil, ci.InitDynamicEval, "the agent's result for job 'a' cannot be read"},
		{"no context", `"environments":[{"value":"","dynamic":true}]`, `{}`, nil, ci.InitDynamicEval, "the agent named no context for job 'a'"},
		{"no env", `"dynamicEnv":true`, `{}`, nil, ci.InitDynamicEval, "the agent gave no env for job 'a'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := input(workflow(t, job("a", tt.members)))
			x, failure, err := Resolve(in, known(build(t, in)), "a", json.RawMessage(tt.result))
			if err != nil {
				t.Fatal(err)
			}
			if tt.category != "" {
				if failure == nil || failure.Category != tt.category || !strings.HasPrefix(failure.Message, tt.message) || failure.JobName != "a" {
					t.Errorf("failure %+v", failure)
				}
				return
			}
			var got []string
			for _, j := range x.Jobs {
				var c struct{ JobEnv json.RawMessage }
				if err := json.Unmarshal(j.Config, &c); err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s %v %s", j.Name, j.Contexts, orNull(c.JobEnv)))
				if j.Deferred || j.BaseName != "a" {
					t.Errorf("job %+v", j)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || failure != nil {
				t.Errorf("failure %+v: %s", failure, diff)
			}
		})
	}
}

func orNull(raw json.RawMessage) string {
	if raw == nil {
		return "null"
	}
	return string(raw)
}

func TestAFilledPlaceKeepsItsIdAndTheLimitOfTheRun(t *testing.T) {
	in := input(workflow(t, job("a", `"dynamicEnv":true`)))
	p := build(t, in)
	x, _, err := Resolve(in, known(p), "a", json.RawMessage(`{"env":{}}`))
	if err != nil || x.Jobs[0].ID != p.Jobs[1].ID {
		t.Errorf("%+v, %v", x.Jobs, err)
	}
	in = input(workflow(t, job("a", `"matrix":{"_type":"dynamic"}`)))
	in.MaxJobs = 3
	_, failure, err := Resolve(in, known(build(t, in)), "a", json.RawMessage(`{"matrixValues":[{"v":"1"},{"v":"2"},{"v":"3"}]}`))
	if err != nil || failure == nil || failure.Message != "workflow 'ci' expands to 4 jobs (max 3)" {
		t.Errorf("failure %+v, %v", failure, err)
	}
}

const generatorEntry = `{"_type":"dynamic","source":{"file":".kici/workflows/ci.ts","index":1},"group":"g","needs":["a"]}`

func TestGeneratorsArePlannedAsJobsWithNeedsAndAGroup(t *testing.T) {
	p := build(t, input(workflow(t, job("a", ""), generatorEntry, `{"_type":"alien"}`,
		job("b", `"needs":[{"group":"g","runOn":["success"]}],"dependsOnGroups":["g"]`), job("c", `"dependsOnGroups":["g"]`))))
	if diff := cmp.Diff([]string{"a", "__dynamic__ci__1", "b", "c"}, jobNamesOf(p.Jobs)); diff != "" || p.Document == nil {
		t.Fatal(diff)
	}
	want := []string{"__dynamic__ci__1 <- a", "b <- __dynamic__ci__1 (group)", "c <- __dynamic__ci__1 (group)"}
	if diff := cmp.Diff(want, arrows(p.Edges)); diff != "" {
		t.Error(diff)
	}
	config := `{"dynamicJobFn":true,"workflowName":"ci","source":{"file":".kici/workflows/ci.ts","index":1},"timeoutMs":120000,"contentHash":"c0ffee","resultAware":true,"declaredNeeds":["a"]}`
	if diff := cmp.Diff(config, string(p.Jobs[1].Config)); diff != "" || p.Jobs[1].Kind != ci.KindGenerator {
		t.Error(diff)
	}
}

func generate(t *testing.T, w lockfile.Workflow, jobs string) (Expansion, *ci.InitFailure) {
	t.Helper()
	in := input(w)
	x, failure, err := Generate(in, known(build(t, in)), Generated{Generator: "__dynamic__ci__1", Jobs: json.RawMessage(jobs),
		Snapshot: json.RawMessage(`{"jobs":{}}`), Pinned: func(id string) bool { return id == "box-1" }})
	if err != nil {
		t.Fatal(err)
	}
	return x, failure
}

func TestGeneratedJobsTakeTheirGroupsPlace(t *testing.T) {
	w := workflow(t, job("a", ""), generatorEntry, job("b", `"needs":[{"group":"g","runOn":["failed"]}]`))
	x, failure := generate(t, w, `[{"_type":"static","name":"x","steps":[],`+linux+`,"matrix":{"_type":"static","values":["1","2"]}},`+
		`{"_type":"static","name":"y","steps":[],"needs":["x","a"],"runsOn":[{"kind":"exact","value":"box-1"}]}]`)
	if failure != nil {
		t.Fatal(failure)
	}
	if diff := cmp.Diff([]string{"x (1)", "x (2)", "y"}, jobNamesOf(x.Jobs)); diff != "" {
		t.Error(diff)
	}
	want := []string{"y <- x (1)", "y <- x (2)", "y <- a", "b <- x (1)", "b <- x (2)", "b <- y"}
	if diff := cmp.Diff(want, arrows(x.Edges)); diff != "" {
		t.Error(diff)
	}
	if x.Edges[3].RunOn[0] != ci.JobFailed {
		t.Errorf("the group's condition is not copied: %+v", x.Edges[3])
	}
	y := x.Jobs[2]
	if diff := cmp.Diff(label.Selector{Pin: "box-1"}, y.Selector); diff != "" || y.Group != "g" {
		t.Error(diff)
	}
	source := `{"index":1,"expectedJobNames":["x","y"],"upstreamSnapshot":{"jobs":{}},"declaredNeeds":["a"]}`
	if diff := cmp.Diff(source, string(y.DynamicSource)); diff != "" {
		t.Error(diff)
	}
}

func TestAnEmptyGroupHoldsUpNobody(t *testing.T) {
	x, failure := generate(t, workflow(t, job("a", ""), generatorEntry, job("b", `"needs":[{"group":"g"}]`)), `[]`)
	if failure != nil || len(x.Jobs) > 0 || len(x.Edges) > 0 {
		t.Errorf("%+v, %+v", x, failure)
	}
}

func TestGeneratorsThatGiveWhatCannotBeRunFail(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`{"_type":"static","name":"x","steps":[]},`, 101), ",")
	tests := []struct{ name, jobs, message string }{
		{"too many", "[" + many + "]", "the generator gave 101 jobs (max 100)"},
		{"no list", `{}`, "the generator's result is not a list of jobs"},
		{"no name", `[{"_type":"static","steps":[]}]`, "job 1 of the generator's has no name"},
		{"a generator", `[{"_type":"dynamic","source":{"file":"f","index":0}}]`, `job 1 of the generator's: decode job of workflow 'ci': expected a job of type "static", found an object`},
		{"a name of the run", `[{"_type":"static","name":"a","steps":[]}]`, "the generator gave a job 'a', and the run has one of that name already"},
		{"one name twice", `[{"_type":"static","name":"x","steps":[]},{"_type":"static","name":"x","steps":[]}]`, "the generator gave a job 'x', and the run has one of that name already"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, failure := generate(t, workflow(t, job("a", ""), generatorEntry), tt.jobs)
			if failure == nil || failure.Category != ci.InitDynamicEval || failure.Message != tt.message {
				t.Errorf("failure %+v", failure)
			}
		})
	}
}

func TestGeneratedJobsThatCannotRunAreBornFailed(t *testing.T) {
	tests := []struct {
		name, jobs string
		want       []string
		failed     map[string]string // of the jobs before
	}{
		{"unknown need", `[{"_type":"static","name":"x","steps":[],"needs":["nobody"]}]`, []string{"x failed: generated job 'x' needs 'nobody', which is no job of the run"}, nil},
		{"unknown group", `[{"_type":"static","name":"x","steps":[],"needs":[{"group":"h"}]}]`, []string{"x failed: generated job 'x' needs group 'h', which no generator of the workflow makes"}, nil},
		{"what only an agent can compute", `[{"_type":"static","name":"x","steps":[],"dynamicEnv":true}]`, []string{"x failed: generated job 'x' leaves its env to a function"}, nil},
		{"cycle among siblings", `[{"_type":"static","name":"x","steps":[],"needs":["y"]},{"_type":"static","name":"y","steps":[],"needs":["x"]},{"_type":"static","name":"z","steps":[],"needs":["y"]}]`,
			[]string{"x failed: cycle detected: x -> y -> x", "y failed: cycle detected: x -> y -> x", "z"}, nil},
		{"cycle found late, through the group", `[{"_type":"static","name":"x","steps":[],"needs":["b"]}]`,
			[]string{"x failed: cycle detected: x -> b -> x"}, map[string]string{"b": "cycle detected: x -> b -> x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, failure := generate(t, workflow(t, job("a", ""), generatorEntry, job("b", `"needs":[{"group":"g"}]`)), tt.jobs)
			if diff := cmp.Diff(tt.want, jobNamesOf(x.Jobs)); diff != "" || failure != nil {
				t.Errorf("failure %+v: %s", failure, diff)
			}
			failed := map[string]string(nil)
			for name, f := range x.Failed {
				failed = map[string]string{name: f.Message}
			}
			if diff := cmp.Diff(tt.failed, failed); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestABuildComesBeforeEveryRoot(t *testing.T) {
	in := input(workflow(t, job("a", ""), job("b", `"needs":["a"]`), job("c", `"dynamicEnv":true`), `{"_type":"dynamic","source":{"file":"f","index":3},"group":"g"}`))
	in.Platform, in.Arch, in.Packing = "linux", "x64", &Packing{SourceNeeded: true, DepsNeeded: true}
	in.LockfileHash, in.CacheShared = "feed", true
	p := build(t, in)
	if p.Jobs[0].Kind != ci.KindBuild || !p.Jobs[0].Root {
		t.Fatalf("first job %+v", p.Jobs[0])
	}
	want := []string{"b <- a", "a <- __build__ci", "__init__ci__c <- __build__ci", "c <- __build__ci", "__dynamic__ci__3 <- __build__ci"}
	if diff := cmp.Diff(want, arrows(p.Edges)); diff != "" {
		t.Error(diff)
	}
	config := `{"buildOnly":true,"targetPlatform":"linux","targetArch":"x64","source":{"file":".kici/workflows/ci.ts"},"contentHash":"c0ffee","lockfileHash":"feed","workflowName":"ci","buildSourceNeeded":true,"buildDepsNeeded":true,"cacheOrgId":"default","cacheRepoId":"acme/app","cacheRefScope":"shared"}`
	if diff := cmp.Diff(config, string(p.Jobs[0].Config)); diff != "" {
		t.Error(diff)
	}
}

func TestHostsOfTheRosterHaveAChildEach(t *testing.T) {
	in := input(workflow(t, job("d", `"runsOnAll":{"include":[[{"kind":"exact","value":"web"}]],"exclude":[{"kind":"exact","value":"old"}]},"onUnreachable":"fail"`), job("e", `"needs":["d"]`)))
	in.Now, in.RosterGrace = 1_000_000, time.Minute
	host := func(id, name string, connected bool, labels ...string) label.RosterHost {
		return label.RosterHost{AgentID: id, Name: name, Labels: labels, Platform: "linux", Arch: "x64", Connected: connected, LastSeenAt: in.Now}
	}
	in.Roster = []label.RosterHost{host("a2", "vm", true, "web"), host("a1", "vm", true, "web"), host("a3", "away", false, "web"), host("a4", "other", true, "db"), host("a5", "old", true, "web", "old")}
	p := build(t, in)
	if len(p.Jobs) != 4 || p.Jobs[0].Selector.Pin != "a1" || p.Jobs[1].Selector.Pin != "a2" || p.Jobs[0].Name == p.Jobs[1].Name {
		t.Fatalf("jobs %+v", p.Jobs)
	}
	if f := p.Jobs[2].InitFailure; f == nil || f.Category != ci.InitNoAgent || !strings.Contains(f.Message, "not connected") {
		t.Errorf("host that is away: %+v", f)
	}
	if len(p.Edges) != 3 {
		t.Errorf("edges %v", arrows(p.Edges))
	}
	var c struct {
		Host  string
		Agent struct {
			Host, Platform string
			Labels         []string
		}
		FanoutTotal int
	}
	if err := json.Unmarshal(p.Jobs[0].Config, &c); err != nil || c.Host == "" || c.Agent.Host != c.Host || c.Agent.Labels[0] != "web" || c.FanoutTotal != 3 {
		t.Errorf("config %s, %v", p.Jobs[0].Config, err)
	}
	in.Roster = nil
	if f := build(t, in).Jobs[0].InitFailure; f == nil || f.Message != "runsOnAll for job 'd' matched zero matching hosts" {
		t.Errorf("no hosts: %+v", f)
	}
}

func TestWhatARunWasPlannedFromIsReadBack(t *testing.T) {
	in := input(workflow(t, job("a", linux+`,"dynamicEnv":true,"timeout":60000,"matrix":{"_type":"static","values":{"v":["1"]}}`), generatorEntry))
	in.CheckMode, in.Platform, in.Arch, in.CacheShared = "check", "linux", "x64", true
	p := build(t, in)
	event, err := json.Marshal(in.Event)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(p.Document, event)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, build(t, back)); diff != "" {
		t.Errorf("the same plan is not made from it:\n%s", diff)
	}
	for _, bad := range []string{`{`, `{"workflow":3}`} {
		if _, err := Decode(json.RawMessage(bad), event); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// TestAnExpansionKeepsTheRunSound draws what a generator gives, and requires of the run afterwards what is required of a
// plan: unique names, edges between jobs that exist, and no cycle among jobs that can run.
func TestAnExpansionKeepsTheRunSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"x", "y", "z", "a", "b", "nobody"}
		var jobs []string
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names[:3]), 0, 3, rapid.ID).Draw(t, "jobs") {
			needs, err := json.Marshal(rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(t, "needs"))
			if err != nil {
				t.Fatal(err)
			}
			jobs = append(jobs, fmt.Sprintf(`{"_type":"static","name":%q,"steps":[],"needs":%s}`, name, needs))
		}
		w := parseWorkflow(t, `"jobs":[`+strings.Join([]string{job("a", ""), generatorEntry, job("b", `"needs":[{"group":"g"}]`)}, ",")+`]`)
		in := input(w)
		before := build(t, in)
		x, failure, err := Generate(in, known(before), Generated{Generator: "__dynamic__ci__1", Jobs: json.RawMessage("[" + strings.Join(jobs, ",") + "]")})
		if err != nil || failure != nil {
			t.Fatalf("%v, %+v", err, failure)
		}
		upstreams := map[string][]string{}
		for _, j := range append(before.Jobs, x.Jobs...) {
			if _, twice := upstreams[j.Name]; twice {
				t.Fatalf("two jobs called %s", j.Name)
			}
			upstreams[j.Name] = nil
		}
		for _, e := range append(before.Edges, x.Edges...) {
			if _, ok := upstreams[e.Upstream]; !ok {
				t.Fatalf("edge to %s, which is no job", e.Upstream)
			}
			if _, failed := x.Failed[e.Job]; !failed && !(e.ViaGroup && e.Upstream == "__dynamic__ci__1") {
				upstreams[e.Job] = append(upstreams[e.Job], e.Upstream)
			}
		}
		finish(t, upstreams)
	})
}
