package telemetry

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"pgregory.net/rapid"
)

func counted(name string, v float64, labels ...string) Reading {
	r := Reading{Kind: KindCounter, Name: name, Value: v}
	for i := 0; i < len(labels); i += 2 {
		r.Labels = map[string]string{labels[i]: labels[i+1]}
	}
	return r
}

func measured(v float64) Reading { return Reading{Kind: KindGauge, Name: "active", Value: v} }

func timed(counts []float64, count, sum float64) Reading {
	return Reading{Kind: KindHistogram, Name: "took", Bounds: []float64{1, 5}, Counts: counts, Count: count, Sum: sum}
}

// stage lets processes speak.
type stage struct {
	sums *sums
	now  map[string][]Reading
	reg  *prometheus.Registry
}

func newStage() *stage {
	s := &stage{reg: prometheus.NewRegistry()}
	s.sums = newSums("Of all processes.", func() map[string][]Reading { return s.now })
	s.reg.MustRegister(s.sums)
	return s
}

// text is what the sums show of what every process says now.
func (s *stage) text(t interface{ Fatal(...any) }, now map[string][]Reading) string {
	s.now = now
	var text strings.Builder
	if err := writeText(&text, s.reg); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// lines are the text without helps and types.
func (s *stage) lines(t *testing.T, now map[string][]Reading) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(s.text(t, now)) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestWhatProcessesHaveCountedNeverFalls(t *testing.T) {
	s := newStage()
	jobs := func(v float64) Reading { return counted("jobs", v, "status", "success") }
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
		if diff := cmp.Diff(turn.want, s.lines(t, turn.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", turn.what, diff)
		}
	}
}

func TestHistogramsOfProcessesAreAddedBucketByBucket(t *testing.T) {
	s := newStage()
	s.lines(t, map[string][]Reading{"a": {timed([]float64{1, 2}, 3, 20)}, "b": {timed([]float64{0, 1}, 1, 4)}})
	got := s.text(t, map[string][]Reading{"b": {timed([]float64{1, 2}, 2, 5)}})
	want := `# HELP took Of all processes.
# TYPE took histogram
took_bucket{le="1"} 2
took_bucket{le="5"} 4
took_bucket{le="+Inf"} 5
took_sum 25
took_count 5
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNothingThatAProcessSaysBreaksTheText(t *testing.T) {
	other := timed([]float64{1, 1}, 1, 1)
	other.Bounds = []float64{1, 6}
	buckets := func(count, sum float64, bounds, counts []float64) Reading {
		return Reading{Kind: KindHistogram, Name: "x", Bounds: bounds, Counts: counts, Count: count, Sum: sum}
	}
	first := []Reading{counted("jobs", 1), counted("y_count", 1), timed([]float64{0, 0}, 0, 0)}
	want := newStage().lines(t, map[string][]Reading{"a": first})
	for what, r := range map[string]Reading{
		"a name that is none":                            counted("bad name", 1),
		"no name":                                        counted("", 1),
		"a long name":                                    counted(strings.Repeat("n", maxSumText+1), 1),
		"an unknown kind":                                {Kind: "summary", Name: "x", Value: 1},
		"a label that is none":                           counted("x", 1, "a b", "c"),
		"a label of the library's":                       counted("x", 1, "__name__", "jobs"),
		"the label of buckets":                           counted("x", 1, "le", "c"),
		"a value that is no text":                        counted("x", 1, "a", "\xff"),
		"a long value":                                   counted("x", 1, "a", strings.Repeat("v", maxSumText+1)),
		"a count that is no number":                      counted("x", math.NaN()),
		"a count without end":                            counted("x", math.Inf(1)),
		"a count below zero":                             counted("x", -1),
		"a measure that is no number":                    {Kind: KindGauge, Name: "x", Value: math.NaN()},
		"buckets without counts":                         buckets(0, 0, []float64{1}, nil),
		"buckets of a number":                            {Kind: KindGauge, Name: "x", Bounds: []float64{1}, Counts: []float64{1}},
		"bounds in no order":                             buckets(1, 1, []float64{2, 1}, []float64{1, 1}),
		"a bound twice":                                  buckets(1, 1, []float64{1, 1}, []float64{1, 1}),
		"a bound that is no number":                      buckets(1, 1, []float64{math.NaN()}, []float64{1}),
		"the last bound":                                 buckets(1, 1, []float64{math.Inf(1)}, []float64{1}),
		"counts that fall":                               buckets(2, 1, []float64{1, 2}, []float64{2, 1}),
		"counts above that of all":                       buckets(1, 1, []float64{1}, []float64{2}),
		"a half count":                                   buckets(1, 1, []float64{1}, []float64{0.5}),
		"a bucket below zero":                            buckets(1, 1, []float64{1}, []float64{-1}),
		"a bucket that is no number":                     buckets(1, 1, []float64{1}, []float64{math.NaN()}),
		"a count that is too great":                      buckets(1e300, 1, nil, nil),
		"a sum that is no number":                        buckets(1, math.NaN(), nil, nil),
		"too many buckets":                               buckets(0, 0, rising(maxSumBuckets+1), make([]float64, maxSumBuckets+1)),
		"a kind that the name has not":                   {Kind: KindGauge, Name: "jobs", Value: 9},
		"other bounds than were shown":                   other,
		"a name that a histogram's parts use":            counted("took_bucket", 9),
		"a histogram with a part of a name that is used": {Kind: KindHistogram, Name: "y", Count: 1},
	} {
		s := newStage()
		s.lines(t, map[string][]Reading{"a": first})
		if diff := cmp.Diff(want, s.lines(t, map[string][]Reading{"a": first, "b": {r}})); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
}

func rising(n int) []float64 {
	var out []float64
	for i := range n {
		out = append(out, float64(i))
	}
	return out
}

func TestWhatProcessesCanShowIsBounded(t *testing.T) {
	many := func(n int, one func(i string) Reading) map[string][]Reading {
		var list []Reading
		for i := range n {
			list = append(list, one(fmt.Sprint("n", i)))
		}
		return map[string][]Reading{"a": list}
	}
	if n := len(newStage().lines(t, many(maxSums+100, func(i string) Reading { return counted("many", 1, "n", i) }))); n != maxSums {
		t.Errorf("%d series", n)
	}
	if n := len(newStage().lines(t, many(maxSumNames+100, func(i string) Reading { return counted(i, 1) }))); n != maxSumNames {
		t.Errorf("%d names", n)
	}
}

// TestReadingsAreAddedInTheOrderInWhichTheyWereRead scrapes side by side: what a process has said before is not to be
// taken for a process that began anew.
func TestReadingsAreAddedInTheOrderInWhichTheyWereRead(t *testing.T) {
	const scrapes = 2000
	var n atomic.Int64
	s := newSums("Of all processes.", func() map[string][]Reading {
		return map[string][]Reading{"a": {counted("jobs", float64(n.Add(1)))}}
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range scrapes / 4 {
				s.total()
			}
		})
	}
	all.Wait()
	if got := s.total()[0].Value; got != scrapes+1 {
		t.Errorf("%v were counted, %d is shown", scrapes+1, int(got))
	}
}

// TestNoWordsOfProcessesMakeAScrapeFail draws from few names, so that words clash in all ways.
func TestNoWordsOfProcessesMakeAScrapeFail(t *testing.T) {
	name := rapid.SampledFrom([]string{"x", "x_count", "x_sum", "x_bucket", "x_bucket_count", "a:b", "__x", "", "x y", "\xff"})
	label := rapid.SampledFrom([]string{"a", "b", "le", "quantile", "__name__", "_", "", "a b", "a:b", "\xff"})
	value := rapid.SampledFrom([]float64{0, 1, 2, 0.5, -1, 1e308, -1e308, 1 << 53, math.NaN(), math.Inf(1), math.Inf(-1)})
	reading := rapid.Custom(func(t *rapid.T) Reading {
		return Reading{
			Kind:   rapid.SampledFrom([]string{KindCounter, KindGauge, KindHistogram, "summary", ""}).Draw(t, "kind"),
			Name:   name.Draw(t, "name"),
			Labels: rapid.MapOfN(label, rapid.SampledFrom([]string{"", "v", "\"\n\\", "\xff"}), 0, 2).Draw(t, "labels"),
			Value:  value.Draw(t, "value"),
			Bounds: rapid.SliceOfN(value, 0, 3).Draw(t, "bounds"),
			Counts: rapid.SliceOfN(value, 0, 3).Draw(t, "counts"),
			Count:  value.Draw(t, "count"),
			Sum:    value.Draw(t, "sum"),
		}
	})
	words := rapid.MapOfN(rapid.SampledFrom([]string{"p", "q"}), rapid.SliceOfN(reading, 0, 8), 0, 2)
	rapid.Check(t, func(t *rapid.T) {
		s := newStage()
		for range 3 {
			parser := expfmt.NewTextParser(model.LegacyValidation)
			if _, err := parser.TextToMetricFamilies(strings.NewReader(s.text(t, words.Draw(t, "words")))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestARegistryShowsItsOwnWhereWordsClashWithIt(t *testing.T) {
	r := NewRegistry()
	r.Counter("own", "Its own.")
	r.Histogram("times", "Its own.", []float64{1})
	r.SumsFunc("Of all processes.", func() map[string][]Reading {
		return map[string][]Reading{"a": {counted("own", 7), counted("times_count", 7), counted("go_goroutines", 7), measured(8)}}
	})
	body, _ := scrape(t, r)
	if !strings.Contains(body, "\nown 0\n") || !strings.Contains(body, "\ntimes_count 0\n") || !strings.Contains(body, "\nactive 8\n") {
		t.Error(body)
	}
	for _, foreign := range []string{"own 7", "times_count 7", "# HELP own Of all", "# HELP go_goroutines Of all"} {
		if strings.Contains(body, foreign) {
			t.Errorf("shown: %s", foreign)
		}
	}
}
