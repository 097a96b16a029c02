package server_test

import (
	"strings"
	"testing"

	"kici/internal/core/wire"
	"kici/internal/server/servertest"
)

// TestMetricsOfAgentsAreShownTogether lets two agents count, and claim what is not theirs or cannot be shown.
func TestMetricsOfAgentsAreShownTogether(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		s := h.Start(t)
		for i, id := range []string{"a", "b"} {
			p := h.Dial(t)
			p.Hello(h, register(id))
			jobs, active, count, sum := float64(i+2), 1.0, 2.0, 7.0
			p.Send(wire.AgentMetrics{MessageID: "m", AgentID: id, Metrics: []wire.Metric{
				{Name: "kici_agent_jobs_total", Type: wire.MetricCounter, Value: &jobs, Labels: map[string]string{"status": "success", "scaler": "made up"}},
				{Name: "kici_agent_jobs_active", Type: wire.MetricUpDownCounter, Value: &active},
				{Name: "kici_agent_step_duration_seconds", Type: wire.MetricHistogram, Count: &count, Sum: &sum, Buckets: []wire.Bucket{{Le: 1, Count: 1}}},
				{Name: "kici_orch_agents_active", Type: wire.MetricGauge, Value: &jobs},
				{Name: "kici_agent_step_duration_seconds_count", Type: wire.MetricCounter, Value: &jobs},
				{Name: "kici_agent_step_duration_seconds", Type: wire.MetricHistogram, Count: &count, Sum: &sum, Buckets: []wire.Bucket{{Le: 2, Count: 1}}},
				{Name: "kici_agent_jobs_active", Type: wire.MetricCounter, Value: &jobs},
				{Name: "kici_agent_jobs_active", Type: wire.MetricUpDownCounter, Value: &jobs, Labels: map[string]string{"__name__": "up"}},
			}})
			p.Settle()
		}
		text := metrics(t, s.URL())
		for _, want := range []string{
			`kici_agent_jobs_total{scaler="stateful",status="success"} 5`, `kici_agent_jobs_active{scaler="stateful"} 2`,
			`kici_agent_step_duration_seconds_bucket{scaler="stateful",le="1"} 2`, `kici_agent_step_duration_seconds_sum{scaler="stateful"} 14`,
			"kici_orch_agents_active 2", `kici_agent_step_duration_seconds_count{scaler="stateful"} 4`,
			"# TYPE kici_agent_jobs_active gauge", `promhttp_metric_handler_errors_total{cause="gathering"} 0`,
		} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
	})
}
