package telemetry

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
)

// The bounds of what other processes can make a registry show. What goes beyond them is left out.
const (
	maxSumNames   = 200
	maxSums       = 2000 // series
	maxSumLabels  = 8    // of one
	maxSumText    = 128  // bytes of a name or a label's value
	maxSumBuckets = 64   // of one histogram
	maxSumCount   = 1 << 53
)

// sums adds up what other processes say of themselves, by name and labels. What a process has counted stays when it is
// gone, or begins to count anew: a sum that fell would look as if all the others had counted everything once more.
type sums struct {
	help string
	read func() map[string][]Reading // the last words of every process; one that is missing is gone

	mu    sync.Mutex
	last  map[string]map[string]Reading // by process and series
	kept  map[string]Reading            // of what is gone, by series
	kinds map[string]string             // of the names that were ever shown
	known map[string][]float64          // bounds of the series that were ever shown; none of what is no histogram
}

func newSums(help string, read func() map[string][]Reading) *sums {
	return &sums{help: help, read: read, kept: map[string]Reading{}, kinds: map[string]string{}, known: map[string][]float64{}}
}

// Describe names nothing in advance, since what processes say is not known.
func (s *sums) Describe(chan<- *prometheus.Desc) {}

// Collect gives the sums to the library.
func (s *sums) Collect(to chan<- prometheus.Metric) { s.total().Collect(to) }

// total reads what every process says now. It reads under the lock: of two that are asked at once, the one with the older
// words would take those of the other for a process that began anew.
func (s *sums) total() readings {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.read()
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
	for _, series := range next {
		for key, r := range series {
			total[key] = r.plus(total[key])
		}
	}
	return slices.Collect(maps.Values(total))
}

// admitLocked gives those readings that can be shown, by series.
func (s *sums) admitLocked(list []Reading) map[string]Reading {
	out := make(map[string]Reading, len(list))
	for _, r := range list {
		if !r.valid() || s.clashesLocked(r) {
			continue
		}
		key := r.key()
		bounds, known := s.known[key]
		if !known && len(s.known) >= maxSums || known && !slices.Equal(bounds, r.Bounds) {
			continue
		}
		r.Help = s.help
		s.known[key], s.kinds[r.Name] = r.Bounds, r.Kind
		out[key] = r
	}
	return out
}

// clashesLocked tells whether the name stands for something else, or would be read as a part of a histogram. What was
// shown first stays. A name beyond the last one clashes with all.
func (s *sums) clashesLocked(r Reading) bool {
	if kind, known := s.kinds[r.Name]; known || len(s.kinds) >= maxSumNames {
		return kind != r.Kind
	}
	return slices.ContainsFunc([]string{"_bucket", "_count", "_sum"}, func(suffix string) bool {
		whole, part := strings.CutSuffix(r.Name, suffix)
		return part && s.kinds[whole] == KindHistogram || r.Kind == KindHistogram && s.kinds[r.Name+suffix] != ""
	})
}

// keepLocked keeps what was counted. What was measured, such as how much is going on, went with its process.
func (s *sums) keepLocked(key string, r Reading) {
	if r.Kind != KindGauge {
		s.kept[key] = r.plus(s.kept[key])
	}
}

// valid tells whether a reading can be written and added to others.
func (r Reading) valid() bool {
	if !validName(r.Name) || len(r.Labels) > maxSumLabels || !finite(r.Value) {
		return false
	}
	for name, value := range r.Labels {
		if !validName(name) || name == "le" || len(value) > maxSumText || !utf8.ValidString(value) {
			return false
		}
	}
	switch r.Kind {
	case KindGauge:
		return len(r.Bounds) == 0
	case KindCounter:
		return len(r.Bounds) == 0 && r.Value >= 0
	default:
		return r.Kind == KindHistogram && r.validBuckets()
	}
}

// validName is for metrics and labels: those with colons are for rules of Prometheus, and the library keeps some to itself.
func validName(name string) bool {
	return model.LegacyValidation.IsValidLabelName(name) && len(name) <= maxSumText && !strings.HasPrefix(name, model.ReservedLabelPrefix)
}

// validBuckets tells whether each bucket counts what the ones before it count, and perhaps more.
func (r Reading) validBuckets() bool {
	if len(r.Bounds) != len(r.Counts) || len(r.Bounds) > maxSumBuckets || !finite(r.Sum) {
		return false
	}
	for i, bound := range r.Bounds {
		if !finite(bound) || i > 0 && bound <= r.Bounds[i-1] {
			return false
		}
	}
	before := 0.0
	for _, n := range append(slices.Clone(r.Counts), r.Count) {
		if !(n >= before && n <= maxSumCount && n == math.Trunc(n)) { // the way it is put refuses what is no number, too
			return false
		}
		before = n
	}
	return true
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// key is the same for what is added up: name and labels, joined by a byte that no valid text holds.
func (r Reading) key() string {
	parts := []string{r.Name}
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		parts = append(parts, name, r.Labels[name])
	}
	return strings.Join(parts, "\xff")
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
