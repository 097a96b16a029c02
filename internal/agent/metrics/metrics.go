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

// readings are the whole of the metrics.
func (m *Metrics) readings() []telemetry.Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []telemetry.Reading
	number := func(kind, name, help string, value int64, labels map[string]string) {
		list = append(list, telemetry.Reading{Kind: kind, Name: name, Help: help, Value: float64(value), Labels: labels})
	}
	counted := func(name, help, label string, values map[string]int64) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			number(telemetry.KindCounter, name, help, values[key], map[string]string{label: key})
		}
	}
	timed := func(name, help string, h histogram) {
		one := telemetry.Reading{Kind: telemetry.KindHistogram, Name: name, Help: help, Bounds: h.bounds, Count: float64(h.count), Sum: h.sum}
		for _, n := range h.counts {
			one.Counts = append(one.Counts, float64(n))
		}
		list = append(list, one)
	}
	counted("kici_agent_jobs_total", "Jobs that ended, by status.", "status", m.jobs)
	number(telemetry.KindGauge, "kici_agent_jobs_active", "Jobs that run.", m.Active.Load(), nil)
	counted("kici_agent_steps_total", "Steps that ended, by status.", "status", m.steps)
	timed("kici_agent_step_duration_seconds", "Time from the start of a step to its end.", m.stepTime)
	timed("kici_agent_clone_duration_seconds", "Time to get a repository's files.", m.cloning)
	number(telemetry.KindCounter, "kici_agent_log_bytes_total", "Bytes of logs given to the server.", m.LogBytes.Load(), nil)
	counted("kici_agent_log_backpressure_events_total", "Lines of logs that came while the connection was full, by what was done.", "mode", m.pressure)
	number(telemetry.KindGauge, "kici_agent_log_backpressure_active", "Logs that wait for the connection.", m.Pausing.Load(),
		map[string]string{"mode": m.mode})
	number(telemetry.KindCounter, "kici_agent_log_lines_dropped_total", "Lines of logs that were lost.", m.Dropped.Load(), nil)
	number(telemetry.KindGauge, "kici_agent_connection_status", "1 while the agent is registered at a server.", m.Connected.Load(), nil)
	return list
}

// Frame is the whole of the metrics as the server takes them.
func (m *Metrics) Frame() []wire.Metric {
	var list []wire.Metric
	for _, r := range m.readings() {
		one := wire.Metric{Name: r.Name, Type: r.Kind, Labels: r.Labels}
		switch r.Kind {
		case telemetry.KindHistogram:
			one.Count, one.Sum = &r.Count, &r.Sum
			for i, b := range r.Bounds {
				one.Buckets = append(one.Buckets, wire.Bucket{Le: b, Count: r.Counts[i]})
			}
		case telemetry.KindGauge:
			one.Type, one.Value = wire.MetricUpDownCounter, &r.Value
		default:
			one.Value = &r.Value
		}
		list = append(list, one)
	}
	return list
}

// Write writes the metrics in Prometheus' text format.
func (m *Metrics) Write(w io.Writer) error { return telemetry.WriteText(w, m.readings()) }
