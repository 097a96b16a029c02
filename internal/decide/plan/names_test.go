package plan

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
)

// long is a name that is stored cut.
var long = strings.Repeat("n", 140)

// requireStorable wants of every job a name that is stored as it is, and no other job's.
func requireStorable(t *testing.T, jobs []Job) {
	t.Helper()
	seen := map[string]bool{}
	for _, j := range jobs {
		if seen[j.Name] || utf8.RuneCountInString(j.Name) > ci.MaxName || j.Name != ci.CutName(j.Name) || j.BaseName != ci.CutName(j.BaseName) {
			t.Errorf("job %q of %q", j.Name, j.BaseName)
		}
		seen[j.Name] = true
	}
}

func TestLongMatrixValuesMakeDifferentNames(t *testing.T) {
	p := build(t, input(workflow(t, job("t", `"matrix":{"_type":"static","values":["`+long+`1","`+long+`2","`+long+`3"]}`), job("after", `"needs":["t"]`))))
	requireStorable(t, p.Jobs)
	if len(p.Jobs) != 4 || len(p.Edges) != 3 || !strings.HasSuffix(p.Jobs[2].Name, "n #3") {
		t.Errorf("jobs %q, edges %q", jobNamesOf(p.Jobs), arrows(p.Edges))
	}
}

func TestALongJobNameIsTheAuthorsForAgentsAlone(t *testing.T) {
	in := input(workflow(t, job(long, linux+`,"matrix":{"_type":"dynamic"}`), job("after", `"needs":["`+long+`"]`)))
	p := build(t, in)
	requireStorable(t, p.Jobs)
	cut := ci.CutName(long)
	if diff := cmp.Diff([]string{"after <- " + cut}, arrows(p.Edges)); diff != "" {
		t.Error(diff)
	}
	if p.Jobs[0].Target != cut || !strings.Contains(string(p.Jobs[0].Config), `"targetJobName":"`+long+`"`) {
		t.Errorf("init job for %q: %s", p.Jobs[0].Target, p.Jobs[0].Config)
	}
	x, failure, err := Resolve(in, known(p), cut, json.RawMessage(`{"matrixValues":[{"v":"1"},{"v":"2"}]}`))
	if err != nil || failure != nil || len(x.Jobs) != 2 {
		t.Fatalf("%+v, %+v, %v", x, failure, err)
	}
	requireStorable(t, x.Jobs)
	if !strings.Contains(string(x.Jobs[0].Config), `"baseJobName":"`+long+`"`) {
		t.Errorf("configuration %s", x.Jobs[0].Config)
	}
}

func TestNamesThatAreOneOnceTheyAreStoredAreRefused(t *testing.T) {
	for _, names := range [][2]string{{long + "1", long + "2"}, {"a\uFFFD", `a\u0000`}} {
		w := workflow(t, strings.Replace(job("FIRST", ""), "FIRST", names[0], 1), strings.Replace(job("SECOND", ""), "SECOND", names[1], 1))
		p := build(t, input(w))
		if p.InitFailure == nil || !strings.HasPrefix(p.InitFailure.Message, "workflow 'ci' has two jobs called '") {
			t.Errorf("%q: %+v", names, p.InitFailure)
		}
	}
}

func TestAGeneratorOfALongWorkflowGivesJobsOfLongNames(t *testing.T) {
	const generator = `{"_type":"dynamic","source":{"file":".kici/workflows/ci.ts","index":0},"group":"g"}`
	w := workflow(t, generator, generator, job("after", `"needs":[{"group":"g"}]`))
	w.Name = long
	in := input(w)
	p := build(t, in)
	requireStorable(t, p.Jobs)
	x, failure, err := Generate(in, known(p), Generated{Generator: p.Jobs[1].Name, Snapshot: json.RawMessage(`{}`),
		Jobs: json.RawMessage(`[` + job("first"+long, linux) + `,` + job("b", linux+`,"needs":["first`+long+`"]`) + `]`)})
	if err != nil || failure != nil {
		t.Fatal(failure, err)
	}
	requireStorable(t, x.Jobs)
	cut := ci.CutName("first" + long)
	if diff := cmp.Diff([]string{"b <- " + cut, "after <- " + cut, "after <- b"}, arrows(x.Edges)); diff != "" {
		t.Error(diff)
	}
	var source struct{ ExpectedJobNames []string }
	if err := json.Unmarshal(x.Jobs[0].DynamicSource, &source); err != nil || source.ExpectedJobNames[0] != "first"+long {
		t.Errorf("source %s, %v", x.Jobs[0].DynamicSource, err)
	}
}
