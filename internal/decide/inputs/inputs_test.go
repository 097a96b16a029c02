package inputs

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
	"kici/internal/vectors"
)

func TestVectorsInputs(t *testing.T) {
	for _, c := range vectors.Load(t, "inputs.json") {
		t.Run(c.Name, func(t *testing.T) { inputsVector(t, c) })
	}
}

func inputsVector(t *testing.T, c vectors.Case) {
	var in struct {
		Fn    string
		Map   lockfile.Inputs
		Raw   lockfile.Ordered
		Pairs []string
	}
	vectors.Decode(t, c.Input, &in)
	switch in.Fn {
	case "coerce":
		var raw []Given
		for _, m := range in.Raw {
			var s string
			vectors.Decode(t, m.Value, &s)
			raw = append(raw, Given{m.Key, s})
		}
		values, issues := Coerce(in.Map, raw)
		sameResult(t, c.Expected, values, issues)
	case "schedule":
		values, issues := OfSchedule(in.Map)
		if values == nil { // written as null, not as an empty object
			sameResult(t, c.Expected, nil, issues)
			return
		}
		sameResult(t, c.Expected, values, issues)
	case "pairs":
		pairs, issues := ParsePairs(in.Pairs)
		all := map[string]string{}
		for _, p := range pairs {
			all[p.Key] = p.Value
		}
		sameResult(t, c.Expected, all, issues)
	case "scheduleDeclared":
		got := map[string]any{"ok": true}
		if err := CheckSchedule(in.Map); err != nil {
			got = map[string]any{"ok": false, "message": err.Error()}
		}
		vectors.Same(t, c.Expected, got)
	default:
		t.Fatalf("unknown function %q", in.Fn)
	}
}

// sameResult compares values, or the keys and codes of issues.
func sameResult(t *testing.T, want json.RawMessage, values any, issues []Issue) {
	t.Helper()
	if len(issues) == 0 {
		vectors.Same(t, want, map[string]any{"values": values})
		return
	}
	short := []map[string]string{}
	for _, i := range issues {
		short = append(short, map[string]string{"key": i.Key, "code": i.Code})
	}
	vectors.Same(t, want, map[string]any{"issues": short})
}

// Values come in the order of declaration, which comparing JSON objects does not see.
func TestCoerceKeepsTheOrderOfDeclaration(t *testing.T) {
	def := func(name string) lockfile.Input { return lockfile.Input{Name: name, Type: "string"} }
	got, issues := Coerce(lockfile.Inputs{def("z"), def("a")}, []Given{{"a", "<1>"}, {"z", "2"}})
	want := lockfile.Ordered{{Key: "z", Value: []byte(`"2"`)}, {Key: "a", Value: []byte(`"<1>"`)}}
	if diff := cmp.Diff(want, got); diff != "" || issues != nil {
		t.Errorf("%v (-want +got):\n%s", issues, diff)
	}
}

func TestMergedDispatchInputs(t *testing.T) {
	var w struct{ Triggers json.RawMessage }
	w.Triggers = json.RawMessage(`[{"_type":"dispatch","types":[],"inputs":{"a":{"type":"string"},"b":{"type":"number"}}},
		{"_type":"push"},{"_type":"dispatch","types":[],"inputs":{"a":{"type":"boolean"},"c":{"type":"enum","values":["x"]}}}]`)
	var wf lockfile.Workflow
	vectors.Decode(t, w.Triggers, &wf.Triggers)
	var got []string
	for _, d := range OfDispatch(wf) {
		got = append(got, d.Name+" "+d.Type)
	}
	if diff := cmp.Diff([]string{"a boolean", "b number", "c enum"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInputErrorNamesEveryInput(t *testing.T) {
	err := &Error{Issues: []Issue{{"a", IssueType, "required"}, {"b", IssueValue, "expected true or false"}}}
	if got := err.Error(); got != "Invalid dispatch inputs: a: required; b: expected true or false" {
		t.Error(got)
	}
}
