package telemetry

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Reading is a number, or a histogram, that another process keeps of itself.
type Reading struct {
	Kind, Name     string
	Labels         []Pair    // in the order of their names
	Value          float64   // of all but histograms
	Bounds, Counts []float64 // of a histogram: observations up to each bound, cumulative
	Count, Sum     float64   // of all its observations
}

// The bounds of what other processes can make a registry show. What goes beyond them is left out.
const (
	maxSums      = 2000 // series
	maxSumLabels = 8    // of one
	maxSumLabel  = 128  // bytes of a value
)

var sumName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,127}$`) })

// Sums adds up what other processes say of themselves, by name and labels. What a process has counted stays when it is
// gone, or begins to count anew: a sum that fell would look as if all the others had counted everything once more.
type Sums struct {
	mu    sync.Mutex
	last  map[string]map[string]Reading // by process and series
	kept  map[string]Reading            // of what is gone, by series
	kinds map[string]string             // of the names that were ever shown
	known map[string]bool               // series that were ever shown
}

// NewSums makes sums of nothing.
func NewSums() *Sums {
	return &Sums{last: map[string]map[string]Reading{}, kept: map[string]Reading{}, kinds: map[string]string{}, known: map[string]bool{}}
}

// Families are the sums, given what every process says now; one that is missing is gone.
func (s *Sums) Families(now map[string][]Reading) []Family {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]map[string]Reading, len(now))
	for _, process := range slices.Sorted(maps.Keys(now)) { // so that what is left out does not depend on chance
		next[process] = s.admitLocked(now[process])
	}
	for process, before := range s.last {
		for key, r := range before {
			if after, there := next[process][key]; !there || r.ahead(after) {
				s.keepLocked(key, r)
			}
		}
	}
	s.last = next
	total := maps.Clone(s.kept)
	for _, readings := range next {
		for key, r := range readings {
			total[key] = r.plus(total[key])
		}
	}
	return families(total)
}

// admitLocked gives those readings that can be shown, by series.
func (s *Sums) admitLocked(readings []Reading) map[string]Reading {
	out := make(map[string]Reading, len(readings))
	for _, r := range readings {
		if !r.valid() || s.kinds[r.Name] != "" && s.kinds[r.Name] != r.Kind {
			continue
		}
		key := r.key()
		if !s.known[key] && len(s.known) >= maxSums {
			continue
		}
		s.known[key], s.kinds[r.Name] = true, r.Kind
		out[key] = r
	}
	return out
}

// keepLocked keeps what was counted. What was measured, such as how much is going on, went with its process.
func (s *Sums) keepLocked(key string, r Reading) {
	if r.Kind != KindGauge {
		s.kept[key] = r.plus(s.kept[key])
	}
}

// valid tells whether a reading can be written and added to others.
func (r Reading) valid() bool {
	switch {
	case !sumName().MatchString(r.Name) || len(r.Labels) > maxSumLabels || len(r.Bounds) != len(r.Counts) || !slices.IsSorted(r.Bounds):
		return false
	case r.Kind != KindCounter && r.Kind != KindGauge && r.Kind != KindHistogram:
		return false
	}
	return !slices.ContainsFunc(r.Labels, func(l Pair) bool {
		return !sumName().MatchString(l.Name) || l.Name == "le" || len(l.Value) > maxSumLabel || !utf8.ValidString(l.Value)
	})
}

// key is the same for what is added up: name, labels, and the bounds of a histogram.
func (r Reading) key() string {
	parts := []string{r.Name}
	for _, l := range r.Labels {
		parts = append(parts, l.Name, l.Value)
	}
	for _, b := range r.Bounds {
		parts = append(parts, number(b))
	}
	return seriesKey(parts)
}

// ahead tells that a later reading has counted less, so that it is of a process that began anew.
func (r Reading) ahead(later Reading) bool {
	if r.Kind == KindHistogram {
		return r.Count > later.Count
	}
	return r.Value > later.Value
}

// plus adds a reading of the same series; the zero value adds nothing.
func (r Reading) plus(other Reading) Reading {
	r.Value, r.Count, r.Sum = r.Value+other.Value, r.Count+other.Count, r.Sum+other.Sum
	r.Counts = slices.Clone(r.Counts)
	for i, n := range other.Counts {
		r.Counts[i] += n
	}
	return r
}

// families sorts series into families.
func families(total map[string]Reading) []Family {
	var out []Family
	for _, key := range slices.Sorted(maps.Keys(total)) { // the name is first in the key
		r := total[key]
		at := slices.IndexFunc(out, func(f Family) bool { return f.Name == r.Name })
		if at < 0 {
			out, at = append(out, Family{Kind: r.Kind, Name: r.Name}), len(out)
		}
		out[at].Samples = append(out[at].Samples, r.samples()...)
	}
	slices.SortFunc(out, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (r Reading) samples() []Sample {
	if r.Kind == KindHistogram {
		return HistogramSamples(r.Labels, r.Bounds, r.Counts, r.Count, r.Sum)
	}
	return []Sample{{Labels: r.Labels, Value: r.Value}}
}
