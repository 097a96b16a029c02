package lifecycle

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/vectors"
)

// decode reads a vector's input or expectation.
func decode[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
	return v
}

func TestVectorsRunAggregation(t *testing.T) {
	for fn, check := range map[string]func(*testing.T, vectors.SuiteCase){
		"foldRun": checkFold, "failureCategory": checkFailureCategory, "upstreamOutputs": checkUpstreamOutputs,
		"upstreamStatuses": checkUpstreamStatuses,
	} {
		for _, c := range vectors.LoadFunction(t, "run-aggregation.json", fn) {
			t.Run(fn+"/"+c.ID, func(t *testing.T) { check(t, c) })
		}
	}
}

func checkFold(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Jobs          []Summary
		CheckMode     string
		DriftDetected bool
	}](t, c.Input)
	want := decode[struct {
		Complete    bool
		Status      *ci.RunStatus
		Description *string
	}](t, c.Expected)
	status, reason, done := Fold(in.Jobs, in.CheckMode, in.DriftDetected)
	if done != want.Complete {
		t.Fatalf("done = %v, want %v", done, want.Complete)
	}
	if done && status != *want.Status {
		t.Errorf("status %s, want %s", status, *want.Status)
	}
	switch {
	case want.Description == nil && reason != nil:
		t.Errorf("reason %q, want none", reason.Message)
	case want.Description != nil && (reason == nil || reason.Message != *want.Description):
		t.Errorf("reason %v, want %q", reason, *want.Description)
	}
}

func checkFailureCategory(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		RunStatus           ci.RunStatus
		HasInitFailure      bool
		InitFailureCategory string
		TimedOut            bool
		AnyStepNonZeroExit  bool
	}](t, c.Input)
	var init *ci.InitFailure
	if in.HasInitFailure {
		init = &ci.InitFailure{Category: in.InitFailureCategory}
	}
	want := decode[string](t, c.Expected) // null reads as ""
	if got := ci.FailureCategory(in.RunStatus, init, in.TimedOut, in.AnyStepNonZeroExit); got != want {
		t.Errorf("category %q, want %q", got, want)
	}
}

// jobRow is a stored job as the vectors write it.
type jobRow struct {
	Name    string          `json:"job_name"`
	Outputs json.RawMessage `json:"outputs"`
	Kind    ci.VariantKind  `json:"variant_kind"`
	Label   string          `json:"variant_label"`
	Status  ci.JobStatus    `json:"status"`
}

func upstreams(rows []jobRow) []Upstream {
	var out []Upstream
	for _, r := range rows {
		base, _, _ := strings.Cut(r.Name, " (")
		u := Upstream{Name: r.Name, Base: base, Kind: r.Kind, Label: r.Label, Status: r.Status}
		var text string
		switch {
		case bytes.Equal(r.Outputs, []byte("null")):
		case json.Unmarshal(r.Outputs, &text) == nil: // a text holding the document
			u.Outputs = json.RawMessage(text)
		default:
			u.Outputs = r.Outputs
		}
		out = append(out, u)
	}
	return out
}

func checkUpstreamOutputs(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		BaseNames []string
		Rows      []jobRow
	}](t, c.Input)
	got, err := UpstreamOutputs(in.BaseNames, upstreams(in.Rows))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode[any](t, c.Expected), decode[any](t, raw)); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

func checkUpstreamStatuses(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct{ Rows []jobRow }](t, c.Input)
	want := decode[map[string]ci.JobStatus](t, c.Expected)
	if diff := cmp.Diff(want, UpstreamStatuses(upstreams(in.Rows), true)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// vectorJob and vectorEdge are the scheduler vectors' rows.
type vectorJob struct {
	Name     string
	Status   ci.JobStatus
	Label    string
	Gated    bool
	Max      int
	FailFast bool
}

type vectorEdge struct {
	Job, Upstream string
	RunOn         []ci.JobStatus
}

func TestVectorsNeedsScheduler(t *testing.T) {
	for _, c := range vectors.LoadSuite(t, "needs-scheduler.json") {
		t.Run(c.Fn+"/"+c.ID, func(t *testing.T) {
			switch c.Fn {
			case "evaluateDownstreams":
				checkDownstreams(t, c)
			case "evaluateWave":
				checkWave(t, c)
			case "recompute":
				checkRecompute(t, c)
			case "stuckJobs":
				checkStuck(t, c)
			case "propagationTargets":
				checkPropagation(t, c)
			case "resolveGroup":
				checkGroup(t, c)
			case "materialize", "materializeHosts", "materializeResolvedMatrix", "wavePlan", "insertEdges":
				// Planning decides these: package plan.
			default:
				t.Fatalf("unknown function %s", c.Fn)
			}
		})
	}
}

func checkDownstreams(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Jobs      []vectorJob
		Edges     []vectorEdge
		Completed vectorJob
	}](t, c.Input)
	want := decode[struct {
		Results []struct{ JobName, Action, Reason string }
		// Satisfied are the jobs whose needs became met.
		Satisfied []string
	}](t, c.Expected)

	status := map[string]ci.JobStatus{}
	for _, j := range in.Jobs {
		status[j.Name] = j.Status
	}
	a := Aftermath{Job: Job{ID: in.Completed.Name, Name: in.Completed.Name, Status: in.Completed.Status}}
	for _, e := range in.Edges {
		if e.Upstream != in.Completed.Name || slices.ContainsFunc(a.Dependants, func(d Dependant) bool { return d.Job.ID == e.Job }) {
			continue
		}
		d := Dependant{Job: Job{ID: e.Job, Name: e.Job, Status: status[e.Job]}}
		for _, f := range in.Edges {
			if f.Job == e.Job {
				d.Edges = append(d.Edges, Edge{Upstream: f.Upstream, Status: status[f.Upstream], RunOn: f.RunOn})
			}
		}
		a.Dependants = append(a.Dependants, d)
	}
	o := Ended(a, 1)

	var satisfied []string
	got := map[string]string{}
	for _, j := range o.Jobs {
		switch {
		case j.Satisfied:
			satisfied = append(satisfied, j.JobID)
			got[j.JobID] = "dispatch"
		case j.Status == ci.JobSkipped:
			got[j.JobID] = "skip " + j.Reason.Message
		}
	}
	slices.Sort(satisfied)
	if diff := cmp.Diff(append([]string{}, want.Satisfied...), append([]string{}, satisfied...)); diff != "" {
		t.Errorf("satisfied (-want +got):\n%s", diff)
	}
	wanted := map[string]string{}
	for _, r := range want.Results {
		wanted[r.JobName] = strings.TrimSpace(r.Action + " " + r.Reason)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// family is the jobs and edges of a vector. An upstream that has no row counts as open.
type family struct {
	Jobs  []vectorJob
	Edges []vectorEdge
}

func (f family) dependants(names []string) (out []Dependant) {
	status := map[string]ci.JobStatus{}
	for _, j := range f.Jobs {
		status[j.Name] = j.Status
	}
	for _, name := range names {
		d := Dependant{Job: Job{ID: name, Name: name, Status: status[name]}}
		for _, e := range f.Edges {
			if e.Job == name {
				d.Edges = append(d.Edges, Edge{Upstream: e.Upstream, Status: status[e.Upstream], RunOn: e.RunOn})
			}
		}
		out = append(out, d)
	}
	return out
}

// judged is what an outcome says of jobs, in the words of the vectors.
func judged(o Outcome) (results map[string]string, satisfied []string) {
	results, satisfied = map[string]string{}, []string{}
	for _, j := range o.Jobs {
		switch {
		case j.Satisfied:
			satisfied = append(satisfied, j.JobID)
			results[j.JobID] = "dispatch"
		case j.Status == ci.JobSkipped:
			results[j.JobID] = "skip " + j.Reason.Message
		}
	}
	slices.Sort(satisfied)
	return results, satisfied
}

func checkRecompute(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		family
		Names []string
	}](t, c.Input)
	want := decode[struct {
		Results   []struct{ JobName, Action, Reason string }
		Satisfied []string
	}](t, c.Expected)
	results, satisfied := judged(Recompute(in.dependants(in.Names), 1))
	wanted := map[string]string{}
	for _, r := range want.Results {
		wanted[r.JobName] = strings.TrimSpace(r.Action + " " + r.Reason)
	}
	if diff := cmp.Diff(wanted, results) + cmp.Diff(want.Satisfied, satisfied); diff != "" {
		t.Error(diff)
	}
}

func checkStuck(t *testing.T, c vectors.SuiteCase) {
	in := decode[family](t, c.Input)
	stuck := []string{}
	for _, j := range in.Jobs {
		if Stuck(in.dependants([]string{j.Name})[0]) {
			stuck = append(stuck, j.Name)
		}
	}
	if diff := cmp.Diff(decode[[]string](t, c.Expected), stuck); diff != "" {
		t.Error(diff)
	}
}

// checkPropagation skips the job that the vector starts from and lets the skips spread, nothing having ended before.
func checkPropagation(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		family
		From string
	}](t, c.Input)
	f := family{Jobs: []vectorJob{{Name: in.From, Status: ci.JobSkipped}}, Edges: in.Edges}
	for _, j := range in.Jobs {
		if j.Name != in.From {
			f.Jobs = append(f.Jobs, vectorJob{Name: j.Name, Status: ci.JobPending})
		}
	}
	skipped := []string{}
	for again := true; again; {
		again = false
		for i, j := range f.Jobs {
			o := Recompute(f.dependants([]string{j.Name}), 1)
			if len(f.dependants([]string{j.Name})[0].Edges) > 0 && len(o.Ended) > 0 {
				f.Jobs[i].Status = ci.JobSkipped
				skipped, again = append(skipped, j.Name), true
			}
		}
	}
	slices.Sort(skipped)
	if diff := cmp.Diff(decode[[]string](t, c.Expected), skipped); diff != "" {
		t.Error(diff)
	}
}

// checkGroup covers who is satisfied once a group's members are known; package plan draws the edges.
func checkGroup(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		family
		Dependents []struct{ JobName string }
	}](t, c.Input)
	want := decode[struct {
		Edges     []vectorEdge
		Satisfied []string
	}](t, c.Expected)
	in.Edges = append(in.Edges, want.Edges...)
	var names []string
	for _, d := range in.Dependents {
		names = append(names, d.JobName)
	}
	if _, satisfied := judged(Recompute(in.dependants(names), 1)); cmp.Diff(want.Satisfied, satisfied) != "" {
		t.Error(cmp.Diff(want.Satisfied, satisfied))
	}
}

func checkWave(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Children        []vectorJob
		CompletedStatus ci.JobStatus
	}](t, c.Input)
	want := decode[struct {
		Action, JobName string
		JobNames        []string
	}](t, c.Expected)
	a := Aftermath{Job: Job{ID: "the one that ended", Status: in.CompletedStatus}}
	for _, v := range in.Children {
		wave := Wave{Gated: v.Gated, MaxParallel: v.Max, FailFast: v.FailFast, Label: v.Label}
		a.Siblings = append(a.Siblings, Job{ID: v.Name, Name: v.Name, Status: v.Status, NeedsSatisfied: true, Wave: wave})
		a.Job.Wave = wave
	}
	o := Ended(a, 1)
	var released, skipped []string
	for _, j := range o.Jobs {
		if j.Release {
			released = append(released, j.JobID)
		} else if j.Status == ci.JobSkipped {
			skipped = append(skipped, j.JobID)
		}
	}
	wantReleased := []string{}
	if want.Action == "release" {
		wantReleased = append(wantReleased, want.JobName)
	}
	if diff := cmp.Diff(wantReleased, append([]string{}, released...)); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append([]string{}, want.JobNames...), append([]string{}, skipped...)); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
}
