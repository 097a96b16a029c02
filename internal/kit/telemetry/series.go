package telemetry

import (
	"slices"
	"strings"
	"sync"
)

// Label is a label of a metric. A label whose values come from outside needs a cap; 0 is for a closed set.
type Label struct {
	Name string
	Cap  int
}

// metric is one name with all its series.
type metric struct {
	kind, name, help string
	labels           []Label
	byName           []int          // places of the labels in the order of their names
	bounds           []float64      // of a histogram's buckets
	read             func() float64 // of a metric that is kept elsewhere; nil otherwise

	mu     sync.Mutex
	seen   []map[string]bool  // values of each label
	series map[string]*series // by label values
}

// series is one line of a metric, or the lines of one histogram.
type series struct {
	values []string  // of the labels
	value  float64   // the sum, of a histogram
	counts []float64 // of observations up to each bound of a histogram, cumulative
	count  float64   // of all its observations
}

func newMetric(kind, name, help string, labels []Label) *metric {
	m := &metric{kind: kind, name: name, help: help, labels: labels, seen: make([]map[string]bool, len(labels)), series: map[string]*series{}}
	for i := range labels {
		m.seen[i] = map[string]bool{}
		m.byName = append(m.byName, i)
	}
	slices.SortFunc(m.byName, func(a, b int) int { return strings.Compare(labels[a].Name, labels[b].Name) })
	return m
}

// change applies f to the series of these label values, which it makes if there is none.
func (m *metric) change(values []string, f func(*series)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	values = m.boundedLocked(values)
	key := seriesKey(values)
	s := m.series[key]
	if s == nil {
		s = &series{values: values, counts: make([]float64, len(m.bounds))}
		m.series[key] = s
	}
	f(s)
}

func (m *metric) forget(values []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.series, seriesKey(m.boundedLocked(values)))
}

// seriesKey joins values by a byte that no valid text holds.
func seriesKey(values []string) string { return strings.Join(values, "\xff") }

// boundedLocked turns values into those that may be used, one for each label, and keeps count of the capped ones.
func (m *metric) boundedLocked(values []string) []string {
	out := make([]string, len(m.labels))
	for i := range min(len(values), len(out)) {
		out[i] = strings.ToValidUTF8(values[i], "\uFFFD")
	}
	for i, l := range m.labels {
		switch {
		case l.Cap == 0 || m.seen[i][out[i]]:
		case len(m.seen[i]) >= l.Cap:
			out[i] = Overflow
		default:
			m.seen[i][out[i]] = true
		}
	}
	return out
}

func (s *series) observe(bounds []float64, v float64) {
	for i, bound := range bounds {
		if v <= bound {
			s.counts[i]++
		}
	}
	s.count++
	s.value += v
}

// family is the metric as it is now, its series in the order of their label values.
func (m *metric) family() Family {
	f := Family{Kind: m.kind, Name: m.name, Help: m.help}
	if m.read != nil {
		f.Samples = []Sample{{Value: m.read()}}
		return f
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*series, 0, len(m.series))
	for _, s := range m.series {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *series) int {
		return slices.CompareFunc(m.byName, m.byName, func(i, _ int) int { return strings.Compare(a.values[i], b.values[i]) })
	})
	for _, s := range list {
		var pairs []Pair
		for _, i := range m.byName {
			pairs = append(pairs, Pair{m.labels[i].Name, s.values[i]})
		}
		if m.kind == KindHistogram {
			f.Samples = append(f.Samples, HistogramSamples(pairs, m.bounds, s.counts, s.count, s.value)...)
		} else {
			f.Samples = append(f.Samples, Sample{Labels: pairs, Value: s.value})
		}
	}
	return f
}
