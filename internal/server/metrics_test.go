package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"kici/internal/server/servertest"
)

// TestMetricsTellOfRuns waits until a run that failed and one that succeeded have been counted, and requires that they
// are counted once each.
func TestMetricsTellOfRuns(t *testing.T) {
	t.Parallel() // it waits more than it works
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		s := h.Start(t)
		h.Employ(t, &servertest.Agent{ID: "agent", Features: careful})
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build", "test<build")))
		h.AwaitRuns(t, 1)
		want := []string{
			`kici_orch_executions_total{status="success"} 1`, `kici_orch_executions_total{status="failed"} 0`,
			`kici_orch_steps_total{status="running"} 2`, `kici_orch_steps_total{status="success"} 2`,
			`kici_orch_execution_duration_seconds_count 1`, `kici_orch_agents_active 1`, `kici_orchestrator_draining 0`,
			`kici_orch_dispatch_queue_depth{status="pending"} 0`, `kici_orch_stale_runs_current 0`, `kici_orch_declared_hosts_unreachable 0`,
			`kici_orch_dispatch_queue_depth{status="dispatched"} 0`, `kici_orch_executions_total{status="cancelled"} 0`, `kici_orch_steps_total{status="failed"} 0`,
			`kici_orch_steps_total{status="skipped"} 0`, `kici_orch_stale_runs_detected_total 0`, `kici_orch_stale_detection_duration_seconds_count 0`,
			`kici_orch_build_duration_seconds_count 0`, `kici_orch_source_cache_hits_total 0`, `kici_orch_source_cache_misses_total 0`,
			`kici_orch_dep_cache_hits_total 0`, `kici_orch_dep_cache_misses_total 0`, `kici_orch_dedup_hits_total 0`,
			`kici_orch_install_secrets_decisions_total{decision="reject",reason="secret"} 0`,
			`kici_orch_install_secrets_contributor_stripped_total{trust_tier="unknown"} 0`,
			`kici_orch_trigger_match_duration_seconds_count 1`, `kici_orch_config_version 0`,
			`kici_orch_pg_pool_client_errors_total{source="idle-pool"} 0`, `kici_orch_pg_pool_client_errors_total{source="client"} 0`,
			`kici_orch_job_runs_total{job="purge",result="success"} 1`, `kici_orch_job_runs_total{job="purge",result="failure"} 0`,
			`kici_orch_job_runs_total{job="run retention",result="success"} 1`, `kici_orch_job_runs_total{job="log retention",result="success"} 1`,
			`kici_orch_job_runs_total{job="cache sweep",result="success"} 1`, `kici_orch_job_runs_total{job="event sweep",result="success"} 1`,
			`kici_orch_job_duration_seconds_count{job="purge"} 1`, `kici_orch_job_consecutive_failures{job="purge"} 0`,
			`kici_orch_job_consecutive_failures{job="engine sweep"} 0`, `kici_orch_job_consecutive_failures{job="log upload"} 0`,
		}
		servertest.Await(t, "the counters", func() bool {
			text := metrics(t, s.URL())
			for _, line := range want {
				if !strings.Contains(text, line+"\n") {
					return false
				}
			}
			return true
		}, func() string { return metrics(t, s.URL()) })
	})
}

func metrics(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
