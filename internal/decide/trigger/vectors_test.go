package trigger

import (
	"encoding/json"
	"errors"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
	"kici/internal/core/lockfile"
	"kici/internal/kit/regex"
	"kici/internal/vectors"
)

type matchInput struct {
	Triggers []lockfile.Trigger
	Event    json.RawMessage
}

func TestVectorsMatch(t *testing.T) {
	for _, c := range vectors.LoadKind(t, "triggers.json", "match") {
		t.Run(c.Name, func(t *testing.T) { matchVector(t, c) })
	}
}

func matchVector(t *testing.T, c vectors.Case) {
	var in matchInput
	vectors.Decode(t, c.Input, &in)
	var ev ci.Event
	vectors.Decode(t, in.Event, &ev)
	d, err := Match(lockfile.Workflow{Name: "w", Triggers: in.Triggers}, ev, Options{})
	var failed struct{ Error string }
	vectors.Decode(t, c.Expected, &failed)
	if failed.Error == "" && err == nil {
		vectors.Same(t, c.Expected, d)
		return
	}
	var syntax *regex.SyntaxError
	kinds := map[string]bool{"SyntaxError": errors.As(err, &syntax), "TypeError": errors.Is(err, glob.ErrEmpty)}
	var pattern *PatternError
	if !kinds[failed.Error] || !errors.As(err, &pattern) || pattern.Workflow != "w" {
		t.Errorf("%v, want %s", err, c.Expected)
	}
}

func TestVectorsPathFilters(t *testing.T) {
	for _, c := range vectors.LoadKind(t, "triggers.json", "pathFilters") {
		var in struct {
			Args [1][]struct{ Triggers []lockfile.Trigger }
		}
		vectors.Decode(t, c.Input, &in)
		var workflows []lockfile.Workflow
		for _, w := range in.Args[0] {
			workflows = append(workflows, lockfile.Workflow{Triggers: w.Triggers})
		}
		t.Run(c.Name, func(t *testing.T) { vectors.Same(t, c.Expected, WantsChangedFiles(workflows)) })
	}
}

// globVector checks the cases of one kind; run gives what the trace says of the input.
func globVector[T any](t *testing.T, kind string, run func(tr *trace, in T) bool) {
	for _, c := range vectors.LoadKind(t, "globs.json", kind) {
		t.Run(c.Name, func(t *testing.T) {
			var in T
			var want bool
			vectors.Decode(t, c.Input, &in)
			vectors.Decode(t, c.Expected, &want)
			tr := freshTrace()
			if got := run(tr, in); got != want || tr.err != nil {
				t.Errorf("%v, %v; want %v", got, tr.err, want)
			}
		})
	}
}

func TestVectorsBranches(t *testing.T) {
	type input struct {
		Pattern lockfile.BranchPattern
		Value   string
	}
	globVector(t, "branch", func(tr *trace, in input) bool {
		return tr.names("branch", []lockfile.BranchPattern{in.Pattern}, said(in.Value))
	})
}

func TestVectorsPaths(t *testing.T) {
	type input struct{ Patterns, Files []string }
	globVector(t, "paths", func(tr *trace, in input) bool {
		tr.matcher = NewMatcher(ci.Event{ChangedFiles: in.Files}, Options{})
		return tr.paths(in.Patterns)
	})
}

func TestVectorsRepos(t *testing.T) {
	type input struct {
		Repos []lockfile.BranchPattern
		Repo  string
	}
	globVector(t, "repos", func(tr *trace, in input) bool {
		tr.matcher = NewMatcher(ci.Event{SourceRepo: in.Repo}, Options{})
		return tr.repos(in.Repos)
	})
}
