package telemetry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func counted(name string, v float64, labels ...Pair) Reading {
	return Reading{Kind: KindCounter, Name: name, Value: v, Labels: labels}
}

func measured(v float64) Reading { return Reading{Kind: KindGauge, Name: "active", Value: v} }

func timed(counts []float64, count, sum float64) Reading {
	return Reading{Kind: KindHistogram, Name: "took", Bounds: []float64{1, 5}, Counts: counts, Count: count, Sum: sum}
}

// lines are what the sums show, without the types.
func lines(t *testing.T, s *Sums, now map[string][]Reading) []string {
	t.Helper()
	var text strings.Builder
	if err := WriteText(&text, s.Families(now)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestWhatProcessesHaveCountedNeverFalls(t *testing.T) {
	s := NewSums()
	jobs := func(v float64) Reading { return counted("jobs", v, Pair{"status", "success"}) }
	turns := []struct {
		what string
		now  map[string][]Reading
		want []string
	}{
		{"two processes", map[string][]Reading{"a": {jobs(3), measured(1)}, "b": {jobs(4), measured(2)}},
			[]string{"active 3", `jobs{status="success"} 7`}},
		{"one counts on", map[string][]Reading{"a": {jobs(3), measured(1)}, "b": {jobs(5), measured(0)}},
			[]string{"active 1", `jobs{status="success"} 8`}},
		{"one is gone", map[string][]Reading{"a": {jobs(3), measured(1)}},
			[]string{"active 1", `jobs{status="success"} 8`}},
		{"one began anew", map[string][]Reading{"a": {jobs(1), measured(1)}},
			[]string{"active 1", `jobs{status="success"} 9`}},
		{"the one that was gone is back, anew", map[string][]Reading{"a": {jobs(1)}, "b": {jobs(2)}},
			[]string{`jobs{status="success"} 11`}},
		{"all are gone", nil, []string{`jobs{status="success"} 11`}},
	}
	for _, turn := range turns {
		if diff := cmp.Diff(turn.want, lines(t, s, turn.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", turn.what, diff)
		}
	}
}

func TestHistogramsOfProcessesAreAddedBucketByBucket(t *testing.T) {
	s := NewSums()
	lines(t, s, map[string][]Reading{"a": {timed([]float64{1, 2}, 3, 20)}, "b": {timed([]float64{0, 1}, 1, 4)}})
	got := lines(t, s, map[string][]Reading{"b": {timed([]float64{1, 2}, 2, 5)}})
	want := []string{`took_bucket{le="1"} 2`, `took_bucket{le="5"} 4`, `took_bucket{le="+Inf"} 5`, "took_sum 25", "took_count 5"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNothingThatAProcessSaysBreaksTheText(t *testing.T) {
	var many []Reading
	for i := range maxSums + 100 {
		many = append(many, counted("many", 1, Pair{"n", fmt.Sprint(i)}))
	}
	for what, r := range map[string]Reading{
		"a name that is none":          counted("bad name", 1),
		"no name":                      counted("", 1),
		"an unknown kind":              {Kind: "summary", Name: "x", Value: 1},
		"a label that is none":         counted("x", 1, Pair{"a b", "c"}),
		"the label of buckets":         counted("x", 1, Pair{"le", "c"}),
		"a value that is no text":      counted("x", 1, Pair{"a", "\xff"}),
		"a long value":                 counted("x", 1, Pair{"a", strings.Repeat("v", maxSumLabel+1)}),
		"buckets without counts":       {Kind: KindHistogram, Name: "x", Bounds: []float64{1}},
		"bounds in no order":           {Kind: KindHistogram, Name: "x", Bounds: []float64{2, 1}, Counts: []float64{1, 1}},
		"a kind that the name has not": {Kind: KindGauge, Name: "jobs", Value: 9},
	} {
		s := NewSums()
		lines(t, s, map[string][]Reading{"a": {counted("jobs", 1)}})
		if diff := cmp.Diff([]string{"jobs 1"}, lines(t, s, map[string][]Reading{"a": {counted("jobs", 1)}, "b": {r}})); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
	if n := len(lines(t, NewSums(), map[string][]Reading{"a": many})); n != maxSums {
		t.Errorf("%d series", n)
	}
}

func TestARegistryShowsWhatIsKeptElsewhereUnderOtherNames(t *testing.T) {
	r := NewRegistry()
	r.Counter("own", "Its own.")
	r.FamiliesFunc(func() []Family {
		return []Family{{Kind: KindGauge, Name: "own", Samples: []Sample{{Value: 7}}}, {Kind: KindGauge, Name: "other", Samples: []Sample{{Value: 8}}}}
	})
	body, _ := scrape(t, r)
	if !strings.Contains(body, "\nown 0\n") || strings.Contains(body, "own 7") || !strings.Contains(body, "\nother 8\n") {
		t.Error(body)
	}
}
