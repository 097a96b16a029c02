package contexts

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/kit/regex"
)

// resolve gives the places of the winners instead of their positions.
func resolve(t interface {
	Helper()
	Fatal(...any)
}, bindings []Binding, secrets []Secret, host *Host) map[string]string {
	t.Helper()
	winners, err := Resolve("c", bindings, secrets, nil, host)
	if err != nil {
		t.Fatal(err)
	}
	scopes := map[string]string{}
	for key, i := range winners {
		scopes[key] = secrets[i].Scope
	}
	return scopes
}

func TestMatchScopeKeepsBackendsAndSegmentsApart(t *testing.T) {
	tests := []struct {
		scope, pattern string
		want           bool
	}{
		{"aws/prod/db", "aws/prod", false},
		{"aws/prod", "aws/prod/**", true},
		{"aws/prod/db", "aws/*/db", true},
		{"aws/prod", "*", false},
		{"aws/.hidden/x", "aws/**", false},
		{"pg:aws/prod", "aws/prod", true},
		{"pg:aws/prod", "vault:aws/prod", false},
		{"aws/prod", "aws/{prod,dev}", true},
		{"pg:aws", "pg:", false},
		{"pg:", "pg:", true},
	}
	for _, tt := range tests {
		if got, err := MatchScope(tt.pattern, tt.scope); err != nil || got != tt.want {
			t.Errorf("%s selects %s: %v, %v", tt.pattern, tt.scope, got, err)
		}
	}
}

func TestResolveWorkedExample(t *testing.T) {
	secrets := []Secret{
		{"pg:aws", "TOKEN"}, {"pg:aws/prod", "TOKEN"}, {"pg:aws/prod", "X"}, {"vault:aws/prod", "TOKEN"},
		{"pg:hosts/web-1", "TOKEN"}, {"pg:hosts/eu", "Y"},
	}
	web := &Host{AgentID: "agent-7", Name: "web-1", Labels: []string{"region:us", "region:eu"}}
	onHosts := []Binding{{"aws/prod", ""}, {"hosts/${host}", "web-*"}, {"hosts/${label:region}", ""}}
	tests := []struct {
		name     string
		bindings []Binding
		host     *Host
		want     map[string]string
	}{
		{"the earlier binding wins a tie", []Binding{{"aws", ""}, {"vault:aws/prod", ""}, {"aws/prod", ""}}, nil,
			map[string]string{"TOKEN": "vault:aws/prod", "X": "pg:aws/prod"}},
		{"the deeper scope wins", []Binding{{"aws/**", ""}}, nil, map[string]string{"TOKEN": "pg:aws/prod", "X": "pg:aws/prod"}},
		{"the host's own wins", onHosts, web, map[string]string{"TOKEN": "pg:hosts/web-1", "X": "pg:aws/prod", "Y": "pg:hosts/eu"}},
		{"without a host templates give nothing", onHosts, nil, map[string]string{"TOKEN": "pg:aws/prod", "X": "pg:aws/prod"}},
		{"another host", onHosts, &Host{Name: "db-1"}, map[string]string{"TOKEN": "pg:aws/prod", "X": "pg:aws/prod"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, resolve(t, tt.bindings, secrets, tt.host)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestJobsGetNothingOfTheServer(t *testing.T) {
	secrets := []Secret{{"pg:__source__/1", "KEY"}, {"pg:a/__x__", "KEY"}, {"pg:__half", "KEY"}}
	for _, pattern := range []string{"**", "__source__/1", "pg:__source__/*", "a/__x__", "${host}/1", "__half"} {
		got := resolve(t, []Binding{{pattern, ""}}, secrets, &Host{Name: "__source__"})
		if len(got) > 0 {
			t.Errorf("pattern %s gives %v", pattern, got)
		}
	}
}

func TestStrangersGetNoSecrets(t *testing.T) {
	for tier, want := range map[ci.Tier]bool{"": false, ci.TierTrusted: false, ci.TierKnown: false, ci.TierUnknown: true, "guest": true} {
		if Withheld(tier) != want {
			t.Errorf("tier %q: withheld = %v", tier, !want)
		}
	}
}

func TestBackendThatCannotBeAskedFailsOnlyWhoMayDependOnIt(t *testing.T) {
	down := []Unreachable{{"vault", errors.New("connection refused")}}
	secrets := []Secret{{"pg:aws", "A"}}
	tests := []struct {
		name     string
		bindings []Binding
		host     *Host
		want     string // of the binding; "" = no failure
	}{
		{"it is named", []Binding{{"pg:**", ""}, {"vault:**", ""}}, nil, "vault:**"},
		{"any backend, and no other has it", []Binding{{"gcp", ""}}, nil, "gcp"},
		{"any backend, and another has it", []Binding{{"aws", ""}}, nil, ""},
		{"another is named", []Binding{{"pg:gcp", ""}}, nil, ""},
		{"on another host", []Binding{{"vault:**", "web-*"}}, &Host{Name: "db-1"}, ""},
		{"a template that this host cannot fill", []Binding{{"vault:${label:rack}", ""}}, &Host{Name: "db-1"}, ""},
		{"a template that it can", []Binding{{"vault:${host}", ""}}, &Host{Name: "db-1"}, "vault:${host}"},
	}
	for _, tt := range tests {
		_, err := Resolve("prod", tt.bindings, secrets, down, tt.host)
		var lost *BackendError
		if errors.As(err, &lost) != (tt.want != "") || lost != nil && lost.Pattern != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	_, err := Resolve("prod", []Binding{{"vault:**", "**"}}, nil, down, nil)
	const want = "Secret backend 'vault' is unreachable (connection refused) and job environment 'prod' has binding 'vault:**'" +
		" that may depend on it. No other backend provides matching secrets."
	if err == nil || err.Error() != want || !errors.Is(err, down[0].Err) {
		t.Errorf("error %v", err)
	}
}

func TestBindingThatCannotBeDecidedFailsTheResolution(t *testing.T) {
	host := &Host{Name: "web"}
	var syntax *regex.SyntaxError
	if _, err := Resolve("c", []Binding{{"a", "/(/"}}, nil, nil, host); !errors.As(err, &syntax) || !strings.Contains(err.Error(), `host pattern "/(/"`) {
		t.Errorf("host pattern: %v", err)
	}
	if _, err := Resolve("c", []Binding{{strings.Repeat("a", 1<<17), ""}}, []Secret{{"pg:a", "K"}}, nil, host); err == nil || !strings.Contains(err.Error(), "scope pattern") {
		t.Errorf("scope pattern: %v", err)
	}
}

func genSecrets(t *rapid.T) []Secret {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Secret {
		scopes := []string{"pg:a", "pg:a/b", "pg:a/b/c", "vault:a", "vault:b/c", "pg:__x__/a", "pg:hosts/h1"}
		return Secret{rapid.SampledFrom(scopes).Draw(t, "scope"), rapid.SampledFrom([]string{"K", "L", "M"}).Draw(t, "key")}
	}), 0, 8).Draw(t, "secrets")
}

func genBindings(t *rapid.T, name string) []Binding {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Binding {
		scopes := []string{"a", "a/**", "**", "vault:**", "pg:a/*", "hosts/${host}", "b/*"}
		return Binding{rapid.SampledFrom(scopes).Draw(t, "scopePattern"), rapid.SampledFrom([]string{"", "**", "h*", "h1", "/^h/"}).Draw(t, "hostPattern")}
	}), 0, 5).Draw(t, name)
}

func TestBindingsThatSelectNothingChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets, bindings, host := genSecrets(t), genBindings(t, "bindings"), &Host{AgentID: "h1", Name: "h1"}
		irrelevant := rapid.SampledFrom([]Binding{{"c/**", ""}, {"a/**", "other"}, {"x/${label:none}", "h1"}, {"consul:**", ""}}).Draw(t, "irrelevant")
		at := rapid.IntRange(0, len(bindings)).Draw(t, "at")
		before := resolve(t, bindings, secrets, host)
		after := resolve(t, slices.Insert(slices.Clone(bindings), at, irrelevant), secrets, host)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("%+v changes %s", irrelevant, diff)
		}
	})
}

func TestWinnersAreSelectedAndUnbeaten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets, bindings, host := genSecrets(t), genBindings(t, "bindings"), &Host{AgentID: "h1", Name: "h1"}
		best := map[string][2]int{} // rank of each key: host specificity, depth
		for _, b := range bindings {
			pattern, specificity, applies, err := b.on(host)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range secrets {
				if ok, _ := MatchScope(pattern, s.Scope); applies && ok && !Reserved(s.Scope) {
					rank := [2]int{specificity, depth(s.Scope)}
					if old, there := best[s.Key]; !there || slices.Compare(old[:], rank[:]) < 0 {
						best[s.Key] = rank
					}
				}
			}
		}
		got := resolve(t, bindings, secrets, host)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(best)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Fatal(diff)
		}
		for key, scope := range got {
			if depth(scope) != best[key][1] {
				t.Fatalf("%s is of %s, want depth %d", key, scope, best[key][1])
			}
		}
	})
}

func TestLaterContextsWin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.MapOfN(rapid.SampledFrom([]string{"A", "B", "C"}), rapid.SampledFrom([]string{"", "1", "2"}), 0, 3)
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Resolved {
			return Resolved{rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"), values.Draw(t, "variables"), values.Draw(t, "secrets")}
		}), 0, 5).Draw(t, "entries")
		m := Merge(entries)
		last := func(of func(Resolved) map[string]string, key string) (value string, ok bool) {
			for _, e := range slices.Backward(entries) {
				if value, ok = of(e)[key]; ok {
					return value, true
				}
			}
			return "", false
		}
		for _, key := range []string{"A", "B", "C"} {
			for what, pair := range map[string]struct {
				merged map[string]string
				of     func(Resolved) map[string]string
			}{
				"variable": {m.Variables, func(e Resolved) map[string]string { return e.Variables }},
				"secret":   {m.Secrets, func(e Resolved) map[string]string { return e.Secrets }},
			} {
				want, wanted := last(pair.of, key)
				if got, there := pair.merged[key]; got != want || there != wanted {
					t.Fatalf("%s %s = %q (%v), want %q (%v)", what, key, got, there, want, wanted)
				}
			}
		}
	})
}

func TestMergeSharesNothingWithItsInput(t *testing.T) {
	secrets := map[string]string{"K": "1"}
	m := Merge([]Resolved{{Name: "a", Secrets: secrets}})
	m.Namespaced.Of("a")["K"], m.Secrets["L"] = "2", "3"
	if diff := cmp.Diff(map[string]string{"K": "1"}, secrets); diff != "" {
		t.Error(diff)
	}
}

// FuzzSubstitute asks whether a host can choose more than one segment of its scope.
func FuzzSubstitute(f *testing.F) {
	f.Add("prod/${host}/x", "web-1", "rack:r7")
	f.Add("${label:rack}", "../prod", "rack:")
	f.Add("a/${label:}/${host", "a/b", "${host}")
	f.Add("${agentId}${host}", "*", "\xff")
	known := regexp.MustCompile(`\$\{(agentId|host|label:[^}]+)\}`)
	f.Fuzz(func(t *testing.T, pattern, name, label string) {
		got, ok := Substitute(pattern, Host{AgentID: name, Name: name, Labels: []string{label}})
		if !ok {
			if !known.MatchString(pattern) {
				t.Errorf("%q has no placeholder and is skipped", pattern)
			}
			return
		}
		var want strings.Builder
		for _, part := range known.Split(pattern, -1) {
			if want.Len() > 0 {
				want.WriteString(`[A-Za-z0-9._-]+`)
			}
			want.WriteString("(?:" + regexp.QuoteMeta(part) + ")")
		}
		if shape, err := regexp.Compile(`(?s)^` + want.String() + `$`); err == nil && !shape.MatchString(got) {
			t.Errorf("%q became %q", pattern, got)
		}
	})
}

func FuzzMatchScope(f *testing.F) {
	for _, seed := range [][2]string{{"pg:aws/**", "pg:aws/prod"}, {"aws", "pg:aws"}, {"!(a)/b", "c/b"}, {":", "::"}, {"", "x"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, scope string) {
		ok, err := MatchScope(pattern, scope)
		if ok && err != nil {
			t.Errorf("%q selects %q with error %v", pattern, scope, err)
		}
		if same, err := MatchScope(scope, scope); !same || err != nil {
			t.Errorf("%q does not select itself: %v", scope, err)
		}
		wanted, named := backendOf(pattern)
		if backend, has := backendOf(scope); ok && named && has && wanted != backend {
			t.Errorf("%q selects %q of another backend", pattern, scope)
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	bindings := []Binding{{"shared/**", ""}, {"prod/*/db", ""}, {"prod/${host}", "web-*"}, {"vault:**", ""}}
	var secrets []Secret
	for i := range 1000 {
		secrets = append(secrets, Secret{fmt.Sprintf("pg:prod/%d/db", i), fmt.Sprintf("KEY_%d", i)})
	}
	host := &Host{AgentID: "web-1", Name: "web-1"}
	for b.Loop() {
		if _, err := Resolve("prod", bindings, secrets, nil, host); err != nil {
			b.Fatal(err)
		}
	}
}
