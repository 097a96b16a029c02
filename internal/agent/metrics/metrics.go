// Package metrics holds the numbers of an agent.
package metrics

import (
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/kit/telemetry"
)

// Metrics are the numbers of one agent. They are few, so they are counted by hand and written in both forms, as text for
// Prometheus and as frames for the server.
type Metrics struct {
	Active    atomic.Int64 // jobs
	Connected atomic.Int64 // 1 while registered
	Pausing   atomic.Int64 // log streams that wait for the connection
	LogBytes  atomic.Int64 // given to the server
	Dropped   atomic.Int64 // lines of logs that were lost

	mode string

	mu       sync.Mutex
	jobs     map[string]int64 // by terminal status
	steps    map[string]int64
	pressure map[string]int64 // by mode
	stepTime histogram
	cloning  histogram
}

// New makes numbers that are all zero; mode is what happens to log lines while the connection is full.
func New(mode string) *Metrics {
	return &Metrics{
		mode: mode,
		jobs: map[string]int64{}, steps: map[string]int64{}, pressure: map[string]int64{},
		stepTime: newHistogram(0.1, 1, 5, 30, 60, 300, 600, 1800),
		cloning:  newHistogram(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120),
	}
}

type histogram struct {
	bounds []float64
	counts []int64 // of observations up to each bound, cumulative
	count  int64
	sum    float64
}

func newHistogram(bounds ...float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds))}
}

func (h *histogram) observe(d time.Duration) {
	v := d.Seconds()
	for i, b := range h.bounds {
		if v <= b {
			h.counts[i]++
		}
	}
	h.count++
	h.sum += v
}

// Ended counts a job that has ended.
func (m *Metrics) Ended(state ci.JobStatus) {
	m.Active.Add(-1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs[string(state)]++
}

// StepEnded counts a step that has ended.
func (m *Metrics) StepEnded(state ci.StepStatus, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps[string(state)]++
	m.stepTime.observe(took)
}

// Cloned counts a checkout.
func (m *Metrics) Cloned(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cloning.observe(took)
}

// Pressed counts a line of a log that came while the connection was full.
func (m *Metrics) Pressed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pressure[m.mode]++
}

// Frame is the whole of the metrics as the server takes them.
func (m *Metrics) Frame() []wire.Metric {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []wire.Metric
	number := func(name, kind string, value int64, labels map[string]string) {
		v := float64(value)
		list = append(list, wire.Metric{Name: name, Type: kind, Value: &v, Labels: labels})
	}
	counted := func(name, label string, values map[string]int64) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			number(name, wire.MetricCounter, values[key], map[string]string{label: key})
		}
	}
	timed := func(name string, h histogram) {
		count, sum := float64(h.count), h.sum
		one := wire.Metric{Name: name, Type: wire.MetricHistogram, Count: &count, Sum: &sum}
		for i, b := range h.bounds {
			one.Buckets = append(one.Buckets, wire.Bucket{Le: b, Count: float64(h.counts[i])})
		}
		list = append(list, one)
	}
	counted("kici_agent_jobs_total", "status", m.jobs)
	number("kici_agent_jobs_active", wire.MetricUpDownCounter, m.Active.Load(), nil)
	counted("kici_agent_steps_total", "status", m.steps)
	timed("kici_agent_step_duration_seconds", m.stepTime)
	timed("kici_agent_clone_duration_seconds", m.cloning)
	number("kici_agent_log_bytes_total", wire.MetricCounter, m.LogBytes.Load(), nil)
	counted("kici_agent_log_backpressure_events_total", "mode", m.pressure)
	number("kici_agent_log_backpressure_active", wire.MetricUpDownCounter, m.Pausing.Load(), map[string]string{"mode": m.mode})
	number("kici_agent_log_lines_dropped_total", wire.MetricCounter, m.Dropped.Load(), nil)
	number("kici_agent_connection_status", wire.MetricUpDownCounter, m.Connected.Load(), nil)
	return list
}

// Write writes the metrics in Prometheus' text format.
func (m *Metrics) Write(w io.Writer) error {
	var families []telemetry.Family
	for _, one := range m.Frame() {
		kind := one.Type
		if kind == wire.MetricUpDownCounter {
			kind = telemetry.KindGauge
		}
		if len(families) == 0 || families[len(families)-1].Name != one.Name {
			families = append(families, telemetry.Family{Kind: kind, Name: one.Name})
		}
		family := &families[len(families)-1]
		family.Samples = append(family.Samples, numbers(one)...)
	}
	return telemetry.WriteText(w, families)
}

// numbers are those of one metric of a frame.
func numbers(m wire.Metric) []telemetry.Sample {
	var labels []telemetry.Pair
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		labels = append(labels, telemetry.Pair{Name: name, Value: m.Labels[name]})
	}
	if m.Type != wire.MetricHistogram {
		return []telemetry.Sample{{Labels: labels, Value: *m.Value}}
	}
	var bounds, counts []float64
	for _, b := range m.Buckets {
		bounds, counts = append(bounds, b.Le), append(counts, b.Count)
	}
	return telemetry.HistogramSamples(labels, bounds, counts, *m.Count, *m.Sum)
}
