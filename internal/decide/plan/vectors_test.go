package plan

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/kit/jsontree"
	"kici/internal/vectors"
)

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
}

// lockJob reads a job of a vector, which may lack its type.
func lockJob(t *testing.T, raw json.RawMessage) lockfile.Job {
	t.Helper()
	j, err := lockfile.DecodeJob(append([]byte(`{"_type":"static",`), raw[1:]...), "wf")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// compact is a JSON text with the order of its keys kept and nothing else.
func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	out, err := jsontree.Stringify(raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestVectorsMatrix(t *testing.T) {
	for _, c := range vectors.Load(t, "matrix.json") {
		var in struct {
			Fn   string
			Args []json.RawMessage
		}
		decode(t, c.Input, &in)
		switch in.Fn {
		case "flatten", "memory", "resources", "when": // the lock file's own tests, and the author's compiler
			continue
		case "fanout", "resolvedMatrix", "hosts", "fanoutCount":
			t.Run(c.Name, func(t *testing.T) { fanoutVector(t, in.Fn, in.Args, c.Expected) })
		default:
			t.Run(c.Name, func(t *testing.T) {
				if got, want := compact(t, marshal(t, matrixCall(t, in.Fn, in.Args))), compact(t, c.Expected); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			})
		}
	}
}

func matrixCall(t *testing.T, fn string, args []json.RawMessage) any {
	pairs := func(i int) (list []lockfile.Pairs) { decode(t, args[i], &list); return list }
	switch fn {
	case "expand":
		j := lockJob(t, json.RawMessage(`{"name":"j","matrix":{"_type":"static","values":`+string(args[0])+`}}`))
		return append([]lockfile.Pairs{}, expand(*j.Matrix)...)
	case "incexc":
		return append([]lockfile.Pairs{}, adjust(pairs(0), pairs(1), pairs(2))...)
	case "suffix":
		var combo lockfile.Pairs
		decode(t, args[0], &combo)
		return suffix(combo)
	case "name":
		var base string
		var combo lockfile.Pairs
		decode(t, args[0], &base)
		decode(t, args[1], &combo)
		return childName(base, suffix(combo))
	}
	t.Fatalf("unknown function %q", fn)
	return nil
}

// vectorChild is what vectors say about a materialised child, beside the reference's own envelope.
type vectorChild struct {
	BaseName, ExpandedName, VariantKind string
	VariantValues                       json.RawMessage
	FanoutIndex, FanoutTotal            int
	Envelope                            struct{ PinnedAgentID string }
}

func fanoutVector(t *testing.T, fn string, args []json.RawMessage, expected json.RawMessage) {
	var children []Child
	var err error
	var bases []string
	switch fn {
	case "fanout":
		var jobs []json.RawMessage
		decode(t, args[0], &jobs)
		for _, raw := range jobs {
			j := lockJob(t, raw)
			var c []Child
			if c, err = FanOut(j); err != nil {
				break
			}
			children = append(children, c...)
			bases = append(bases, slices.Repeat([]string{j.Name}, len(c))...)
		}
	case "resolvedMatrix":
		var combos []lockfile.Pairs
		decode(t, args[1], &combos)
		children, err = FanOutResolved(lockJob(t, args[0]).Name, combos)
	case "hosts":
		var limit int
		decode(t, args[2], &limit)
		children, err = FanOutHosts(lockJob(t, args[0]).Name, vectorHosts(t, args[1]), limit)
	case "fanoutCount":
		children, err = FanOut(counted(t, args[0]))
	}
	var want struct {
		Error, Message string
		Count          int
		Jobs           []vectorChild
	}
	decode(t, expected, &want)
	if want.Error != "" {
		var f *FanoutError
		if !errors.As(err, &f) || f.Message != want.Message {
			t.Errorf("error %v, want %s", err, want.Message)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if fn == "fanoutCount" {
		if len(children) != want.Count {
			t.Errorf("%d children, want %d", len(children), want.Count)
		}
		return
	}
	compareChildren(t, children, want.Jobs)
	for i, b := range bases {
		if want.Jobs[i].BaseName != b {
			t.Errorf("child %d is of %s, want %s", i, b, want.Jobs[i].BaseName)
		}
	}
}

func vectorHosts(t *testing.T, raw json.RawMessage) []Host {
	var list []struct {
		AgentID, Host string
		Labels        []string
	}
	decode(t, raw, &list)
	var hosts []Host
	for _, h := range list {
		hosts = append(hosts, Host{AgentID: h.AgentID, Name: h.Host, Labels: h.Labels})
	}
	return hosts
}

func counted(t *testing.T, raw json.RawMessage) lockfile.Job {
	var sizes map[string]int
	decode(t, raw, &sizes)
	m := &lockfile.Matrix{Type: "static", HasValues: true}
	for name, n := range sizes {
		d := lockfile.Dimension{Name: name}
		for i := range n {
			d.Values = append(d.Values, strconv.Itoa(i))
		}
		m.Dimensions = append(m.Dimensions, d)
	}
	return lockfile.Job{Name: "j", Matrix: m}
}

func compareChildren(t *testing.T, got []Child, want []vectorChild) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d children, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Name != w.ExpandedName || g.VariantKind != w.VariantKind || g.Index != w.FanoutIndex || g.Total != w.FanoutTotal {
			t.Errorf("child %d is %+v, want %+v", i, g, w)
		}
		if w.VariantValues != nil && string(marshal(t, g.Values)) != compact(t, w.VariantValues) {
			t.Errorf("child %d has values %s, want %s", i, marshal(t, g.Values), w.VariantValues)
		}
		if g.Host != nil && w.Envelope.PinnedAgentID != "" && g.Host.AgentID != w.Envelope.PinnedAgentID {
			t.Errorf("child %d is for agent %s, want %s", i, g.Host.AgentID, w.Envelope.PinnedAgentID)
		}
	}
}

func TestVectorsNeedsScheduler(t *testing.T) {
	for _, c := range vectors.LoadSuite(t, "needs-scheduler.json") {
		t.Run(c.ID, func(t *testing.T) {
			switch c.Fn {
			case "materialize", "materializeHosts", "materializeResolvedMatrix":
				materializeVector(t, c)
			case "wavePlan":
				waveVector(t, c)
			case "insertEdges":
				edgesVector(t, c)
			case "resolveGroup":
				groupVector(t, c)
			case "evaluateDownstreams", "recompute", "stuckJobs", "propagationTargets", "evaluateWave":
				// Decided while the run lives: package lifecycle.
			default:
				t.Fatalf("unknown function %s", c.Fn)
			}
		})
	}
}

func materializeVector(t *testing.T, c vectors.SuiteCase) {
	var in struct {
		Jobs     []json.RawMessage
		Job      string
		Hosts    json.RawMessage
		Combos   []lockfile.Pairs
		MaxHosts int
	}
	decode(t, c.Input, &in)
	var children []Child
	var err error
	switch c.Fn {
	case "materialize":
		for _, raw := range in.Jobs {
			var more []Child
			if more, err = FanOut(lockJob(t, raw)); err != nil {
				break
			}
			children = append(children, more...)
		}
	case "materializeHosts":
		children, err = FanOutHosts(in.Job, vectorHosts(t, in.Hosts), in.MaxHosts)
	case "materializeResolvedMatrix":
		children, err = FanOutResolved(in.Job, in.Combos)
	}
	if c.Error != "" {
		if err == nil || "error: "+err.Error() != c.Error {
			t.Errorf("error %v, want %s", err, c.Error)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Jobs []struct {
			Name, VariantKind, PinnedAgentID string
			Values                           json.RawMessage
			Index, Total                     int
		}
	}
	decode(t, c.Expected, &want)
	var shaped []vectorChild
	for _, w := range want.Jobs {
		v := vectorChild{ExpandedName: w.Name, VariantKind: w.VariantKind, VariantValues: w.Values, FanoutIndex: w.Index, FanoutTotal: w.Total}
		v.Envelope.PinnedAgentID = w.PinnedAgentID
		shaped = append(shaped, v)
	}
	compareChildren(t, children, shaped)
}

func waveVector(t *testing.T, c vectors.SuiteCase) {
	var in struct {
		Children []struct {
			Name        string
			Index       *int
			MaxParallel int
			FailFast    bool
		}
	}
	decode(t, c.Input, &in)
	children := make([]Child, len(in.Children))
	names := make([]string, len(in.Children))
	for i, v := range in.Children {
		children[i].Name, names[i] = v.Name, v.Name
	}
	rank(children, names) // without an index the order of names counts
	for i, v := range in.Children {
		if v.Index != nil {
			children[i].Index = *v.Index
		}
	}
	type policy struct {
		MaxParallel int  `json:"maxParallel"`
		FailFast    bool `json:"failFast"`
	}
	var want struct {
		Held   []string
		Policy map[string]policy
	}
	decode(t, c.Expected, &want)
	held, policies := []string{}, map[string]policy{}
	for i, w := range wavePlan(children, in.Children[0].MaxParallel, in.Children[0].FailFast) {
		if w.gated {
			held = append(held, names[i])
		}
		if w.maxParallel > 0 {
			policies[names[i]] = policy{w.maxParallel, w.failFast}
		}
	}
	slices.Sort(held)
	if diff := cmp.Diff(want.Held, held) + cmp.Diff(want.Policy, policies); diff != "" {
		t.Error(diff)
	}
}

type vectorEdge struct {
	Job, Upstream string
	RunOn         []ci.JobStatus
}

func compareEdges(t *testing.T, got []Edge, want []vectorEdge) {
	t.Helper()
	shaped := []vectorEdge{}
	for _, e := range got {
		shaped = append(shaped, vectorEdge{e.Job, e.Upstream, e.RunOn})
	}
	if diff := cmp.Diff(want, shaped); diff != "" {
		t.Error(diff)
	}
}

func edgesVector(t *testing.T, c vectors.SuiteCase) {
	var in struct {
		Jobs         []json.RawMessage
		ExpansionMap map[string][]string
	}
	decode(t, c.Input, &in)
	var dependants []dependant
	var jobs []Job
	for _, raw := range in.Jobs {
		var name struct{ ExpandedName string }
		decode(t, raw, &name)
		j := lockJob(t, raw)
		dependants = append(dependants, dependant{name: name.ExpandedName, needs: j.Needs, groups: j.DependsOnGroups})
		jobs = append(jobs, Job{Name: name.ExpandedName})
	}
	var want struct {
		Edges []vectorEdge
		Roots []string
	}
	decode(t, c.Expected, &want)
	got := edges(dependants, in.ExpansionMap)
	compareEdges(t, got, want.Edges)
	markRoots(jobs, dependants, got)
	roots := []string{}
	for _, j := range jobs {
		if j.Root {
			roots = append(roots, j.Name)
		}
	}
	slices.Sort(roots)
	if diff := cmp.Diff(want.Roots, roots); diff != "" {
		t.Error(diff)
	}
}

// groupVector covers the edges of a resolved group; who is satisfied then is decided when the run lives.
func groupVector(t *testing.T, c vectors.SuiteCase) {
	var in struct {
		Group      string
		Members    []string
		Dependents []struct {
			JobName string
			RunOn   []string
		}
	}
	decode(t, c.Input, &in)
	var dependants []dependant
	for _, d := range in.Dependents {
		dependants = append(dependants, dependant{name: d.JobName, needs: []lockfile.NeedsEntry{{Group: in.Group, RunOn: d.RunOn}}})
	}
	var want struct{ Edges []vectorEdge }
	decode(t, c.Expected, &want)
	compareEdges(t, edges(dependants, map[string][]string{group(in.Group): in.Members}), want.Edges)
}
