// Package telemetry sets up a process's log and its metrics. It knows nothing of CI; what is counted is named elsewhere.
//
// The metrics are kept and written by hand. Prometheus' own library and the protobuf that it brings cost each process
// of the program 2 MiB before the first number is counted, also those that serve no metrics at all.
package telemetry

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Overflow stands for all values of a label beyond its cap, so that a sender cannot make series without end.
const Overflow = "__overflow__"

// Registry holds the metrics of one process.
type Registry struct {
	mu      sync.Mutex
	metrics map[string]*metric
	others  []func() []Family
}

// NewRegistry makes a registry with the runtime's own metrics.
func NewRegistry() *Registry { return &Registry{metrics: map[string]*metric{}} }

// Handler writes the metrics in the text format 0.0.4, whatever else the caller would accept.
func (r *Registry) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", TextType)
		_ = WriteText(w, r.families()) // fails only for a caller that has gone
	})
}

// families are all metrics that have something to show, by name.
func (r *Registry) families() []Family {
	list := append(runtimeFamilies(), processFamilies()...)
	r.mu.Lock()
	metrics := make([]*metric, 0, len(r.metrics))
	for _, m := range r.metrics {
		metrics = append(metrics, m)
	}
	others := slices.Clone(r.others)
	r.mu.Unlock()
	for _, m := range metrics {
		if f := m.family(); len(f.Samples) > 0 {
			list = append(list, f)
		}
	}
	for _, read := range others {
		for _, f := range read() {
			if !slices.ContainsFunc(list, func(own Family) bool { return own.Name == f.Name }) {
				list = append(list, f)
			}
		}
	}
	slices.SortFunc(list, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (r *Registry) register(m *metric) *metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.metrics[m.name] != nil {
		panic("two metrics are called " + m.name)
	}
	r.metrics[m.name] = m
	return m
}

// Counter only grows.
type Counter struct{ metric *metric }

// Counter registers a counter. Without labels it shows 0 from the start.
func (r *Registry) Counter(name, help string, defs ...Label) *Counter {
	m := r.register(newMetric(KindCounter, name, help, defs))
	if len(defs) == 0 {
		m.change(nil, func(*series) {})
	}
	return &Counter{m}
}

// Inc counts one, by label values in the order of the labels.
func (c *Counter) Inc(values ...string) { c.Add(1, values...) }

// Add counts n, which is not negative.
func (c *Counter) Add(n float64, values ...string) {
	c.metric.change(values, func(s *series) { s.value += n })
}

// Gauge goes up and down.
type Gauge struct{ metric *metric }

// Gauge registers a gauge.
func (r *Registry) Gauge(name, help string, defs ...Label) *Gauge {
	return &Gauge{r.register(newMetric(KindGauge, name, help, defs))}
}

// Set sets the value, by label values in the order of the labels.
func (g *Gauge) Set(v float64, values ...string) {
	g.metric.change(values, func(s *series) { s.value = v })
}

// Delete takes the series of these label values away, such as those of an agent that left.
func (g *Gauge) Delete(values ...string) { g.metric.forget(values) }

// Histogram counts observations by size.
type Histogram struct{ metric *metric }

// Histogram registers a histogram with these upper bounds of its buckets, in rising order; the infinite one is added.
func (r *Registry) Histogram(name, help string, buckets []float64, defs ...Label) *Histogram {
	m := newMetric(KindHistogram, name, help, defs)
	m.bounds = buckets
	r.register(m)
	if len(defs) == 0 {
		m.change(nil, func(*series) {})
	}
	return &Histogram{m}
}

// Observe counts one observation, by label values in the order of the labels. Durations are in seconds.
func (h *Histogram) Observe(v float64, values ...string) {
	h.metric.change(values, func(s *series) { s.observe(h.metric.bounds, v) })
}

// GaugeFunc registers a gauge that is read when it is asked for. read must be quick and touch no database.
func (r *Registry) GaugeFunc(name, help string, read func() float64) {
	r.registerFunc(KindGauge, name, help, read)
}

// CounterFunc registers a counter that is kept elsewhere.
func (r *Registry) CounterFunc(name, help string, read func() float64) {
	r.registerFunc(KindCounter, name, help, read)
}

// FamiliesFunc registers metrics that are kept elsewhere and read when they are asked for. read must be quick and touch no
// database. One of a name that the registry has itself is left out.
func (r *Registry) FamiliesFunc(read func() []Family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others = append(r.others, read)
}

func (r *Registry) registerFunc(kind, name, help string, read func() float64) {
	m := newMetric(kind, name, help, nil)
	m.read = read
	r.register(m)
}
