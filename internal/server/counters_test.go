package server

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/kit/service"
	"kici/internal/kit/telemetry"
	"kici/internal/server/dispatch"
	"kici/internal/server/report"
)

// scrape gives the lines of the metrics whose names begin so.
func scrape(t *testing.T, r *telemetry.Registry, prefix string) (lines []string) {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func wantLines(t *testing.T, r *telemetry.Registry, want ...string) {
	t.Helper()
	for _, line := range want {
		name, _, _ := strings.Cut(line, " ")
		if got := scrape(t, r, name+" "); len(got) != 1 || got[0] != line {
			t.Errorf("%s is shown as %q", line, got)
		}
	}
}

func TestCountersShowZeroFromTheStart(t *testing.T) {
	r := telemetry.NewRegistry()
	newCounters(r)
	wantLines(t, r,
		`kici_orch_dispatch_queue_depth{status="pending"} 0`, `kici_orch_dispatch_queue_depth{status="dispatched"} 0`,
		`kici_orch_executions_total{status="success"} 0`, `kici_orch_executions_total{status="failed"} 0`, `kici_orch_executions_total{status="cancelled"} 0`,
		`kici_orch_steps_total{status="running"} 0`, `kici_orch_steps_total{status="success"} 0`, `kici_orch_steps_total{status="failed"} 0`,
		`kici_orch_steps_total{status="skipped"} 0`,
		`kici_orch_stale_runs_current 0`, `kici_orch_stale_runs_detected_total 0`, `kici_orch_declared_hosts_unreachable 0`,
		`kici_orch_build_duration_seconds_count 0`, `kici_orch_execution_duration_seconds_count 0`, `kici_orch_stale_detection_duration_seconds_count 0`)
}

func TestAnEndedRunIsCounted(t *testing.T) {
	r := telemetry.NewRegistry()
	c := newCounters(r)
	c.countRun(report.EndedRun{RunID: "r", Status: ci.RunFailed, DurationMs: 42_000, Started: 3,
		Steps: map[ci.StepStatus]int{ci.StepSuccess: 2, ci.StepFailed: 1, ci.StepSkipped: 4}, Silences: []int64{121_000}, Builds: []int64{7_000}})
	wantLines(t, r,
		`kici_orch_executions_total{status="failed"} 1`, `kici_orch_executions_total{status="success"} 0`,
		`kici_orch_execution_duration_seconds_bucket{le="30"} 0`, `kici_orch_execution_duration_seconds_bucket{le="60"} 1`,
		`kici_orch_execution_duration_seconds_sum 42`,
		`kici_orch_steps_total{status="running"} 3`, `kici_orch_steps_total{status="success"} 2`, `kici_orch_steps_total{status="failed"} 1`,
		`kici_orch_steps_total{status="skipped"} 4`,
		`kici_orch_build_duration_seconds_bucket{le="5"} 0`, `kici_orch_build_duration_seconds_bucket{le="10"} 1`,
		`kici_orch_stale_runs_detected_total 1`, `kici_orch_stale_detection_duration_seconds_sum 121`)
}

func TestALabelThatWasSeenStaysWithZero(t *testing.T) {
	r := telemetry.NewRegistry()
	c := newCounters(r)
	c.showDepth(dispatch.Depth{Pending: 3, Dispatched: 1, ByLabel: map[string]int{"linux": 2, "gpu": 1}})
	wantLines(t, r, `kici_orch_dispatch_queue_depth{status="pending"} 3`, `kici_orch_dispatch_queue_depth{status="dispatched"} 1`,
		`kici_orch_dispatch_queue_depth_by_label{label="gpu",status="pending"} 1`, `kici_orch_dispatch_queue_depth_by_label{label="linux",status="pending"} 2`)
	c.showDepth(dispatch.Depth{Pending: 1, ByLabel: map[string]int{"linux": 1}})
	wantLines(t, r, `kici_orch_dispatch_queue_depth_by_label{label="gpu",status="pending"} 0`,
		`kici_orch_dispatch_queue_depth_by_label{label="linux",status="pending"} 1`)
}

func TestLabelsBeyondTheCapAreOne(t *testing.T) {
	r := telemetry.NewRegistry()
	c := newCounters(r)
	many := map[string]int{}
	for i := range maxLabels + 50 {
		many[fmt.Sprint("label-", i)] = 2
	}
	c.showDepth(dispatch.Depth{ByLabel: many})
	if n := len(scrape(t, r, "kici_orch_dispatch_queue_depth_by_label{")); n != maxLabels+1 {
		t.Errorf("%d series, want %d", n, maxLabels+1)
	}
	wantLines(t, r, `kici_orch_dispatch_queue_depth_by_label{label="__overflow__",status="pending"} 100`)
	c.showDepth(dispatch.Depth{})
	wantLines(t, r, `kici_orch_dispatch_queue_depth_by_label{label="__overflow__",status="pending"} 0`)
}

func TestARunIsLookedAtOnceHoweverOftenItChanged(t *testing.T) {
	c := newChangedRuns()
	for range 3 {
		c.note("r")
	}
	if got := c.take(); len(got) != 1 || got[0] != "r" {
		t.Errorf("taken %q", got)
	}
	if got := c.take(); len(got) != 0 {
		t.Errorf("taken again %q", got)
	}
}

func TestTurnsOfTheMaintenanceAreCounted(t *testing.T) {
	r := telemetry.NewRegistry()
	c := newCounters(r)
	c.expect("purge")
	wantLines(t, r, `kici_orch_job_runs_total{job="purge",result="success"} 0`, `kici_orch_job_runs_total{job="purge",result="failure"} 0`,
		`kici_orch_job_consecutive_failures{job="purge"} 0`)
	for at, err := range []error{errors.New("no database"), nil, errors.New("no database"), errors.New("no database")} {
		c.countTurn(service.Turn{Loop: "purge", Took: 40 * time.Millisecond, Err: err}, time.Unix(int64(at), 0))
	}
	wantLines(t, r, `kici_orch_job_runs_total{job="purge",result="success"} 1`, `kici_orch_job_runs_total{job="purge",result="failure"} 3`,
		`kici_orch_job_consecutive_failures{job="purge"} 2`, `kici_orch_job_last_success_timestamp_seconds{job="purge"} 1`,
		`kici_orch_job_last_failure_timestamp_seconds{job="purge"} 3`,
		`kici_orch_job_duration_seconds_bucket{job="purge",le="0.01"} 0`, `kici_orch_job_duration_seconds_bucket{job="purge",le="0.05"} 4`,
		`kici_orch_job_duration_seconds_bucket{job="purge",le="600"} 4`)
}
