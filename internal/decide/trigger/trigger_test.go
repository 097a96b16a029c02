package trigger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
	"kici/internal/core/jsonpath"
	"kici/internal/core/lockfile"
	"kici/internal/kit/regex"
	"kici/internal/vectors"
)

func workflow(triggers ...lockfile.Trigger) lockfile.Workflow {
	return lockfile.Workflow{Name: "ci", Triggers: triggers}
}

func freshTrace() *trace { return &trace{matcher: NewMatcher(ci.Event{}, Options{})} }

func matches(t *testing.T, w lockfile.Trigger, ev ci.Event, opts Options) bool {
	t.Helper()
	d, err := Match(workflow(w), ev, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d.Matched
}

func TestUnavailableChangedFilesPassPathFilters(t *testing.T) {
	w := lockfile.Trigger{Type: "push", Paths: []string{"src/**", "!docs/**"}}
	ev := ci.Event{Type: "push", TargetBranch: "new", ChangedFilesStatus: ci.FilesUnavailable}
	d, err := Match(workflow(w), ev, Options{})
	if err != nil || !d.Matched || d.Checks[1].Reason != "changed files unavailable" {
		t.Errorf("%+v, %v", d, err)
	}
	ev.ChangedFilesStatus = ci.FilesFetched
	if matches(t, w, ev, Options{}) {
		t.Error("a fetched, empty list passes")
	}
}

func TestGenericSourceIsNotWhatTheSenderSays(t *testing.T) {
	w := lockfile.Trigger{
		Type: "generic_webhook", Source: "argocd", Events: []string{"sync"},
		Match: lockfile.Ordered{{Key: "$.source", Value: []byte(`"argocd"`)}},
	}
	ev := ci.Event{Type: "generic_webhook", Payload: []byte(`{"source":"argocd","eventType":"sync"}`)}
	if matches(t, w, ev, Options{Source: &GenericSource{Name: "stripe", EventType: "sync"}}) {
		t.Error("the payload's own source counts")
	}
	if !matches(t, w, ev, Options{Source: &GenericSource{Name: "argocd", EventType: "sync"}}) {
		t.Error("the configured source does not count, or the paths do not see the body as it came")
	}
	ev.Action = "sync"
	if !matches(t, w, ev, Options{Source: &GenericSource{Name: "argocd"}}) {
		t.Error("the action does not stand in for an event type")
	}
}

func TestWorkflowWithWrongMembersIsNotMatched(t *testing.T) {
	w := workflow(lockfile.Trigger{Type: "push"})
	w.Problems = []string{"trigger 'push' branches: expected a list, found text"}
	if _, err := Match(w, ci.Event{Type: "push"}, Options{}); err == nil || !strings.Contains(err.Error(), "branches") {
		t.Errorf("%v", err)
	}
}

func TestPatternThatRunsAwayFailsTheWorkflow(t *testing.T) {
	p := lockfile.BranchPattern{Type: "regex", Pattern: `^(?!x)(a+)+$`}
	ev := ci.Event{Type: "push", TargetBranch: strings.Repeat("a", 40) + "!"}
	_, err := Match(workflow(lockfile.Trigger{Type: "push", Branches: []lockfile.BranchPattern{p}}), ev, Options{})
	var pattern *PatternError
	if !errors.As(err, &pattern) || !errors.Is(err, regex.ErrTimeout) || pattern.Pattern != p.Pattern {
		t.Errorf("%v", err)
	}
}

// Once an event's work is done, workflows that need more of it fail, and no others.
func TestSpentBudgetFailsOnlyWhoNeedsIt(t *testing.T) {
	name := func(kind, pattern string) lockfile.Trigger {
		return lockfile.Trigger{Type: "push", Branches: []lockfile.BranchPattern{{Type: kind, Pattern: pattern}}}
	}
	tests := []struct {
		name    string
		trigger lockfile.Trigger
		want    error
	}{
		{"glob", name("glob", "*/*[xy]"), glob.ErrBudget},
		{"path filter", lockfile.Trigger{Type: "push", Paths: []string{"*/*[xy]"}}, glob.ErrBudget},
		{"glob that is JavaScript", name("glob", `(a|f)\1*`), regex.ErrTimeout},
		{"expression", name("regex", "^(?=f)f"), regex.ErrTimeout},
		{"plain name", name("glob", "feat/x"), nil},
		{"expression in linear time", name("regex", "^feat"), nil},
	}
	m := NewMatcher(ci.Event{Type: "push", TargetBranch: "feat/x", ChangedFiles: []string{"feat/x"}}, Options{})
	m.globs = glob.Budget{Searches: regex.NewAllowance(0)}
	for _, tt := range tests {
		d, err := m.Match(workflow(tt.trigger))
		var pattern *PatternError
		if !errors.Is(err, tt.want) || tt.want != nil && !errors.As(err, &pattern) || tt.want == nil && !d.Matched {
			t.Errorf("%s: %v, %v; want %v", tt.name, d.Matched, err, tt.want)
		}
	}
	m = NewMatcher(ci.Event{Type: "kici_event", Payload: []byte(`{"eventName":"e","payload":{"a":1}}`)}, Options{})
	m.visits = 0
	w := lockfile.Trigger{Type: "kici_event", EventName: "e", Match: lockfile.Ordered{{Key: "$..a", Value: []byte(`1`)}}}
	if _, err := m.Match(workflow(w)); !errors.Is(err, jsonpath.ErrBudget) {
		t.Errorf("JSON path: %v", err)
	}
}

func TestUnreadablePayloadIsAnError(t *testing.T) {
	w := workflow(lockfile.Trigger{Type: "review", States: []string{"approved"}})
	if _, err := Match(w, ci.Event{Type: "review", Payload: []byte(`{`)}, Options{}); err == nil {
		t.Error("no error")
	}
}

func TestValueMissingFromThePayloadIsLeftOut(t *testing.T) {
	w := workflow(lockfile.Trigger{Type: "status", Contexts: []string{"**"}})
	d, err := Match(w, ci.Event{Type: "status", Payload: []byte(`{}`)}, Options{})
	if err != nil || d.Matched || d.Checks[1].Value != nil {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestTraceShowsPartOfALongList(t *testing.T) {
	ev := ci.Event{Type: "push"}
	for i := range 5000 {
		ev.ChangedFiles = append(ev.ChangedFiles, fmt.Sprintf("src/file%04d.ts", i))
	}
	d, err := Match(workflow(lockfile.Trigger{Type: "push", Paths: []string{"docs/**"}}), ev, Options{})
	if err != nil || d.Matched {
		t.Fatal(d, err)
	}
	if v := *d.Checks[1].Value; len(v) > ci.MaxText || !strings.HasSuffix(v, " more]") {
		t.Errorf("%d bytes ending in %q", len(v), v[len(v)-20:])
	}
}

// What is remembered between workflows must not show: a fresh matcher gives the same decision.
func TestMatcherRemembersNothingThatShows(t *testing.T) {
	files := []string{"a", "src/a.ts", "src/b/c.go", "docs/x.md", ".env", "a/", "{a}", "é.md"}
	patterns := []string{"**", "src/**", "!src/**", "**/*.md", "!*.md", "a", "{a}", "a/", "*.{ts,go}", "!**", "src/*", "é*", "**/b/**"}
	rapid.Check(t, func(t *rapid.T) {
		ev := ci.Event{Type: "push", ChangedFiles: rapid.SliceOfNDistinct(
			rapid.SampledFrom(files), 0, 5, rapid.ID[string]).Draw(t, "files")}
		shared := NewMatcher(ev, Options{})
		for range 4 {
			list := rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 3).Draw(t, "paths")
			w := workflow(lockfile.Trigger{Type: "push", Paths: list})
			got, err := shared.Match(w)
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := Match(w, ev, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Matched != fresh.Matched || got.Matched != slowPaths(t, list, ev.ChangedFiles) {
				t.Fatalf("%v on %v: shared %v, fresh %v", list, ev.ChangedFiles, got.Matched, fresh.Matched)
			}
		}
	})
}

// slowPaths is the rule as it is written down.
func slowPaths(t *rapid.T, patterns, files []string) bool {
	in, out := splitPaths(patterns)
	tr := freshTrace()
	hit := func(patterns []string, file string) bool {
		for _, p := range patterns {
			if tr.name(lockfile.BranchPattern{Type: "glob", Pattern: p}, file) {
				return true
			}
		}
		return false
	}
	for _, f := range files {
		if !hit(out, f) && (len(in) == 0 || hit(in, f)) {
			return true
		}
	}
	return false
}

func TestExplainTakesAStoredDecision(t *testing.T) {
	var d Decision
	vectors.Decode(t, []byte(`{"matched":false,"checks":[{"check":"branch","pattern":"a|b","value":"c","passed":false}],"summary":"s"}`), &d)
	if got := Explain(d); got[0] != "branch `c` matches none of `a`, `b`" {
		t.Errorf("%q", got)
	}
}

// A workflow that starts still does with one more trigger, wherever it stands.
func TestOneMoreTriggerNeverUnmatches(t *testing.T) {
	var all []matchInput
	for _, c := range vectors.LoadKind(t, "triggers.json", "match") {
		var in matchInput
		vectors.Decode(t, c.Input, &in)
		all = append(all, in)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SampledFrom(all).Draw(t, "case")
		more := rapid.SampledFrom(all).Draw(t, "foreign case").Triggers
		if len(more) == 0 {
			return
		}
		foreign := rapid.SampledFrom(more).Draw(t, "foreign trigger")
		var ev ci.Event
		if err := json.Unmarshal(in.Event, &ev); err != nil {
			t.Fatal(err)
		}
		before, err := Match(workflow(in.Triggers...), ev, Options{})
		if _, foreignErr := Match(workflow(foreign), ev, Options{}); err != nil || foreignErr != nil {
			return // a pattern that is none fails the workflow, wherever it stands before the match
		}
		at := rapid.IntRange(0, len(in.Triggers)).Draw(t, "at")
		after, err := Match(workflow(slices.Insert(slices.Clone(in.Triggers), at, foreign)...), ev, Options{})
		if err != nil || before.Matched && !after.Matched {
			t.Fatalf("%+v, with one more %+v, %v", before, after, err)
		}
	})
}

// FuzzMatch feeds every trigger of the vectors with foreign events.
func FuzzMatch(f *testing.F) {
	for _, c := range vectors.LoadKind(f, "triggers.json", "match") {
		var in struct{ Triggers, Event json.RawMessage }
		vectors.Decode(f, c.Input, &in)
		f.Add(string(in.Triggers), string(in.Event))
	}
	f.Fuzz(func(t *testing.T, triggers, event string) {
		var w []lockfile.Trigger
		var ev ci.Event
		if json.Unmarshal([]byte(triggers), &w) != nil || json.Unmarshal([]byte(event), &ev) != nil {
			return
		}
		d, err := Match(workflow(w...), ev, Options{})
		if err != nil {
			return
		}
		for _, c := range d.Checks {
			if !c.Passed && d.Matched {
				t.Errorf("matched in spite of %+v", c)
			}
		}
		if lines := Explain(d); len(lines) != len(d.Checks)+1 {
			t.Errorf("%d sentences about %d checks", len(lines), len(d.Checks))
		}
	})
}
