package vectors

import (
	"encoding/json"
	"slices"
	"testing"
)

// rooms says whose tests check which kind of case, for the files whose cases are read one kind at a time. A kind is the input's op, or
// its fn where there is no op or the op says only that there is one.
var rooms = map[string]map[string]string{
	"triggers.json": {
		"match": "decide/trigger", "pathFilters": "decide/trigger", "cron": "core/cron", "triggerEvent": "core/ci",
		"normalize": "decide/envelope", "triggerType": "decide/envelope", "inboundRepo": "decide/envelope",
		"commitMessage": "decide/envelope", "parseBody": "decide/envelope", "eventType": "decide/envelope",
		"nested": "decide/envelope", "stripHeaders": "decide/envelope",
	},
	"globs.json": {
		"isMatch": "core/glob", "branch": "decide/trigger", "paths": "decide/trigger", "repos": "decide/trigger",
		"scope": "decide/contexts",
	},
	"inline-eval.json": {"string": "kit/script", "record": "kit/script", "fields": "decide/plan"},
	"run-aggregation.json": {
		"foldRun": "decide/lifecycle", "failureCategory": "decide/lifecycle", "upstreamOutputs": "decide/lifecycle",
		"upstreamStatuses": "decide/lifecycle", "flattenSteps": "core/lockfile", "upstreamBaseNames": "core/lockfile",
		"parseOutputsCell": "server/engine",
	},
}

// LoadKind reads the cases of one kind from a file of several, as Load does. It fails when the file has a case of a kind
// that no room's tests are known to check.
func LoadKind(t testing.TB, name, kind string) []Case {
	t.Helper()
	return ofKind(t, name, kind, Load(t, name), func(c Case) string {
		var in struct{ Op, Fn string }
		if err := json.Unmarshal(c.Input, &in); err != nil {
			t.Fatalf("decode input of vector %q: %v", c.Name, err)
		}
		if in.Op == "" || in.Op == "helper" {
			return in.Fn
		}
		return in.Op
	})
}

// LoadFunction is LoadKind for a suite; a kind is a function.
func LoadFunction(t testing.TB, name, fn string) []SuiteCase {
	t.Helper()
	return ofKind(t, name, fn, LoadSuite(t, name), func(c SuiteCase) string { return c.Fn })
}

func ofKind[C any](t testing.TB, name, kind string, cases []C, kindOf func(C) string) []C {
	t.Helper()
	known := rooms[name]
	if known[kind] == "" {
		t.Fatalf("no room is known to check kind %q of %s", kind, name)
	}
	for _, c := range cases {
		if of := kindOf(c); known[of] == "" {
			t.Fatalf("%s has a case of kind %q, which no room is known to check", name, of)
		}
	}
	return slices.DeleteFunc(cases, func(c C) bool { return kindOf(c) != kind })
}
