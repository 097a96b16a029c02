// Package telemetry sets up a process's log and its metrics. It knows nothing of CI; what is counted is named elsewhere.
package telemetry

import (
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Overflow stands for all values of a label beyond its cap, so that a sender cannot make series without end.
const Overflow = "__overflow__"

// Registry holds the metrics of one process.
type Registry struct {
	own    *prometheus.Registry
	others *prometheus.Registry // of what other processes say
}

// NewRegistry makes a registry with the runtime's own metrics.
func NewRegistry() *Registry {
	r := &Registry{own: prometheus.NewRegistry(), others: prometheus.NewRegistry()}
	r.own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Handler writes the metrics in the text format 0.0.4, whatever else the caller would accept. What cannot be shown is left
// out and counted, so that one bad series does not hide the others.
func (r *Registry) Handler() http.Handler {
	gatherers := prometheus.Gatherers{r.own, r.others} // where two metrics clash, the first one is shown
	inner := promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, Registry: r.own})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked := req.Clone(req.Context())
		asked.Header.Set("Accept", "text/plain;version=0.0.4")
		inner.ServeHTTP(plainWriter{w}, asked)
	})
}

// plainWriter names the format alone: the library adds a parameter about escapes, which older scrapers do not know and
// which says nothing here, as all names are plain.
type plainWriter struct{ http.ResponseWriter }

func (w plainWriter) Write(p []byte) (int, error) {
	if kind := w.Header().Get("Content-Type"); strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		w.Header().Set("Content-Type", TextType)
	}
	return w.ResponseWriter.Write(p)
}

// Label is a label of a metric. A label whose values come from outside needs a cap; 0 is for a closed set.
type Label struct {
	Name string
	Cap  int
}

// labels turns values into those that may be used, and keeps count of the capped ones.
type labels struct {
	names []string
	caps  []int
	mu    sync.Mutex
	seen  []map[string]bool
}

func newLabels(defs []Label) *labels {
	l := &labels{seen: make([]map[string]bool, len(defs))}
	for i, d := range defs {
		l.names, l.caps, l.seen[i] = append(l.names, d.Name), append(l.caps, d.Cap), map[string]bool{}
	}
	return l
}

func (l *labels) bounded(values []string) []string {
	out := make([]string, len(l.names))
	for i := range min(len(values), len(out)) {
		out[i] = strings.ToValidUTF8(values[i], "\uFFFD") // the library panics at other text
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, limit := range l.caps {
		switch {
		case limit == 0 || l.seen[i][out[i]]:
		case len(l.seen[i]) >= limit:
			out[i] = Overflow
		default:
			l.seen[i][out[i]] = true
		}
	}
	return out
}

// Counter only grows.
type Counter struct {
	vec    *prometheus.CounterVec
	labels *labels
}

// Counter registers a counter. Without labels it shows 0 from the start.
func (r *Registry) Counter(name, help string, defs ...Label) *Counter {
	c := &Counter{labels: newLabels(defs)}
	c.vec = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, c.labels.names)
	r.own.MustRegister(c.vec)
	if len(defs) == 0 {
		c.vec.WithLabelValues()
	}
	return c
}

// Inc counts one, by label values in the order of the labels.
func (c *Counter) Inc(values ...string) { c.Add(1, values...) }

// Add counts n, which is not negative.
func (c *Counter) Add(n float64, values ...string) {
	c.vec.WithLabelValues(c.labels.bounded(values)...).Add(n)
}

// Gauge goes up and down.
type Gauge struct {
	vec    *prometheus.GaugeVec
	labels *labels
}

// Gauge registers a gauge.
func (r *Registry) Gauge(name, help string, defs ...Label) *Gauge {
	g := &Gauge{labels: newLabels(defs)}
	g.vec = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, g.labels.names)
	r.own.MustRegister(g.vec)
	return g
}

// Set sets the value, by label values in the order of the labels.
func (g *Gauge) Set(v float64, values ...string) {
	g.vec.WithLabelValues(g.labels.bounded(values)...).Set(v)
}

// Delete takes the series of these label values away, such as those of an agent that left.
func (g *Gauge) Delete(values ...string) { g.vec.DeleteLabelValues(g.labels.bounded(values)...) }

// Histogram counts observations by size.
type Histogram struct {
	vec    *prometheus.HistogramVec
	labels *labels
}

// Histogram registers a histogram with these upper bounds of its buckets, in rising order; the infinite one is added.
func (r *Registry) Histogram(name, help string, buckets []float64, defs ...Label) *Histogram {
	h := &Histogram{labels: newLabels(defs)}
	h.vec = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, h.labels.names)
	r.own.MustRegister(h.vec)
	if len(defs) == 0 {
		h.vec.WithLabelValues()
	}
	return h
}

// Observe counts one observation, by label values in the order of the labels. Durations are in seconds.
func (h *Histogram) Observe(v float64, values ...string) {
	h.vec.WithLabelValues(h.labels.bounded(values)...).Observe(v)
}

// GaugeFunc registers a gauge that is read when it is asked for. read must be quick and touch no database.
func (r *Registry) GaugeFunc(name, help string, read func() float64) {
	r.own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// CounterFunc registers a counter that is kept elsewhere.
func (r *Registry) CounterFunc(name, help string, read func() float64) {
	r.own.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// SumsFunc registers what other processes say of themselves, added up under this help. read gives the last words of each
// process by its name; it must be quick and touch no database. Of a name that the registry has itself, its own is shown.
func (r *Registry) SumsFunc(help string, read func() map[string][]Reading) {
	r.others.MustRegister(newSums(help, read))
}
