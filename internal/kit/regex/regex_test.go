package regex

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"kici/internal/vectors"
)

func TestMatchFollowsJavaScript(t *testing.T) {
	tests := []struct {
		name, source, flags, text string
		want                      bool
	}{
		{"search is unanchored", `a.c`, "", "xabcx", true},
		{"empty pattern", ``, "", "anything", true},
		{"dot is one UTF-16 unit", `^.$`, "", "😀", false},
		{"dot is one character with u", `^.$`, "u", "😀", true},
		{"dot stops at every line terminator", `a.b`, "", "a\u2028b", false},
		{"dot takes them with s", `a.b`, "s", "a\nb", true},
		{"digits are ASCII", `^\d+$`, "", "١٢", false},
		{"space is Unicode", `^\s$`, "", "\u00a0", true},
		{"space takes the vertical tab", `^\s$`, "", "\v", true},
		{"dollar is the very end", `a$`, "", "a\n", false},
		{"dollar with m is any line's end", `main$`, "m", "main\nx", true},
		{"lines end at a carriage return, too", `main$`, "m", "main\r\nx", true},
		{"look-ahead", `(?=main)m`, "", "main", true},
		{"look-behind", `(?<!wip-)hotfix`, "", "wip-hotfix", false},
		{"back-reference", `(\w)\1`, "", "feed", true},
		{"case folding keeps to ASCII", `k`, "i", "\u212a", false},
		{"case folding with u does not", `k`, "iu", "\u212a", true},
		{"y anchors", `b`, "y", "ab", false},
		{"g changes nothing", `A`, "gi", "xa", true},
		{"named groups", `(?<y>\d{4})-\k<y>`, "", "2026-2026", true},
		{"word boundary", `\bfoo\b`, "", "a-foo-b", true},
		{"lone brace is literal", `a{`, "", "a{", true},
		{"escaped dash", `^a\-b$`, "", "a-b", true},
		{"negated class crosses lines", `^[^a]$`, "", "\n", true},
		{"lazy quantifier", `^a+?b$`, "", "aaab", true},
		{"class with a dash at its end", `^[a-]+$`, "", "a-a", true},
		{"leading zeros of a count", `^a{02}b{00}c{01,}d{0,02}?$`, "", "aacd", true},
		{"more repetitions than RE2 takes", `^a{1001}$`, "", strings.Repeat("a", 1001), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Compile(tt.source, tt.flags)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Match(tt.text); err != nil || got != tt.want {
				t.Errorf("%s on %q: %v, %v; want %v", r, tt.text, got, err, tt.want)
			}
		})
	}
}

func TestCompileRefusesWhatJavaScriptRefuses(t *testing.T) {
	for _, p := range [][2]string{
		{"(", ""}, {"a**", ""}, {"[b-a]", ""}, {"(?>a)", ""}, {"a", "zz"}, {"a", "ii"}, {"a", "uv"}, {`\-`, "u"},
		{"a{2,1}", ""}, {"^*", ""}, {"(?<n>a)(?<n>b)", ""}, {"*", ""}, {`[\d-a]`, "u"}, {"a{", "u"},
	} {
		_, err := Compile(p[0], p[1])
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("/%s/%s: %v, want a syntax error", p[0], p[1], err)
		}
	}
}

func TestRunawaySearchIsATimeoutAndTheNextSearchWorks(t *testing.T) {
	r, err := Compile(`^(?=x)?(a+)+$`, "")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := r.Match(strings.Repeat("a", 40) + "!"); !errors.Is(err, ErrTimeout) || found {
		t.Fatalf("runaway: %v, %v", found, err)
	}
	if found, err := r.Match("aaa"); err != nil || !found {
		t.Errorf("afterwards: %v, %v", found, err)
	}
}

func TestNestedQuantifiersWithoutLookAroundRunInLinearTime(t *testing.T) {
	r, err := Compile(`^(a+)+$`, "")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := r.Match(strings.Repeat("a", 100_000) + "!"); err != nil || found {
		t.Errorf("%v, %v", found, err)
	}
}

func TestSearchesFromManyGoroutinesShareTheSandboxes(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 4 * maxVMs {
		wg.Go(func() {
			source := fmt.Sprintf(`^(?!x)job-%d$`, i)
			r, err := Compile(source, "")
			if err != nil {
				t.Error(err)
				return
			}
			for j := range 3 {
				if found, err := r.Match(fmt.Sprint("job-", i+j)); err != nil || found != (j == 0) {
					t.Errorf("/%s/: %v, %v", source, found, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestMatchRefusesTextPastItsBound(t *testing.T) {
	r, err := Compile(`a`, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Match(strings.Repeat("a", MaxInput+1)); !errors.Is(err, ErrInput) {
		t.Errorf("%v", err)
	}
}

func TestManyTextsAreSearchedTogether(t *testing.T) {
	r, err := Compile(`^(?!x)b$`, "")
	if err != nil {
		t.Fatal(err)
	}
	for want, texts := range map[bool][]string{true: {"a", "xb", "b"}, false: {"a", "xb"}} {
		if got, err := r.MatchAny(texts, nil); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", texts, got, err, want)
		}
	}
	long := strings.Repeat("a", MaxInput/2+1)
	if _, err := r.MatchAny([]string{long, long}, nil); !errors.Is(err, ErrInput) {
		t.Errorf("past the bound together: %v", err)
	}
	linear, err := Compile(`b$`, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := linear.MatchAny([]string{long, long, "b"}, nil); err != nil || !got {
		t.Errorf("in linear time: %v, %v", got, err)
	}
}

func TestSpentAllowanceEndsSearchesInTheSandboxOnly(t *testing.T) {
	a := NewAllowance(1)
	odd, err := Compile(`^(?=a)a$`, "")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := odd.MatchAny([]string{"a"}, a); err != nil || !found {
		t.Fatalf("the first search: %v, %v", found, err)
	}
	if found, err := odd.MatchAny([]string{"a"}, a); !errors.Is(err, ErrTimeout) || found {
		t.Errorf("once it is spent: %v, %v", found, err)
	}
	linear, err := Compile(`^a$`, "")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := linear.MatchAny([]string{"a"}, a); err != nil || !found {
		t.Errorf("in linear time: %v, %v", found, err)
	}
}

// The RE2 form and the sandbox must never disagree where the RE2 form is used.
func TestTranslationMeansTheSame(t *testing.T) {
	atom := rapid.SampledFrom([]string{
		`a`, `B`, `.`, `\d`, `\W`, `\s`, `[a-c]`, `[^b]`, `[\w-]`, `[^\s]`, `é`, `\-`, `(a|b)`, `(?:x|)`, `\b`, `^`, `$`,
		`(?:a*)`, `\u0041`, `\x42`, `|`, `[\b]`, `\n`,
	})
	sign := rapid.SampledFrom([]string{"", "", "", "*", "+?", "?", "{2}", "{0,2}?", "{1,}", "{00}", "{01,}", "{0,02}"})
	flags := rapid.SampledFrom([]string{"", "i", "m", "s", "u", "im", "y", "gs", "mu"})
	text := rapid.StringOfN(rapid.RuneFrom([]rune("aAbBcx-_ \n\r\vé\u2028\u212a😀0")), 0, 6, -1)
	used := 0
	rapid.Check(t, func(t *rapid.T) {
		var source strings.Builder
		for range rapid.IntRange(0, 4).Draw(t, "terms") {
			source.WriteString(atom.Draw(t, "atom") + sign.Draw(t, "sign"))
		}
		r, err := Compile(source.String(), flags.Draw(t, "flags"))
		s := text.Draw(t, "text")
		if err != nil || r.linear == nil || !r.needs.holdsFor(s) {
			return
		}
		used++
		want, err := sandboxMatch(r.source, r.flags, []string{s}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.linear.MatchString(s); got != want {
			t.Fatalf("%s on %q: RE2 form %s says %v, JavaScript %v", r, s, r.linear, got, want)
		}
		if err := sandboxCompile(r.source, r.flags); err != nil {
			t.Fatalf("%s: taken without the parser's leave: %v", r, err)
		}
	})
	if used == 0 {
		t.Error("no pattern was translated")
	}
}

func TestVectorsReDoS(t *testing.T) {
	for _, c := range vectors.Load(t, "labels.json") {
		var in struct {
			Fn   string
			Args []json.RawMessage
		}
		if err := json.Unmarshal(c.Input, &in); err != nil {
			t.Fatal(err)
		}
		if in.Fn != "redos" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			var want struct{ Safe, Invalid bool }
			var source, flags string
			for raw, to := range map[*json.RawMessage]any{&c.Expected: &want, &in.Args[0]: &source, &in.Args[1]: &flags} {
				if err := json.Unmarshal(*raw, to); err != nil {
					t.Fatal(err)
				}
			}
			err := Guard(source, flags)
			var syntax *SyntaxError
			if (err == nil) != want.Safe || errors.As(err, &syntax) != want.Invalid {
				t.Errorf("guard says %v, want %+v", err, want)
			}
		})
	}
}

func TestGuardCountsNestingAndNumber(t *testing.T) {
	tests := map[string]bool{
		`^gpu-[0-9]+$`: true, `^(gpu|cpu)-[0-9]+$`: true, `(\d{2})+`: false, strings.Repeat("b?", 25): true,
		strings.Repeat("b?", 26): false, `(?=a+)b`: true, `(?=a+)+`: true, `(?<y>a*)*`: false, `a{`: true, `[(a+)+]`: true,
		`(?:[)]*)*`: false, `((a)*b)`: true,
	}
	for source, safe := range tests {
		if err := Guard(source, ""); (err == nil) != safe || !safe && !errors.Is(err, ErrUnsafe) {
			t.Errorf("/%s/: %v, want safe=%v", source, err, safe)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, c := range vectors.Load(f, "labels.json") {
		var in struct {
			Fn   string
			Args []json.RawMessage
		}
		var source, flags string
		if err := json.Unmarshal(c.Input, &in); err != nil {
			f.Fatal(err)
		}
		if in.Fn == "redos" && json.Unmarshal(in.Args[0], &source) == nil && json.Unmarshal(in.Args[1], &flags) == nil {
			f.Add(source, flags, "gpu-0")
		}
	}
	for _, s := range []string{`^a.c$`, `(\w)\1`, `[^a-z]{2,3}?`, `(?<=x)y`, `\u{1F600}`, `[[a]--b]`, `(`, `a{,3}`, `(?:a|b)*`} {
		f.Add(s, "", "abc")
		f.Add(s, "iu", "😀")
	}
	f.Fuzz(func(t *testing.T, source, flags, text string) {
		r, err := Compile(source, flags)
		guarded := Guard(source, flags)
		if err != nil {
			if guarded == nil {
				t.Errorf("guard accepts what does not compile: %v", err)
			}
			return
		}
		if r.linear == nil || !r.needs.holdsFor(text) || len(text) > 1000 {
			return
		}
		want, err := sandboxMatch(source, flags, []string{text}, nil)
		if errors.Is(err, ErrTimeout) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := r.linear.MatchString(text); got != want {
			t.Errorf("%s on %q: %v, JavaScript says %v", r, text, got, want)
		}
	})
}

func BenchmarkMatchLinear(b *testing.B) {
	r, err := Compile(`^release/\d+\.\d+$`, "")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if ok, err := r.Match("release/12.4"); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkMatchSandbox(b *testing.B) {
	r, err := Compile(`^(?!wip-)release/\d+$`, "")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if ok, err := r.Match("release/12"); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}
