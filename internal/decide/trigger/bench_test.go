package trigger

import (
	"encoding/json"
	"fmt"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// BenchmarkMatch is a repository of 500 workflows, each for a part of its own, and a push that changes 1,000 files of
// which no part but the last ones takes any.
func BenchmarkMatch(b *testing.B) {
	ev := ci.Event{Type: "push", TargetBranch: "main", Payload: json.RawMessage(`{}`), SourceRepo: "acme/app"}
	for i := range 1000 {
		ev.ChangedFiles = append(ev.ChangedFiles, fmt.Sprintf("src/lib%d/server/handler_%d.ts", i%40, i))
	}
	own := func(i int) []string { return []string{fmt.Sprintf("services/app%d/**", i), "!**/*.md"} }
	for _, set := range []struct {
		name  string
		paths func(i int) []string
	}{
		{"every workflow its own folder, none hit", own},
		{"same extension everywhere, none hit", func(int) []string { return []string{"**/*.go", "go.mod"} }},
		{"every file taken, then excluded", func(int) []string { return []string{"src/**", "!**/*.ts"} }},
		{"own prefix in the changed folder", func(i int) []string { return []string{fmt.Sprintf("src/lib%d/**/*.go", i)} }},
		{"half hit", func(i int) []string {
			if i%2 == 0 {
				return []string{fmt.Sprintf("src/lib%d/**", i%40)}
			}
			return own(i)
		}},
	} {
		workflows := make([]lockfile.Workflow, 500)
		for i := range workflows {
			workflows[i] = lockfile.Workflow{Name: fmt.Sprint("w", i), Triggers: []lockfile.Trigger{
				{Type: "pr", Events: []string{"opened"}},
				{Type: "push", Branches: []lockfile.BranchPattern{{Type: "glob", Pattern: "main"}}, Paths: set.paths(i)},
			}}
		}
		b.Run(set.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m := NewMatcher(ev, Options{})
				for i := range workflows {
					if _, err := m.Match(workflows[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkJSONPathMap(b *testing.B) {
	document := map[string]any{"items": []any{}}
	for i := range 100 {
		document["items"] = append(document["items"].([]any), map[string]any{"n": float64(i), "k": fmt.Sprint(i)})
	}
	entry := lockfile.Member{Key: "$.items[?(@.n>98)].k", Value: json.RawMessage(`"99"`)}
	for b.Loop() {
		if ok, err := freshTrace().entryHolds(entry, document); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}
