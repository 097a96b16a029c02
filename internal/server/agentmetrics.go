package server

import (
	"maps"
	"strings"

	"kici/internal/core/wire"
	"kici/internal/kit/telemetry"
	"kici/internal/server/hub"
)

// agentPrefix begins the names that are shown of what agents say; all others are the server's own.
const agentPrefix = "kici_agent_"

// exposeAgents shows what the agents of this node say of themselves, added up by the kind of pool that they belong to:
// agents are too many, and come and go too often, for a series each.
func (s *Server) exposeAgents() {
	s.metrics.SumsFunc("What the agents of this node say of themselves, added up by the kind of pool.",
		func() map[string][]telemetry.Reading { return agentReadings(s.hub.Metrics()) })
}

func agentReadings(agents []hub.AgentMetrics) map[string][]telemetry.Reading {
	out := make(map[string][]telemetry.Reading, len(agents))
	for _, a := range agents {
		for _, m := range a.Metrics {
			if strings.HasPrefix(m.Name, agentPrefix) {
				out[a.AgentID] = append(out[a.AgentID], reading(m, a.Scaler))
			}
		}
	}
	return out
}

func reading(m wire.Metric, scaler string) telemetry.Reading {
	r := telemetry.Reading{Kind: m.Type, Name: m.Name, Labels: map[string]string{}, Value: orZero(m.Value), Count: orZero(m.Count), Sum: orZero(m.Sum)}
	if m.Type == wire.MetricUpDownCounter {
		r.Kind = telemetry.KindGauge
	}
	for _, b := range m.Buckets {
		r.Bounds, r.Counts = append(r.Bounds, b.Le), append(r.Counts, b.Count)
	}
	maps.Copy(r.Labels, m.Labels)
	r.Labels["scaler"] = scaler
	return r
}

func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}
