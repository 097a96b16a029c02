package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestEndedRunsAreReadWithTheirStepsAndSilences(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		var ids []string
		exec := func(query string, args ...any) {
			t.Helper()
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.ExecContext(ctx, query, args...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		run := func(id string, status ci.RunStatus, completed any) {
			t.Helper()
			ids = append(ids, id)
			exec(`INSERT INTO execution_runs (run_id, org_id, routing_key, workflow_name, status, provider, repo_identifier, ref, sha, created_at, completed_at, duration_ms)
VALUES ($1, 'o', 'k', 'w', $2, 'local', 'r', 'main', 's', 1, $3, 7)`, id, status, completed)
		}
		job := func(id, run string, status ci.JobStatus, heartbeat, completed any) {
			t.Helper()
			exec(`INSERT INTO execution_jobs (job_id, run_id, position, job_name, base_job_name, status, selector_id, runs_on_labels, job_config, contexts,
repo_url, ref, sha, needs_satisfied, created_at, started_at, last_heartbeat_at, completed_at)
VALUES ($1, $2, 0, 'j', 'j', $3, 's', '[]', '{}', '[]', 'u', 'main', 's', TRUE, 1, 10, $4, $5)`, id, run, status, heartbeat, completed)
		}
		step := func(job, run string, index int, status ci.StepStatus, started any) {
			t.Helper()
			exec(`INSERT INTO execution_steps (job_id, step_index, run_id, step_name, status, started_at, log_path) VALUES ($1, $2, $3, 's', $4, $5, 'p')`,
				job, index, run, status, started)
		}
		run("ended", ci.RunFailed, 200)
		job("silent", "ended", ci.JobTimedOutStale, 50, 170)
		job("fine", "ended", ci.JobSuccess, 50, 60)
		step("fine", "ended", 0, ci.StepSuccess, 11)
		step("fine", "ended", 1, ci.StepSuccess, 12)
		step("fine", "ended", 2, ci.StepSkipped, nil)
		job("build", "ended", ci.JobSuccess, nil, 90)
		exec("UPDATE execution_jobs SET kind = 'build' WHERE job_id = 'build'")
		run("open", ci.RunRunning, nil)
		job("running", "open", ci.JobRunning, 50, nil)
		for i := range 2 * endedBatch {
			ids = append(ids, fmt.Sprint("unknown-", i))
		}
		got, err := Ended(t.Context(), db.Read(), ids)
		want := []EndedRun{{RunID: "ended", Status: ci.RunFailed, CompletedAt: 200, DurationMs: 7, Started: 2,
			Steps: map[ci.StepStatus]int{ci.StepSuccess: 2, ci.StepSkipped: 1}, Silences: []int64{120}, Builds: []int64{80}}}
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("ended: %v\n%s", err, d)
		}
		exec("INSERT INTO selectors (id, canonical) VALUES ('s', '{}')")
		exec("INSERT INTO dispatch_queue (id, run_id, selector_id, status, created_at, agent_id) VALUES ('running', 'open', 's', 'dispatched', 1, 'a')")
		before, err1 := StaleRuns(t.Context(), db.Read(), 50)
		after, err2 := StaleRuns(t.Context(), db.Read(), 51)
		if err := errors.Join(err1, err2); err != nil || before != 0 || after != 1 {
			t.Errorf("stale at the moment of the last beat %d, behind it %d, %v", before, after, err)
		}
	})
}

func TestStaleRunsAreLookedForAmongJobsWithAgents(t *testing.T) {
	scans := storetest.Scans(t, func(q store.Querier) {
		if _, err := StaleRuns(t.Context(), q, 1); err != nil {
			t.Fatal(err)
		}
	})
	if want := []string{"SCAN q USING INDEX dispatch_queue_agents"}; !slices.Equal(scans, want) {
		t.Errorf("goes through %q", scans)
	}
}

func TestListsOfIDsAreOfFewLengths(t *testing.T) {
	lengths := map[int]bool{}
	for n := 1; n <= endedBatch; n++ {
		ids := make([]string, n, 2*endedBatch)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		ids = ids[: n : 2*endedBatch]
		got := filled(ids)
		lengths[len(got)] = true
		if len(got) < n || len(got) >= 2*n || !slices.Equal(got[:n], ids) || slices.ContainsFunc(got[n:], func(id string) bool { return id != ids[n-1] }) {
			t.Errorf("%d ids: %q", n, got)
		}
	}
	if len(lengths) > 6 {
		t.Errorf("%d lengths", len(lengths))
	}
}
