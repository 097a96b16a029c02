package contexts

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
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

func TestVectorsEnvMerge(t *testing.T) {
	checks := map[string]func(*testing.T, vectors.SuiteCase){
		"jobContextNames": checkNames,
	}
	for _, c := range vectors.LoadSuite(t, "env-merge.json") {
		check := checks[c.Fn]
		if check != nil { // the planner evaluates inline fields
			t.Run(c.Fn+"/"+c.ID, func(t *testing.T) { check(t, c) })
		}
	}
}

func checkNames(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Elements    json.RawMessage
		InlineNames []*string
	}](t, c.Input)
	want := decode[struct {
		Names, Display []string
		NeedsInit      bool
	}](t, c.Expected)
	got := NamesOf(elements(t, in.Elements), in.InlineNames)
	if diff := cmp.Diff(Names{want.Names, want.Display, want.NeedsInit}, got); diff != "" {
		t.Error(diff)
	}
}

// elements reads a job's contexts as the lock file's own reader does.
func elements(t *testing.T, raw json.RawMessage) []lockfile.ContextRef {
	t.Helper()
	f, err := lockfile.Load([]byte(`{"schemaVersion":29,"source":{"file":"ci.ts","export":"#ci"},"workflows":[{"name":"ci",`+
		`"contentHash":"c0ffee","compileSchemaVersion":5,"triggers":[],"jobs":[{"_type":"static","name":"j","steps":[],`+
		`"contexts":`+string(raw)+`}]}]}`), "acme/app", "main")
	if err != nil {
		t.Fatal(err)
	}
	return f.Workflows[0].Jobs[0].Environments
}
