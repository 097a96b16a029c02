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
}

// LoadKind reads the cases of one kind from a file of several, as Load does. It fails when the file has a case of a kind
// that no room's tests are known to check.
func LoadKind(t testing.TB, name, kind string) []Case {
	t.Helper()
	known, ok := rooms[name]
	if _, mine := known[kind]; !ok || !mine {
		t.Fatalf("no room is known to check kind %q of %s", kind, name)
	}
	cases := Load(t, name)
	for _, c := range cases {
		if of := kindOf(t, c); known[of] == "" {
			t.Fatalf("%s: case %q is of kind %q, which no room is known to check", name, c.Name, of)
		}
	}
	return slices.DeleteFunc(cases, func(c Case) bool { return kindOf(t, c) != kind })
}

func kindOf(t testing.TB, c Case) string {
	t.Helper()
	var in struct{ Op, Fn string }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		t.Fatalf("decode input of vector %q: %v", c.Name, err)
	}
	if in.Op == "" || in.Op == "helper" {
		return in.Fn
	}
	return in.Op
}
