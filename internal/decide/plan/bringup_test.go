package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/label"
)

const (
	everyWeb  = `"runsOnAll":{"include":[[{"kind":"exact","value":"web"}]],"exclude":[]}`
	bringsUp  = everyWeb + `,"includeUninitialized":true`
	rosterNow = 1_000_000
)

func liveHost(id string) label.RosterHost {
	return label.RosterHost{AgentID: id, Name: id, Labels: []string{"web"}, Connected: true, LastSeenAt: rosterNow}
}

func bareHost(id string) label.RosterHost {
	return label.RosterHost{AgentID: id, Name: id, Labels: []string{"web"}, Uninitialized: true}
}

func TestHostsWithoutAnAgentAreBroughtUpForTheJobsThatAskForThem(t *testing.T) {
	away := liveHost("web-4")
	away.Connected = false
	roster := []label.RosterHost{liveHost("web-1"), bareHost("web-2"), bareHost("web-3"), away}
	tests := []struct {
		name        string
		jobs        []string
		packing     *Packing
		want, edges []string
	}{
		{"not asked for", []string{job("d", everyWeb+`,"onUnreachable":"skip"`)}, nil, []string{"d (web-1)"}, []string{}},
		{"asked for", []string{job("d", bringsUp+`,"onUnreachable":"skip"`)}, nil,
			[]string{"d (web-1)", "__bringup__ci__web-2", "d (web-2)", "__bringup__ci__web-3", "d (web-3)"},
			[]string{"d (web-2) <- __bringup__ci__web-2", "d (web-3) <- __bringup__ci__web-3"}},
		{"a host that is away has an agent", []string{job("d", bringsUp+`,"onUnreachable":"fail"`)}, nil,
			[]string{"d (web-1)", "__bringup__ci__web-2", "d (web-2)", "__bringup__ci__web-3", "d (web-3)",
				"d (web-4) failed: job 'd (web-4)' cannot run: host web-4 (agent web-4) is not connected: last seen 0s ago"},
			[]string{"d (web-2) <- __bringup__ci__web-2", "d (web-3) <- __bringup__ci__web-3"}},
		{"two jobs share it, and who needs them does not see it", []string{job("d", bringsUp+`,"onUnreachable":"skip"`), job("e", bringsUp+`,"onUnreachable":"skip","needs":["d"]`), job("f", `"needs":["e"]`)}, nil,
			[]string{"d (web-1)", "__bringup__ci__web-2", "d (web-2)", "__bringup__ci__web-3", "d (web-3)", "e (web-1)", "e (web-2)", "e (web-3)", "f"},
			[]string{"e (web-1) <- d (web-1)", "e (web-1) <- d (web-2)", "e (web-1) <- d (web-3)", "e (web-2) <- d (web-1)", "e (web-2) <- d (web-2)", "e (web-2) <- d (web-3)",
				"e (web-3) <- d (web-1)", "e (web-3) <- d (web-2)", "e (web-3) <- d (web-3)", "f <- e (web-1)", "f <- e (web-2)", "f <- e (web-3)",
				"d (web-2) <- __bringup__ci__web-2", "d (web-3) <- __bringup__ci__web-3", "e (web-2) <- __bringup__ci__web-2", "e (web-3) <- __bringup__ci__web-3"}},
		{"it does not wait for the build, and its child does", []string{job("d", bringsUp+`,"onUnreachable":"skip"`)}, &Packing{DepsNeeded: true},
			[]string{"__build__ci", "d (web-1)", "__bringup__ci__web-2", "d (web-2)", "__bringup__ci__web-3", "d (web-3)"},
			[]string{"d (web-1) <- __build__ci", "d (web-2) <- __build__ci", "d (web-3) <- __build__ci", "d (web-2) <- __bringup__ci__web-2", "d (web-3) <- __bringup__ci__web-3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := input(workflow(t, tt.jobs...))
			in.Roster, in.Now, in.RosterGrace, in.Packing = roster, rosterNow, time.Minute, tt.packing
			p := build(t, in)
			if diff := cmp.Diff(tt.want, jobNamesOf(p.Jobs)); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.edges, arrows(p.Edges)); diff != "" {
				t.Errorf("edges (-want +got):\n%s", diff)
			}
		})
	}
}

func TestABringUpIsAJobForAnAgentWithSSH(t *testing.T) {
	in := input(workflow(t, job("d", bringsUp)))
	in.Roster = []label.RosterHost{bareHost("web-2")}
	p := build(t, in)
	up, child := find(t, p, "__bringup__ci__web-2"), find(t, p, "d (web-2)")
	want := Job{
		ID: JobID("run-1", "__bringup__ci__web-2"), Kind: ci.KindBringup, Name: "__bringup__ci__web-2", BaseName: "__bringup__ci__web-2",
		Selector: label.Selector{Labels: []string{"kici:capability:ssh-transport"}}, Pick: "deterministic", TimeoutMs: 300_000, Root: true,
		BringsUp: "web-2", VariantLabel: "web-2",
		Config: json.RawMessage(`{"bringupOnly":true,"bringupTarget":"web-2","workflowName":"ci","timeout":300000}`),
	}
	if diff := cmp.Diff(want, up); diff != "" {
		t.Error(diff)
	}
	if child.Selector.Pin != "web-2" || child.Root || child.Host.Name != "web-2" {
		t.Errorf("child %+v", child)
	}
	if diff := cmp.Diff([]ci.JobStatus{ci.JobSuccess, ci.JobSkipped}, p.Edges[0].RunOn); diff != "" {
		t.Errorf("ends of the bring-up that are good enough: %s", diff)
	}
}

func TestBringUpsCountAsJobs(t *testing.T) {
	in := input(workflow(t, job("d", bringsUp), job("e", bringsUp), job("f", "")))
	in.Roster, in.MaxJobs = []label.RosterHost{bareHost("web-1"), bareHost("web-2")}, 7
	if p := build(t, in); p.InitFailure != nil || len(p.Jobs) != 7 {
		t.Errorf("7 jobs are within the limit: %+v, %q", p.InitFailure, jobNamesOf(p.Jobs))
	}
	in.MaxJobs = 3
	if f := build(t, in).InitFailure; f == nil || !strings.HasPrefix(f.Message, "workflow 'ci' expands to ") {
		t.Errorf("a plan beyond the limit: %+v", f)
	}
}

func TestGeneratedJobsBringHostsUp(t *testing.T) {
	in := input(workflow(t, job("a", bringsUp), generatorEntry, job("b", `"needs":[{"group":"g"}]`)))
	in.Roster = []label.RosterHost{bareHost("web-1"), bareHost("web-2")}
	before := in
	before.Roster = in.Roster[:1]
	x, failure, err := Generate(in, known(build(t, before)), Generated{Generator: "__dynamic__ci__1", Jobs: json.RawMessage(`[{"_type":"static","name":"x","steps":[],` + bringsUp + `}]`)})
	if err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	if diff := cmp.Diff([]string{"x (web-1)", "__bringup__ci__web-2", "x (web-2)"}, jobNamesOf(x.Jobs)); diff != "" {
		t.Error(diff)
	}
	want := []string{"x (web-1) <- __bringup__ci__web-1", "x (web-2) <- __bringup__ci__web-2", "b <- x (web-1)", "b <- x (web-2)"}
	if diff := cmp.Diff(want, arrows(x.Edges)); diff != "" {
		t.Error(diff)
	}
	if up := x.Jobs[1]; up.Group != "" || up.DynamicSource != nil {
		t.Errorf("the bring-up counts as a member of the group: %+v", up)
	}
}

// TestAPlaceIsFilledAsThePlanWouldHave draws rosters, and requires that a job which an init job completes has the same
// children and bring-ups as one that could be planned at once.
func TestAPlaceIsFilledAsThePlanWouldHave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var roster []label.RosterHost
		for i := range rapid.IntRange(0, 5).Draw(t, "hosts") {
			h := liveHost(fmt.Sprint("web-", i))
			h.Uninitialized, h.Ephemeral = rapid.Bool().Draw(t, "bare"), rapid.Bool().Draw(t, "ephemeral")
			h.Connected = !h.Uninitialized && rapid.Bool().Draw(t, "connected")
			roster = append(roster, h)
		}
		members := bringsUp + `,"onUnreachable":"` + rapid.SampledFrom([]string{"hold", "skip", "fail"}).Draw(t, "policy") + `"`
		at := func(extra string) Input {
			in := input(parseWorkflow(t, `"jobs":[`+job("d", members+extra)+`]`))
			in.Roster, in.Now, in.RosterGrace = roster, rosterNow, time.Minute
			return in
		}
		whole := build(t, at(""))
		place := at(`,"dynamicEnv":true`)
		x, failure, err := Resolve(place, known(build(t, place)), "d", json.RawMessage(`{"env":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		if failure != nil {
			if whole.Jobs[0].InitFailure == nil || whole.Jobs[0].InitFailure.Message != failure.Message {
				t.Fatalf("the place fails with %+v, the plan made %q", failure, jobNamesOf(whole.Jobs))
			}
			return
		}
		if diff := cmp.Diff(jobNamesOf(whole.Jobs), jobNamesOf(x.Jobs)); diff != "" {
			t.Fatalf("jobs: %s", diff)
		}
		if diff := cmp.Diff(arrows(whole.Edges), arrows(x.Edges)); diff != "" {
			t.Fatalf("edges: %s", diff)
		}
		for _, j := range whole.Jobs {
			bare := j.Host != nil && slices.ContainsFunc(roster, func(h label.RosterHost) bool { return h.AgentID == j.Host.AgentID && h.Uninitialized })
			waits := slices.ContainsFunc(whole.Edges, func(e Edge) bool { return e.Job == j.Name && e.Upstream == ci.BringupJobName("ci", j.Selector.Pin) })
			if bare != waits || j.Root == waits {
				t.Fatalf("job %s: host without an agent %v, waits for a bring-up %v, root %v", j.Name, bare, waits, j.Root)
			}
		}
	})
}
