package label

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/vectors"
)

// elsewhere are functions of the author's library, written in TypeScript, the guard of kit/regex, and the choice of a
// scaler in decide/capacity.
var elsewhere = []string{"normalizeRunsOn", "runsOnAll", "pick", "redos", "backend"}

func TestVectorsLabels(t *testing.T) {
	for _, c := range vectors.Load(t, "labels.json") {
		var in struct {
			Fn   string
			Args []json.RawMessage
		}
		decode(t, c.Input, &in)
		if slices.Contains(elsewhere, in.Fn) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			got, err := json.Marshal(call(t, in.Fn, in.Args))
			if err != nil {
				t.Fatal(err)
			}
			var want, have any
			decode(t, c.Expected, &want)
			decode(t, got, &have)
			if e := errorOf(want); e != "" {
				if !strings.Contains(errorOf(have), e) {
					t.Errorf("got %s, want an error with %q", got, e)
				}
				return
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
}

func arg[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	decode(t, raw, &v)
	return v
}

func errorOf(v any) string {
	object, _ := v.(map[string]any)
	text, _ := object["error"].(string)
	return text
}

func failure(err error) any { return map[string]string{"error": err.Error()} }

// call runs one function of the vectors and shapes its result as they do.
func call(t *testing.T, fn string, args []json.RawMessage) any {
	texts := func(i int) []string { return arg[[]string](t, args[i]) }
	one := func(i int) string { return arg[string](t, args[i]) }
	switch fn {
	case "osArch":
		return Machine(one(0), one(1))
	case "roles":
		return Roles(arg[*[]string](t, args[0]))
	case "scalerAgentLabels":
		return Spawned(texts(0), one(1), one(2), arg[*[]string](t, args[3]))
	case "merge":
		return Merge(texts(0), texts(1))
	case "validateNoReserved":
		if err := CheckReserved(texts(0), one(1)); err != nil {
			return failure(err)
		}
		return map[string]bool{"ok": true}
	case "separate":
		user, auto := Separate(texts(0))
		return map[string]any{"userLabels": user, "autoLabels": auto}
	case "selfReported":
		return SelfReportable(one(0))
	case "parseHost":
		if host, ok := HostName(one(0)); ok {
			return host
		}
		return nil
	case "labelSetKey":
		return SetKey(texts(0))
	case "labelSetsMatch":
		return SameSet(texts(0), texts(1))
	case "selector":
		m, err := Element(one(0))
		if err != nil {
			return failure(err)
		}
		var matches []bool
		for _, l := range texts(1) {
			_, ok, err := m.SatisfiedBy([]string{l})
			matches = append(matches, ok && err == nil)
		}
		return map[string]any{"kind": m.Kind, "matches": matches}
	}
	return callMatching(t, fn, args)
}

func callMatching(t *testing.T, fn string, args []json.RawMessage) any {
	check := func(ok bool, err error) any {
		if err != nil {
			return failure(err)
		}
		return ok
	}
	switch fn {
	case "satisfied":
		_, ok, err := arg[Matcher](t, args[0]).SatisfiedBy(arg[[]string](t, args[1]))
		return check(ok, err)
	case "hostTarget":
		for _, target := range arg[struct{ Values []Target }](t, args[1]).Values {
			if ok, err := target.Matches(arg[[]string](t, args[0])); !ok || err != nil {
				return check(ok, err)
			}
		}
		return true
	case "partition":
		var matchers []Matcher
		if err := json.Unmarshal(args[0], &matchers); err != nil {
			return failure(err)
		}
		exact, patterns, err := Partition(matchers)
		if err != nil {
			return failure(err)
		}
		return map[string]any{"exact": exact, "regex": patterns}
	case "hostPattern":
		a := arg[struct {
			AgentID, Host string
			Labels        []string
		}](t, args[0])
		p, err := ParseHostPattern(arg[string](t, args[1]))
		if err != nil {
			return failure(err)
		}
		return check(p.Matches(a.AgentID, a.Host, a.Labels))
	case "specificity":
		p, err := ParseHostPattern(arg[string](t, args[0]))
		if err != nil {
			return failure(err)
		}
		return p.Specificity()
	}
	t.Fatalf("unknown function %q", fn)
	return nil
}

func pattern(source string) Matcher { return Matcher{Kind: Regex, Source: source} }

func TestSelectorSaysWhatKeepsAnAgentAway(t *testing.T) {
	agent := Agent{ID: "a-2", Labels: []string{"linux", "gpu-0", "big-box", "spot-1"}, Mandatory: []string{"big-box"}}
	tests := []struct {
		name string
		s    Selector
		want []string
	}{
		{"fits", Selector{Labels: []string{"linux", "big-box"}, Patterns: []Matcher{pattern("^gpu-")}}, nil},
		{"gate asked for by pattern only", Selector{Patterns: []Matcher{pattern("^big-box$")}}, []string{"agent is reserved for jobs that ask for big-box"}},
		{
			"several", Selector{Labels: []string{"windows", "arm", "big-box"}, Exclude: []string{"spot-1"}},
			[]string{"lacks label arm", "lacks label windows", "has the excluded label spot-1"},
		},
		{
			"patterns", Selector{Labels: []string{"big-box"}, Patterns: []Matcher{pattern("^mac")}, ExcludePatterns: []Matcher{pattern("^spot-")}},
			[]string{"has no label matching /^mac/", "label spot-1 matches the excluded /^spot-/"},
		},
		{"exact labels in any case", Selector{Labels: []string{"Linux", "BIG-box"}}, nil},
		{"excludes too", Selector{Labels: []string{"big-box"}, Exclude: []string{"SPOT-1"}}, []string{"has the excluded label SPOT-1"}},
		{"the case of an expression is its author's", Selector{Labels: []string{"big-box"}, Patterns: []Matcher{pattern("^GPU-")}}, []string{"has no label matching /^GPU-/"}},
		{"pinned elsewhere", Selector{Pin: "a-1", Labels: []string{"windows"}}, []string{"job is pinned to host a-1"}},
		{"pinned here: only patterns count besides", Selector{Pin: "a-2", Labels: []string{"windows"}, Exclude: []string{"linux"}}, nil},
		{"pinned here, pattern fails", Selector{Pin: "a-2", Patterns: []Matcher{pattern("^mac")}}, []string{"has no label matching /^mac/"}},
		{"nothing asked of a reserved agent", Selector{}, []string{"agent is reserved for jobs that ask for big-box"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.s.Explain(agent)); diff != "" {
				t.Error(diff)
			}
			if tt.s.Matches(agent) != (len(tt.want) == 0) || tt.s.Distance(agent) != len(tt.want) {
				t.Errorf("Matches = %v, Distance = %d", tt.s.Matches(agent), tt.s.Distance(agent))
			}
		})
	}
}

func TestTheGateOfAPlatformOpensForItsOtherNames(t *testing.T) {
	agent := Agent{Labels: []string{"linux", "arm64", "kici:arch:arm64"}, Mandatory: []string{"arm64"}}
	if s := (Selector{Labels: []string{"linux", "kici:arch:ARM64"}}); !s.Matches(agent) || len(s.Explain(agent)) > 0 {
		t.Errorf("kept away: %v", s.Explain(agent))
	}
	if s := (Selector{Labels: []string{"linux"}}); s.Matches(agent) {
		t.Error("a job that does not ask for arm64 gets it")
	}
}

func TestAnExpressionThatFailsKeepsTheAgentAway(t *testing.T) {
	agent := Agent{Labels: []string{"linux"}}
	for _, s := range []Selector{{Patterns: []Matcher{pattern("(")}}, {ExcludePatterns: []Matcher{pattern("(")}}} {
		if s.Matches(agent) || len(s.Explain(agent)) != 1 {
			t.Errorf("%s: matches %v, explain %q", s.Canonical(), s.Matches(agent), s.Explain(agent))
		}
	}
}

func genSelector(t *rapid.T) Selector {
	texts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "ä\"<", "gpu-1", "\u2028"}), 0, 4)
	matchers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Matcher {
		return Matcher{Kind: Regex, Source: rapid.SampledFrom([]string{"^a", "b$", "gpu", "x"}).Draw(t, "source"), Flags: rapid.SampledFrom([]string{"", "i"}).Draw(t, "flags")}
	}), 0, 3)
	return Selector{
		Labels: texts.Draw(t, "labels"), Exclude: texts.Draw(t, "exclude"), Patterns: matchers.Draw(t, "patterns"),
		ExcludePatterns: matchers.Draw(t, "excludePatterns"), Pin: rapid.SampledFrom([]string{"", "", "x"}).Draw(t, "pin"),
	}
}

func genAgent(t *rapid.T) Agent {
	texts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "A", "gpu-1"}), 0, 4)
	return Agent{ID: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "id"), Labels: texts.Draw(t, "agentLabels"), Mandatory: texts.Draw(t, "mandatory")}
}

func TestCanonicalIsOneTextForOneDemand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSelector(t)
		text := s.Canonical()
		shuffled := Selector{
			Labels:          append(rapid.Permutation(s.Labels).Draw(t, "p1"), s.Labels...),
			Exclude:         append(rapid.Permutation(s.Exclude).Draw(t, "p2"), s.Exclude...),
			Patterns:        append(rapid.Permutation(s.Patterns).Draw(t, "p3"), s.Patterns...),
			ExcludePatterns: append(rapid.Permutation(s.ExcludePatterns).Draw(t, "p4"), s.ExcludePatterns...),
			Pin:             s.Pin,
		}
		if got := shuffled.Canonical(); got != text {
			t.Fatalf("order or repetition shows: %s and %s", text, got)
		}
		back, err := ParseSelector(text)
		if err != nil || back.Canonical() != text {
			t.Fatalf("%s reads back as %s, %v", text, back.Canonical(), err)
		}
		a := genAgent(t)
		if s.Matches(a) != back.Matches(a) {
			t.Fatalf("%s and what was read back differ for %+v", text, a)
		}
		if s.Matches(a) != (s.Distance(a) == 0) {
			t.Fatalf("%s for %+v: matches %v, explain %q", text, a, s.Matches(a), s.Explain(a))
		}
	})
}

func TestParseSelectorRefusesOtherTexts(t *testing.T) {
	for _, text := range []string{"", "[]", `{"labels":5}`, `{"patterns":["x"]}`, `{"patterns":[{"kind":"exact","value":"a"}]}`} {
		if s, err := ParseSelector(text); err == nil {
			t.Errorf("%q read as %+v", text, s)
		}
	}
	if s, err := ParseSelector("{}"); err != nil || s.Canonical() != "{}" {
		t.Errorf("the empty selector: %+v, %v", s, err)
	}
}

func TestSelectSplitsMatchers(t *testing.T) {
	s, err := Select([]Matcher{{Kind: Exact, Value: "a"}, pattern("b")}, []Matcher{{Kind: Exact, Value: "c"}})
	want := Selector{Labels: []string{"a"}, Patterns: []Matcher{pattern("b")}, Exclude: []string{"c"}}
	if diff := cmp.Diff(want, s); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := Select(nil, []Matcher{{Kind: "glob"}}); err == nil || !strings.Contains(err.Error(), "excludeLabels: invalid label matcher") {
		t.Errorf("error %v", err)
	}
}

func TestHostsNeedsAGroup(t *testing.T) {
	linux, db := Matcher{Kind: Exact, Value: "linux"}, Matcher{Kind: Exact, Value: "role:db"}
	labels := []string{"linux", "kici:host:db-1"}
	tests := []struct {
		name    string
		include [][]Matcher
		exclude []Matcher
		want    bool
	}{
		{"no group selects no host", nil, nil, false},
		{"some group fits", [][]Matcher{{db}, {linux}}, nil, true},
		{"all of a group must fit", [][]Matcher{{linux, db}}, nil, false},
		{"exclude wins", [][]Matcher{{linux}}, []Matcher{pattern("^kici:host:db")}, false},
		{"an empty group fits all", [][]Matcher{{}}, nil, true},
	}
	for _, tt := range tests {
		if got, err := Hosts(tt.include, tt.exclude, labels); got != tt.want || err != nil {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	if _, err := Hosts([][]Matcher{{pattern("(")}}, nil, labels); err == nil {
		t.Error("a broken expression passes silently")
	}
}

func TestAutoListsWhatAnAgentHasByItself(t *testing.T) {
	want := []string{"kici:os:linux", "kici:arch:x64", "kici:arch:amd64", "kici:host:web-1", "kici:role:builder", "kici:role:init-runner"}
	got := Auto("linux", "x64", "web-1", nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if Host(got) != "web-1" || Host([]string{"linux"}) != "" {
		t.Error("the host is read from the first host label")
	}
}

func TestMatcherJSONHasTheShapesOfTheLockFile(t *testing.T) {
	for _, raw := range []string{`{"kind":"exact","value":""}`, `{"kind":"regex","source":"^a","flags":""}`} {
		var m Matcher
		decode(t, json.RawMessage(raw), &m)
		if out, err := json.Marshal(m); err != nil || string(out) != raw {
			t.Errorf("%s writes as %s, %v", raw, out, err)
		}
	}
	for _, raw := range []string{`"linux"`, `{}`, `{"kind":"regex","source":"a"}`, `{"kind":"exact","value":5}`, `null`} {
		var m Matcher
		if err := json.Unmarshal([]byte(raw), &m); err == nil && raw != "null" {
			t.Errorf("%s read as %+v", raw, m)
		}
	}
}
