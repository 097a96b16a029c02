package server

import "kici/internal/kit/telemetry"

// maxEvents bounds the values of a label that senders choose.
const maxEvents = 50

// counters are the metrics of taking deliveries in.
type counters struct {
	received, processed, duplicates, shed *telemetry.Counter
}

func newCounters(r *telemetry.Registry) counters {
	return counters{
		received: r.Counter("kici_orch_webhooks_received_total", "Deliveries received, by the way they came and their event.",
			telemetry.Label{Name: "source"}, telemetry.Label{Name: "event", Cap: maxEvents}),
		processed:  r.Counter("kici_orch_webhooks_processed_total", "Deliveries processed, by result.", telemetry.Label{Name: "result"}),
		duplicates: r.Counter("kici_orch_dedup_hits_total", "Deliveries that had been seen before."),
		shed:       r.Counter("kici_orch_ingest_shed_total", "Deliveries refused under load, by reason.", telemetry.Label{Name: "reason"}),
	}
}

// expose registers what is kept elsewhere.
func (s *Server) expose() {
	s.metrics.GaugeFunc("kici_orch_agents_active", "Registered, connected agents.", func() float64 { return float64(len(s.hub.Connections())) })
	s.metrics.CounterFunc("kici_orch_log_chunks_received_total", "Chunks of step logs stored.", func() float64 { return float64(s.logs.Stats().Chunks) })
	s.metrics.CounterFunc("kici_orch_log_bytes_stored_total", "Bytes of step logs stored.", func() float64 { return float64(s.logs.Stats().Bytes) })
}
