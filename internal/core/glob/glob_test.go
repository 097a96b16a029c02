package glob

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kici/internal/kit/regex"
	"kici/internal/vectors"
)

func TestVectorsIsMatch(t *testing.T) {
	for _, c := range vectors.LoadKind(t, "globs.json", "isMatch") {
		t.Run(c.Name, func(t *testing.T) {
			var in struct{ Pattern, Value string }
			if err := json.Unmarshal(c.Input, &in); err != nil {
				t.Fatal(err)
			}
			got, err := Match(in.Pattern, in.Value)
			var want bool
			if json.Unmarshal(c.Expected, &want) == nil {
				if err != nil || got != want {
					t.Errorf("%v, %v; want %v", got, err, want)
				}
				return
			}
			var failed struct{ Error string }
			if err := json.Unmarshal(c.Expected, &failed); err != nil {
				t.Fatal(err)
			}
			if failed.Error != "TypeError" || !errors.Is(err, ErrEmpty) {
				t.Errorf("%v, %v; want error %s", got, err, failed.Error)
			}
		})
	}
}

// The file holds random patterns with what picomatch 4.0.3 said about them under Node 20.
func TestMatchAgreesWithPicomatch(t *testing.T) {
	raw, err := os.ReadFile("testdata/picomatch-4.0.3.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Pattern, Source string
		Match, Miss     []string
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		p, err := Compile(c.Pattern)
		if err != nil {
			t.Fatalf("%q: %v", c.Pattern, err)
		}
		for _, s := range c.Match {
			if !p.Match(s) {
				t.Errorf("%q does not match %q", c.Pattern, s)
			}
		}
		for _, s := range c.Miss {
			if p.Match(s) {
				t.Errorf("%q matches %q", c.Pattern, s)
			}
		}
		if source, err := Source(c.Pattern); err != nil || c.Source != "" && source != c.Source {
			t.Errorf("%q stands for %s (%v), want %s", c.Pattern, source, err, c.Source)
		}
	}
}

func TestMatchRules(t *testing.T) {
	tests := []struct {
		name, pattern, value string
		want                 bool
	}{
		{"star hides dot files", "*", ".git", false},
		{"question mark is one unit, an emoji two", "?", "😀", false},
		{"two question marks take an emoji", "??", "😀", true},
		{"numbers in braces are a class", "v{1..10}", "v10", false},
		{"class that starts with ! is no negation", "[!0-9]", "5", true},
		{"negated group", "!(x)*", "xa", false},
		{"glued globstar is a star", "rel/**x", "rel/a/x", false},
		{"back-reference goes to JavaScript", `(a|b)\1`, "bb", true},
		{"look-behind goes to JavaScript", `(a|b)(?<=b)`, "b", true},
		{"expression that is none matches nothing", "[b-a]", "b", false},
		{"expression that is none matches its own text", "[b-a]", "[b-a]", true},
		{"end anchor inside", "$$x", "$x", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := Match(tt.pattern, tt.value); err != nil || got != tt.want {
				t.Errorf("%q on %q: %v, %v; want %v", tt.pattern, tt.value, got, err, tt.want)
			}
		})
	}
}

func TestCompileRefusesEmptyAndOverlongPatterns(t *testing.T) {
	if _, err := Compile(""); !errors.Is(err, ErrEmpty) {
		t.Errorf("empty: %v", err)
	}
	if _, err := Compile(strings.Repeat("a", maxPattern+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("overlong: %v", err)
	}
	if _, err := Compile(strings.Repeat("é", maxPattern)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func TestSourceIsWhatLabelGlobsCompileTo(t *testing.T) {
	for pattern, want := range map[string]string{
		"box-*": `^(?:^(?:box\-[^/]*?)$)$`,
		"*":     `^(?:(?!\.)(?=.)[^/]*?\/?)$`,
		"[b-a]": `$^`,
		"x\n":   `^(?:^(?:x\n)$)$`,
	} {
		if got, err := Source(pattern); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", pattern, got, err, want)
		}
	}
}

func TestNestedRepetitionEndsByMemory(t *testing.T) {
	if got, err := Match("+(+(a))b", strings.Repeat("a", 5000)); err != nil || got {
		t.Errorf("%v, %v", got, err)
	}
}

func TestMatchGivesUpPastItsBudget(t *testing.T) {
	pattern := strings.Repeat("*a", 200) + "b"
	p, err := Compile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("a", 200_000) + "/ab"
	if ok, err := p.Test(value); !errors.Is(err, ErrBudget) || ok {
		t.Errorf("%v, %v", ok, err)
	}
	if p.Match(value) {
		t.Error("Match says yes where Test gave up")
	}
}

func TestOnePatternServesManyGoroutines(t *testing.T) {
	p, err := Compile("**/*.{ts,é}")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if !p.Match("a/b.ts") || !p.Match("a/é.é") || p.Match("a/b.go") {
					t.Error("a wrong answer")
				}
			}
		})
	}
	wg.Wait()
}

func pieces() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{
		"a", "b", ".", "/", "*", "**", "?", "!", "(", ")", "|", "{", "}", ",", "[", "]", "^", "-", `\`, "+", "@", "é", "😀",
		"**/", "/**", "!(", "+(", "{a,b}", "[ab]", "\n", ".md", "..", "1",
	})
}

func drawText(t *rapid.T, label string) string {
	return strings.Join(rapid.SliceOfN(pieces(), 0, 6).Draw(t, label), "")
}

// What the program says must be what a JavaScript engine says about the expression; the filter may only hurry a no.
func TestProgramAndFilterFollowTheExpression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern, value := drawText(t, "pattern"), drawText(t, "value")
		p, err := Compile(pattern)
		if err != nil || p.prog == nil {
			return
		}
		source, err := Source(pattern)
		if err != nil {
			t.Fatal(err)
		}
		// The look-ahead is always true; it keeps the expression away from the linear engine.
		r, err := regex.Compile("(?=)"+source, "")
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.Match(value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.prog.match(value, new(maxSteps)); err != nil || got != want {
			t.Fatalf("%q on %q: program %v (%v), JavaScript %v", pattern, value, got, err, want)
		}
		if want && !p.filter.admits(value) || p.filter.exact && p.filter.admits(value) != want {
			t.Fatalf("%q on %q: filter %+v, JavaScript %v", pattern, value, p.filter, want)
		}
		begins := strings.HasPrefix(value, p.Prefix())
		ends := strings.HasSuffix(value, p.Suffix()) || strings.HasSuffix(value, p.Suffix()+"/")
		if want && !(begins && ends) {
			t.Fatalf("%q matches %q, which is not %q … %q", pattern, value, p.Prefix(), p.Suffix())
		}
	})
}

func TestPlainNamesMatchOnlyThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9_/.-]{1,12}`)
		pattern, value := name.Draw(t, "pattern"), name.Draw(t, "value")
		if strings.HasPrefix(pattern, "./") {
			return
		}
		if got, err := Match(pattern, value); err != nil || got != (pattern == value) {
			t.Fatalf("%q on %q: %v, %v", pattern, value, got, err)
		}
	})
}

// Patterns as long as they may be cost no more than their length to prepare; each of these once took its square, seconds.
func TestLongestPatternsCompile(t *testing.T) {
	for _, piece := range []string{
		"(", "[", "{", "}", ")", "*", "?", "/", "+", "!", `"`, `\`, "a|", "!(", "[a]", ".a", "**/", "(?<", "[[:alpha:", "{a..b}", "!(*).a", "+(a|",
	} {
		pattern := strings.Repeat(piece, maxPattern/len(piece))
		for _, pattern := range []string{pattern, "(" + pattern[1:], "*" + pattern[1:]} {
			p, err := compile(pattern)
			if err != nil && !errors.Is(err, ErrTooLong) && !errors.Is(err, regex.ErrTimeout) {
				t.Fatalf("%q…: %v", piece, err)
			}
			if err == nil {
				p.Match("a/" + strings.Repeat("ab", 100))
			}
		}
	}
	nested := strings.Repeat("{", maxPattern/2) + strings.Repeat("}", maxPattern/2)
	if _, err := compile(nested); !errors.Is(err, ErrTooLong) {
		t.Errorf("braces within braces: %v", err)
	}
}

// Whatever the pattern and the value, matching neither panics nor does more than it may, and a pattern matches its own text.
func TestAnyMatchKeepsToItsBudget(t *testing.T) {
	text := func() *rapid.Generator[string] {
		return rapid.OneOf(rapid.String(), rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(drawText(t, "piece"), rapid.IntRange(1, 40).Draw(t, "times"))
		}))
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern, value := text().Draw(t, "pattern"), text().Draw(t, "value")
		p, err := Compile(pattern)
		if err != nil {
			if pattern != "" {
				t.Fatal(err)
			}
			return
		}
		b := Budget{Steps: rapid.IntRange(0, 5000).Draw(t, "steps"), Searches: regex.NewAllowance(time.Second)}
		given := b.Steps
		ok, err := p.TestWithin(value, &b)
		if err != nil && (ok || !errors.Is(err, ErrBudget) && !errors.Is(err, regex.ErrTimeout)) {
			t.Fatalf("%q on %q: %v, %v", pattern, value, ok, err)
		}
		if taken := given - b.Steps; taken > given+maxMemory/512+1 || taken < 0 {
			t.Fatalf("%q on %q took %d of %d steps", pattern, value, taken, given)
		}
		if ok, err := p.TestWithin(pattern, &Budget{}); err != nil || !ok {
			t.Fatalf("%q does not match itself: %v, %v", pattern, ok, err)
		}
	})
}

func FuzzMatch(f *testing.F) {
	for _, c := range vectors.LoadKind(f, "globs.json", "isMatch") {
		var in struct{ Pattern, Value string }
		if err := json.Unmarshal(c.Input, &in); err != nil {
			f.Fatal(err)
		}
		f.Add(in.Pattern, in.Value)
	}
	for _, p := range []string{"main", "release/**", "!(a|b)/x", "{a,b{c,d}}", "[[:digit:]]", "[!a]", "!!a", `a\?`, "**.md", "v{1..3}"} {
		f.Add(p, "release/1")
		f.Add(p, "é😀")
	}
	f.Fuzz(func(t *testing.T, pattern, value string) {
		p, err := Compile(pattern)
		if err != nil {
			return
		}
		first, err := p.Test(value)
		if err != nil && first {
			t.Error("an error and a match at once")
		}
		if again, _ := p.Test(value); again != first {
			t.Error("the same question has two answers")
		}
		if value == pattern && !first {
			t.Error("a pattern does not match its own text")
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	for _, c := range [][2]string{
		{"src/**", "docs/a.md"}, {"src/**", "src/app/server/index.ts"}, {"**/*.md", "src/app/server/index.ts"},
		{"**/*.{ts,tsx}", "src/app/server/index.tsx"}, {"release/*", "release/12.4"}, {"main", "main2"},
	} {
		b.Run(strings.ReplaceAll(c[0]+" on "+c[1], "/", "-"), func(b *testing.B) {
			p, err := Compile(c[0])
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				p.Match(c[1])
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := compile("src/**/*.{ts,tsx}"); err != nil {
			b.Fatal(err)
		}
	}
}
