package trigger

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
	"kici/internal/core/lockfile"
	"kici/internal/kit/regex"
	"kici/internal/vectors"
)

// triggerInput is the union of the inputs of triggers.json.
type triggerInput struct {
	Op string

	Triggers []lockfile.Trigger
	Event    json.RawMessage

	Provider, Preset, Action string
	Payload                  json.RawMessage

	Fn   string
	Args []json.RawMessage

	Cron, Timezone string
	Now            time.Time
}

func eachTrigger(t *testing.T, op string, check func(t *testing.T, in triggerInput, want json.RawMessage)) {
	for _, c := range vectors.Load(t, "triggers.json") {
		var in triggerInput
		decode(t, c.Input, &in)
		if in.Op == op {
			t.Run(c.Name, func(t *testing.T) { check(t, in, c.Expected) })
		}
	}
}

func decode(t testing.TB, raw json.RawMessage, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
}

// same compares as JSON values.
func same(t *testing.T, want json.RawMessage, got any) {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var w, g any
	decode(t, want, &w)
	decode(t, raw, &g)
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVectorsMatch(t *testing.T) {
	eachTrigger(t, "match", func(t *testing.T, in triggerInput, want json.RawMessage) {
		var ev ci.Event
		decode(t, in.Event, &ev)
		d, err := Match(lockfile.Workflow{Name: "w", Triggers: in.Triggers}, ev, Options{})
		var failed struct{ Error string }
		decode(t, want, &failed)
		if failed.Error == "" && err == nil {
			same(t, want, d)
			return
		}
		var syntax *regex.SyntaxError
		kinds := map[string]bool{"SyntaxError": errors.As(err, &syntax), "TypeError": errors.Is(err, glob.ErrEmpty)}
		var pattern *PatternError
		if !kinds[failed.Error] || !errors.As(err, &pattern) || pattern.Workflow != "w" {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

func TestVectorsNormalize(t *testing.T) {
	eachTrigger(t, "normalize", func(t *testing.T, in triggerInput, want json.RawMessage) {
		var event string
		decode(t, in.Event, &event)
		d := Delivery{Kind: in.Provider, Event: event, Action: in.Action, Payload: in.Payload}
		if in.Preset != "" {
			d.Dialect, _ = Preset(in.Preset)
		}
		n, err := Normalize(d)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{"event": nil, "repo": nil, "ref": n.Ref, "credentials": map[string]any{}}
		if n.Event != nil {
			if string(n.Event.Payload) != string(in.Payload) {
				t.Errorf("payload was touched: %s", n.Event.Payload)
			}
			got["event"] = withoutPayload(t, *n.Event)
		}
		if n.Repo != "" {
			got["repo"] = n.Repo
		}
		if in.Provider == SourceGitHub {
			got["credentials"] = map[string]any{"installationId": n.InstallationID}
		}
		var fields map[string]json.RawMessage
		decode(t, want, &fields)
		if _, ok := fields["defaultBranchPush"]; ok {
			got["defaultBranchPush"] = n.DefaultBranchPush
		}
		if _, ok := fields["changedFiles"]; ok {
			got["changedFiles"] = n.ChangedFiles
		}
		same(t, want, got)
	})
}

func withoutPayload(t *testing.T, ev ci.Event) map[string]any {
	raw, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	decode(t, raw, &fields)
	delete(fields, "payload")
	return fields
}

func TestVectorsHelper(t *testing.T) {
	eachTrigger(t, "helper", func(t *testing.T, in triggerInput, want json.RawMessage) {
		text := func(i int) (s string) {
			if i < len(in.Args) {
				decode(t, in.Args[i], &s)
			}
			return s
		}
		headers := map[string]string{}
		orNull := func(s string) any {
			if s == "" {
				return nil
			}
			return s
		}
		switch in.Fn {
		case "triggerType":
			same(t, want, Type(text(0)))
		case "inboundRepo":
			same(t, want, orNull(InboundRepo(in.Args[0])))
		case "commitMessage":
			same(t, want, orNull(CommitMessage(text(0), in.Args[1])))
		case "triggerEvent":
			same(t, want, ci.Event{Type: text(0), Action: text(1)}.Display())
		case "parseBody":
			same(t, want, ParseBody(text(0), text(1)))
		case "eventType":
			decode(t, in.Args[0], &headers)
			same(t, want, EventType(headers, in.Args[1], text(2), text(3)))
		case "nested":
			v, _ := Nested(in.Args[0], text(1))
			same(t, want, v)
		case "stripHeaders":
			var names []string
			decode(t, in.Args[0], &headers)
			decode(t, in.Args[1], &names)
			same(t, want, StripHeaders(headers, names))
		case "pathFilters":
			var workflows []lockfile.Workflow
			var raw []struct{ Triggers []lockfile.Trigger }
			decode(t, in.Args[0], &raw)
			for _, w := range raw {
				workflows = append(workflows, lockfile.Workflow{Triggers: w.Triggers})
			}
			same(t, want, WantsChangedFiles(workflows))
		default:
			t.Errorf("no such helper: %s", in.Fn)
		}
	})
}

func TestVectorsCron(t *testing.T) {
	eachTrigger(t, "cron", func(t *testing.T, in triggerInput, want json.RawMessage) {
		var expected struct {
			Previous *time.Time
			Error    string
		}
		decode(t, want, &expected)
		at, ok, err := Previous(in.Cron, in.Timezone, in.Now)
		switch {
		case expected.Error != "":
			if !errors.Is(err, ErrCron) {
				t.Errorf("%v, %v; want an error", at, err)
			}
		case err != nil:
			t.Error(err)
		case ok != (expected.Previous != nil) || ok && !at.Equal(*expected.Previous):
			t.Errorf("%v, %v; want %v", at, ok, expected.Previous)
		}
	})
}

func TestVectorsBranchPathsRepos(t *testing.T) {
	for _, c := range vectors.Load(t, "globs.json") {
		var in struct {
			Op              string
			Pattern         json.RawMessage
			Value, Repo     string
			Patterns, Files []string
			Repos           []lockfile.BranchPattern
		}
		decode(t, c.Input, &in)
		var want bool
		decode(t, c.Expected, &want)
		ev := ci.Event{ChangedFiles: in.Files, SourceRepo: in.Repo}
		tr := &trace{matcher: NewMatcher(ev, Options{})}
		got := want
		switch in.Op {
		case "branch":
			var p lockfile.BranchPattern
			decode(t, in.Pattern, &p)
			got = tr.names("branch", []lockfile.BranchPattern{p}, said(in.Value))
		case "paths":
			got = tr.paths(in.Patterns)
		case "repos":
			got = tr.repos(in.Repos)
		}
		if got != want || tr.err != nil {
			t.Errorf("%s: %v, %v; want %v", c.Name, got, tr.err, want)
		}
	}
}

func TestVectorsInputs(t *testing.T) {
	for _, c := range vectors.Load(t, "inputs.json") {
		t.Run(c.Name, func(t *testing.T) {
			var in struct {
				Fn    string
				Map   lockfile.Inputs
				Raw   lockfile.Ordered
				Pairs []string
			}
			decode(t, c.Input, &in)
			var raw []KeyValue
			for _, m := range in.Raw {
				var s string
				decode(t, m.Value, &s)
				raw = append(raw, KeyValue{m.Key, s})
			}
			var values any
			var issues []Issue
			switch in.Fn {
			case "coerce":
				values, issues = Coerce(in.Map, raw)
			case "schedule":
				v, wrong := ScheduleInputs(in.Map)
				if issues = wrong; v != nil {
					values = v
				}
			case "pairs":
				pairs, wrong := ParsePairs(in.Pairs)
				all := map[string]string{}
				for _, p := range pairs {
					all[p.Key] = p.Value
				}
				values, issues = all, wrong
			case "scheduleDeclared":
				err := CheckScheduleInputs(in.Map)
				got := map[string]any{"ok": err == nil}
				if err != nil {
					got["message"] = err.Error()
				}
				same(t, c.Expected, got)
				return
			}
			if len(issues) == 0 {
				same(t, c.Expected, map[string]any{"values": values})
				return
			}
			short := []map[string]string{}
			for _, i := range issues {
				short = append(short, map[string]string{"key": i.Key, "code": i.Code})
			}
			same(t, c.Expected, map[string]any{"issues": short})
		})
	}
}

// Values come in the order of declaration, which comparing JSON objects does not see.
func TestCoerceKeepsTheOrderOfDeclaration(t *testing.T) {
	def := func(name string) lockfile.Input { return lockfile.Input{Name: name, Type: "string"} }
	got, issues := Coerce(lockfile.Inputs{def("z"), def("a")}, []KeyValue{{"a", "<1>"}, {"z", "2"}})
	want := lockfile.Ordered{{Key: "z", Value: []byte(`"2"`)}, {Key: "a", Value: []byte(`"<1>"`)}}
	if diff := cmp.Diff(want, got); diff != "" || issues != nil {
		t.Errorf("%v (-want +got):\n%s", issues, diff)
	}
}
