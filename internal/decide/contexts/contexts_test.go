package contexts

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/glob"
	"kici/internal/kit/regex"
)

func patternContext(name, pattern string) Context {
	return Context{Name: name, Type: Glob, GlobPattern: pattern, Enabled: true}
}

func TestMatchTakesTheExactNameThenTheMostSpecificPattern(t *testing.T) {
	off := patternContext("off", "off/*")
	off.Enabled = false
	all := []Context{
		patternContext("any", "**"), patternContext("reviews", "review/*"), patternContext("pulls", "review/PR-*"),
		patternContext("two", "x/?*"), patternContext("one", "x/*"),
		patternContext("b", "y/*"), patternContext("a", "*/y"),
		{Name: "review/PR-9", Type: Fixed}, off, patternContext("nothing", ""),
		patternContext("star", `z/\**`), patternContext("late", "z/?*"),
	}
	tests := []struct{ name, want string }{
		{"review/PR-7", "pulls"},
		{"review/7", "reviews"},
		{"review/PR-9", "review/PR-9"}, // disabled, and still the one that is meant
		{"reviews", "reviews"},         // a pattern is called by its name, too
		{"x/1", "one"},                 // as many literals, fewer wildcards
		{"y/y", "a"},                   // as many of both: by name
		{"off/1", "off"},               // disabled contexts are not passed over
		{"z/*1", "star"},               // an escaped sign is literal
		{".hidden", ""},                // dots are written, not matched
		{"Review/1", "any"},            // case counts
	}
	for _, tt := range tests {
		got, err := Match(all, tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if name := nameOf(got); name != tt.want {
			t.Errorf("%s means %q, want %q", tt.name, name, tt.want)
		}
		slices.Reverse(all) // the order in the store decides nothing
	}
}

func nameOf(c *Context) string {
	if c == nil {
		return ""
	}
	return c.Name
}

func TestPatternThatCannotBeDecidedIsNotPassedOver(t *testing.T) {
	all := []Context{patternContext("huge", strings.Repeat("a", 1<<17)), patternContext("any", "**")}
	if _, err := Bind(all, []string{"x"}); !errors.Is(err, glob.ErrTooLong) || !strings.Contains(err.Error(), `"huge"`) {
		t.Errorf("error %v", err)
	}
}

func TestBindKeepsOrderAndNamesOfTheJob(t *testing.T) {
	got, err := Bind([]Context{patternContext("reviews", "review/*"), {Name: "base"}}, []string{"review/1", "gone", "base", "review/1"})
	if err != nil {
		t.Fatal(err)
	}
	var pairs []string
	for _, b := range got {
		pairs = append(pairs, b.Name+"="+nameOf(b.Context))
	}
	if diff := cmp.Diff([]string{"review/1=reviews", "gone=", "base=base", "review/1=reviews"}, pairs); diff != "" {
		t.Error(diff)
	}
}

func TestTestRunsUseOnlyContextsThatAllowThem(t *testing.T) {
	local, remote := Bound{"local", &Context{AllowLocalExecution: true}}, Bound{"remote", &Context{}}
	missing := Bound{Name: "gone"}
	tests := []struct {
		name    string
		bound   []Bound
		want    []string
		warning string
	}{
		{"nothing bound is nothing to warn of", nil, []string{}, ""},
		{"others are left out", []Bound{remote, local}, []string{"local"}, ""},
		{"none is left", []Bound{remote}, []string{}, "all bound environments disallow test runs; running with no environment variables"},
		{"a missing one stays, for the gate to refuse", []Bound{missing, remote}, []string{"gone"}, ""},
	}
	for _, tt := range tests {
		kept, warning := ForTestRun(tt.bound)
		if diff := cmp.Diff(tt.want, names(kept)); diff != "" || warning != tt.warning {
			t.Errorf("%s: %s warning %q", tt.name, diff, warning)
		}
	}
}

func number(n int64) *int64 { return &n }

func TestCheckNamesTheField(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Context)
		want   string // "" = fine
	}{
		{"a fixed one", func(*Context) {}, ""},
		{"a pattern", func(c *Context) { c.Type, c.GlobPattern = Glob, "review/*" }, ""},
		{"a limit of none", func(c *Context) { c.ConcurrencyLimit = number(0) }, ""},
		{"no name", func(c *Context) { c.Name = "" }, "name must"},
		{"long name", func(c *Context) { c.Name = strings.Repeat("x", 129) }, "name must"},
		{"NUL in the name", func(c *Context) { c.Name = "a\x00" }, "name must"},
		{"type", func(c *Context) { c.Type = "dynamic" }, `type must be fixed or glob, not "dynamic"`},
		{"glob without a pattern", func(c *Context) { c.Type = Glob }, "globPattern is required"},
		{"strategy", func(c *Context) { c.ConcurrencyStrategy = "drop" }, "concurrencyStrategy must"},
		{"trust", func(c *Context) { c.MinimumTrust = "unknown" }, "minimumTrust must be known or trusted"},
		{"empty pattern", func(c *Context) { c.BranchRestrictions = []string{"main", ""} }, "branchRestrictions[1]: glob pattern is empty"},
		{"long pattern", func(c *Context) { c.RepoPatterns = []string{strings.Repeat("x", 1025)} }, "repoPatterns[0]: pattern must"},
		{"bytes that are no text", func(c *Context) { c.TriggerTypeFilters = []string{"\xff"} }, "triggerTypeFilters[0]: pattern must"},
		{"many patterns", func(c *Context) { c.RepoPatterns = make([]string, 257) }, "repoPatterns must have at most 256"},
		{"reviewer without a name", func(c *Context) { c.RequiredReviewers = []string{""} }, "requiredReviewers[0] must"},
		{"many reviewers", func(c *Context) { c.RequiredReviewers = make([]string, 257) }, "requiredReviewers must"},
		{"negative limit", func(c *Context) { c.ConcurrencyLimit = number(-1) }, "concurrencyLimit must be an integer from 0"},
		{"endless timer", func(c *Context) { c.WaitTimerSeconds = number(1 << 31) }, "waitTimerSeconds must"},
		{"negative expiry", func(c *Context) { c.HoldExpirySeconds = -1 }, "holdExpirySeconds must"},
		{"negative timeout", func(c *Context) { c.ConcurrencyTimeoutMs = -1 }, "concurrencyTimeoutMs must"},
	}
	for _, tt := range tests {
		c := Context{Name: "prod", Type: Fixed}
		tt.change(&c)
		got := ""
		if err := c.Check(); err != nil {
			got = err.Error()
		}
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestBindingsAreCheckedBeforeTheyAreStored(t *testing.T) {
	tests := []struct {
		binding Binding
		want    string // "" = fine
	}{
		{Binding{"aws/**", "**"}, ""},
		{Binding{"pg:hosts/${agentId}", "/^web-[0-9]+$/i"}, ""},
		{Binding{"aws", "web-{1,2}"}, ""},
		{Binding{"", "**"}, "scopePattern: glob pattern is empty"},
		{Binding{"aws", "/(a+)+$/"}, "hostPattern: regular expression is ReDoS-prone"},
		{Binding{"aws", "/(/"}, "hostPattern: invalid regular expression"},
		{Binding{"aws", strings.Repeat("x", 1025)}, "hostPattern: pattern must"},
		{Binding{"aws", "a\x00"}, "hostPattern: pattern must"},
	}
	for _, tt := range tests {
		err := tt.binding.Check()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.binding, err, tt.want)
		}
	}
	if err := (Binding{"aws", "/(a+)+$/"}).Check(); !errors.Is(err, regex.ErrUnsafe) {
		t.Errorf("error %v is not ErrUnsafe", err)
	}
}

func TestVariablesOfTheServerAreRefused(t *testing.T) {
	tests := []struct{ key, value, want string }{
		{"A", "", ""},
		{"", "x", "key must have"},
		{"A=B", "x", "key must have"},
		{"KICI_RUN_ID", "x", "key must not begin with KICI_"},
		{"A", "\x00", "value must be UTF-8"},
		{"A", strings.Repeat("x", maxValue+1), "value must have at most"},
	}
	for _, tt := range tests {
		err := CheckVariable(tt.key, tt.value)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%q: %v, want %q", tt.key, err, tt.want)
		}
	}
}

func TestStoredListsThatCannotBeRead(t *testing.T) {
	tests := []struct {
		stored     string
		list       []string
		unreadable bool // as reviewers
	}{
		{"", nil, false}, {"null", []string{}, false}, {"[]", []string{}, false}, {`["a","b"]`, []string{"a", "b"}, false},
		{"{", nil, true}, {`{"a":1}`, nil, true}, {`["a",1]`, nil, true}, {`["a",null]`, nil, true}, {`"a"`, nil, true},
	}
	for _, tt := range tests {
		if got := ReadList(tt.stored); !slices.Equal(got, tt.list) {
			t.Errorf("list %s: %q", tt.stored, got)
		}
		if got, unreadable := ReadReviewers(tt.stored); !slices.Equal(got, tt.list) || unreadable != tt.unreadable {
			t.Errorf("reviewers %s: %q, unreadable %v", tt.stored, got, unreadable)
		}
	}
	if _, unreadable := ReadReviewers(`["a",""]`); !unreadable {
		t.Error("a reviewer without a name reads as nobody")
	}
}
