package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

func TestNumbersAreTheSameInBothForms(t *testing.T) {
	m := New("pause")
	m.Active.Add(2)
	m.Ended(ci.JobFailed)
	m.StepEnded(ci.StepSuccess, 2*time.Second)
	m.Pressed()
	m.LogBytes.Add(7)
	var text strings.Builder
	if err := m.Write(&text); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(text.String(), "# HELP kici_agent_jobs_active")
	want := ` Jobs that run.
# TYPE kici_agent_jobs_active gauge
kici_agent_jobs_active 1
# HELP kici_agent_jobs_total Jobs that ended, by status.
# TYPE kici_agent_jobs_total counter
kici_agent_jobs_total{status="failed"} 1
# HELP kici_agent_log_backpressure_active Logs that wait for the connection.
# TYPE kici_agent_log_backpressure_active gauge
kici_agent_log_backpressure_active{mode="pause"} 0
# HELP kici_agent_log_backpressure_events_total Lines of logs that came while the connection was full, by what was done.
# TYPE kici_agent_log_backpressure_events_total counter
kici_agent_log_backpressure_events_total{mode="pause"} 1
# HELP kici_agent_log_bytes_total Bytes of logs given to the server.
# TYPE kici_agent_log_bytes_total counter
kici_agent_log_bytes_total 7
# HELP kici_agent_log_lines_dropped_total Lines of logs that were lost.
# TYPE kici_agent_log_lines_dropped_total counter
kici_agent_log_lines_dropped_total 0
# HELP kici_agent_step_duration_seconds Time from the start of a step to its end.
# TYPE kici_agent_step_duration_seconds histogram
kici_agent_step_duration_seconds_bucket{le="0.1"} 0
kici_agent_step_duration_seconds_bucket{le="1"} 0
kici_agent_step_duration_seconds_bucket{le="5"} 1
kici_agent_step_duration_seconds_bucket{le="30"} 1
kici_agent_step_duration_seconds_bucket{le="60"} 1
kici_agent_step_duration_seconds_bucket{le="300"} 1
kici_agent_step_duration_seconds_bucket{le="600"} 1
kici_agent_step_duration_seconds_bucket{le="1800"} 1
kici_agent_step_duration_seconds_bucket{le="+Inf"} 1
kici_agent_step_duration_seconds_sum 2
kici_agent_step_duration_seconds_count 1
# HELP kici_agent_steps_total Steps that ended, by status.
# TYPE kici_agent_steps_total counter
kici_agent_steps_total{status="success"} 1
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	frame := map[string]wire.Metric{}
	for _, one := range m.Frame() {
		if !strings.Contains(text.String(), "# TYPE "+one.Name+" ") {
			t.Errorf("the text lacks %s", one.Name)
		}
		frame[one.Name] = one
	}
	one := 1.0
	if diff := cmp.Diff(wire.Metric{Name: "kici_agent_jobs_active", Type: wire.MetricUpDownCounter, Value: &one}, frame["kici_agent_jobs_active"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wire.Metric{Name: "kici_agent_jobs_total", Type: wire.MetricCounter, Value: &one, Labels: map[string]string{"status": "failed"}},
		frame["kici_agent_jobs_total"]); diff != "" {
		t.Error(diff)
	}
	steps := frame["kici_agent_step_duration_seconds"]
	if steps.Type != wire.MetricHistogram || steps.Value != nil || *steps.Count != 1 || *steps.Sum != 2 || steps.Buckets[2] != (wire.Bucket{Le: 5, Count: 1}) {
		t.Errorf("steps %+v", steps)
	}
}
