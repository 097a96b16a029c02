package logs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/logline"
	"kici/internal/server/logs/search"
)

// hits are the numbers and texts of what was found.
func hits(f search.Found) []string {
	out := []string{}
	for _, h := range f.Hits {
		out = append(out, fmt.Sprint(h.Line, " ", h.Text))
	}
	return out
}

func TestSearch(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		mustAppend(t, s, chunk("a", "compiling", "\x1b[31mERROR\x1b[0m: no \x1b[1mfile"), chunk("b", `path "C:\temp"`, "error again\t"), chunk("c", "ÉCOLE Straße", ""))
		tests := []struct {
			name string
			q    search.Query
			want []string
			next int64
		}{
			{"text", search.Query{Text: "error"}, []string{"3 error again\t"}, 6},
			{"text across colours", search.Query{Text: "ERROR: no file"}, []string{"1 ERROR: no file"}, 6},
			{"either case", search.Query{Text: "eRRor", Fold: true}, []string{"1 ERROR: no file", "3 error again\t"}, 6},
			{"either case beyond ASCII", search.Query{Text: "école STRAßE", Fold: true}, []string{"4 ÉCOLE Straße"}, 6},
			{"what JSON escapes", search.Query{Text: `"C:\temp"`}, []string{`2 path "C:\temp"`}, 6},
			{"not the form of the line", search.Query{Text: "stdout"}, []string{}, 6},
			{"not the mark", search.Query{Text: "chunk"}, []string{}, 6},
			{"an expression", search.Query{Pattern: `^\w+$`}, []string{"0 compiling"}, 6},
			{"an expression in either case", search.Query{Pattern: `^error\b`, Fold: true}, []string{"1 ERROR: no file", "3 error again\t"}, 6},
			{"an expression for an empty line", search.Query{Pattern: `^$`}, []string{"5 "}, 6},
			{"up to the limit", search.Query{Pattern: `.`, Limit: 2}, []string{"0 compiling", "1 ERROR: no file"}, 2},
			{"from where the last one ended", search.Query{Pattern: `.`, Limit: 2, From: 2}, []string{`2 path "C:\temp"`, "3 error again\t"}, 4},
			{"behind the end", search.Query{Text: "x", From: 99}, []string{}, 6},
		}
		for _, tt := range tests {
			got, err := s.Search(t.Context(), buildLog, tt.q)
			if diff := cmp.Diff(tt.want, hits(got)); diff != "" || err != nil || got.Next != tt.next || got.Total != 6 {
				t.Errorf("%s: next %d of %d, %v %s", tt.name, got.Next, got.Total, err, diff)
			}
		}
		got, err := s.Search(t.Context(), Path("r", "none", 0), search.Query{Text: "x"})
		if diff := cmp.Diff(search.Found{Hits: []search.Hit{}}, got); diff != "" || err != nil {
			t.Errorf("absent log: %v %s", err, diff)
		}
		got, err = s.Search(t.Context(), buildLog, search.Query{Text: "comp"})
		if want := (search.Hit{Line: 0, TS: "2026-01-01T00:00:00.000Z", Text: "compiling"}); err != nil || got.Hits[0] != want {
			t.Errorf("%+v, %v", got.Hits, err)
		}
	})
}

func TestSearchRefusesWhatItCannotDo(t *testing.T) {
	s := openAt(t, Options{Root: t.TempDir()})
	for want, q := range map[string]search.Query{
		"needs a text or an expression":   {},
		"not both":                        {Text: "a", Pattern: "b"},
		"longer than 1000 bytes":          {Text: strings.Repeat("a", 1001)},
		"not RE2":                         {Pattern: "(?=a)"},
		"missing closing )":               {Pattern: "("},
		"too large":                       {Pattern: "(abcdefghij){1000}"},
		"invalid repeat count: `{1,5000}": {Pattern: "a{1,5000}"},
	} {
		if _, err := s.Search(t.Context(), buildLog, q); !errors.Is(err, logline.ErrQuery) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %q", q, err, want)
		}
	}
}

// A search whose time is up tells where to go on, and gets to the end in that way.
func TestSearchWhoseTimeIsUpCanGoOn(t *testing.T) {
	s := openAt(t, Options{Root: t.TempDir()})
	lines := make([]string, 2000)
	lines[1999] = "needle"
	mustAppend(t, s, chunk("a", lines...))
	calls, q := 0, search.Query{Text: "needle", Time: time.Nanosecond}
	for {
		got, err := s.Search(t.Context(), buildLog, q)
		if calls++; err != nil || got.Next <= q.From {
			t.Fatalf("call %d: next %d, %v", calls, got.Next, err)
		}
		if q.From = got.Next; len(got.Hits) > 0 {
			break
		}
	}
	if calls < 5 {
		t.Errorf("%d calls: the time did not count", calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Search(ctx, buildLog, search.Query{Text: "needle"}); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

func TestLongLineIsCutAroundThePlace(t *testing.T) {
	s := openAt(t, Options{Root: t.TempDir()})
	mustAppend(t, s, chunk("a", strings.Repeat("ä", 10_000)+"needle"+strings.Repeat("ö", 10_000), "needle"+strings.Repeat("x", 9000)))
	got, err := s.Search(t.Context(), buildLog, search.Query{Text: "needle"})
	if err != nil || len(got.Hits) != 2 {
		t.Fatalf("%d hits, %v", len(got.Hits), err)
	}
	for i, h := range got.Hits {
		if len(h.Text) > 4<<10+10 || !strings.Contains(h.Text, "needle") || !utf8.ValidString(h.Text) || strings.ContainsRune(h.Text, utf8.RuneError) {
			t.Errorf("hit %d has %d bytes: %.50q", i, len(h.Text), h.Text)
		}
		if strings.HasPrefix(h.Text, "…") != (i == 0) || !strings.HasSuffix(h.Text, "…") {
			t.Errorf("hit %d does not say where it was cut: %.10q", i, h.Text)
		}
	}
}

// Search finds exactly the lines in which the standard library finds the text or the expression.
func TestSearchAgreesWithTheStandardLibrary(t *testing.T) {
	root, run := t.TempDir(), 0
	text := rapid.StringOfN(rapid.SampledFrom([]rune("aAbB\"\\\u017fsS.é")), 0, 12, -1)
	rapid.Check(t, func(rt *rapid.T) {
		run++
		s := openAt(t, Options{Root: root})
		defer s.Close()
		lines := rapid.SliceOfN(text, 1, 30).Draw(rt, "lines")
		c := chunk("a", lines...)
		c.RunID = fmt.Sprint(run)
		mustAppend(t, s, c)
		q := search.Query{Fold: rapid.Bool().Draw(rt, "fold"), From: int64(rapid.IntRange(0, len(lines)).Draw(rt, "from"))}
		wanted := rapid.StringOfN(rapid.SampledFrom([]rune("aAbB\"\\\u017fsé")), 1, 3, -1).Draw(rt, "wanted")
		expression := regexp.QuoteMeta(wanted)
		if rapid.Bool().Draw(rt, "expression") {
			q.Pattern = expression
		} else {
			q.Text = wanted
		}
		if q.Fold {
			expression = "(?i)" + expression
		}
		compiled, want := regexp.MustCompile(expression), []string{}
		for i, line := range lines {
			if int64(i) >= q.From && compiled.MatchString(line) {
				want = append(want, fmt.Sprint(i, " ", line))
			}
		}
		got, err := s.Search(t.Context(), Path(c.RunID, "build", 0), q)
		if diff := cmp.Diff(want, hits(got)); err != nil || diff != "" {
			rt.Fatalf("%+v: %v %s", q, err, diff)
		}
	})
}
