package report_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/server/report"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
	"kici/internal/server/timeline"
)

func TestTimelineJoinsWhatTheServerDidAndWhatAgentsTold(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFloor(t, db)
		f.agent("a-1", []string{"linux"}, nil)
		f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux")), job("nowhere", on("mars"))}})
		f.millis += 10
		f.claim("id-build", "a-1", 1)
		f.millis += 10
		must(t, f.JobReported(t.Context(), "a-1", wire.JobStatus{JobID: "id-build", State: ci.JobRunning}))
		must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return timeline.Append(ctx, tx, timeline.Event{RunID: "r", JobID: "id-build", At: f.millis + 5, Type: "agent.clone.start", Source: "agent"})
		}))
		f.millis += 100
		must(t, f.JobReported(t.Context(), "a-1", wire.JobStatus{JobID: "id-build", State: ci.JobSuccess}))
		f.millis += 3_700_000
		must(t, f.SweepOnce(t.Context()))
		events, err := report.Timeline(t.Context(), db.Read(), "r")
		must(t, err)
		var got []string
		for _, e := range events {
			line := e.Type + " " + e.JobID + " " + string(e.Metadata)
			if e.DurationMs != nil && *e.DurationMs == 100 {
				line += " in 100 ms"
			}
			got = append(got, line)
		}
		want := []string{
			`orchestrator.dispatch  {"jobCount":2,"workflow":"ci"}`,
			`orchestrator.agent.assigned id-build {"agentId":"a-1","jobName":"build"}`,
			`orchestrator.job.started id-build {"agentId":"a-1","jobName":"build"}`,
			`agent.clone.start id-build `,
			`orchestrator.job.completed id-build {"agentId":"a-1","jobName":"build","status":"success"} in 100 ms`,
			`orchestrator.job.queue_expired id-nowhere {"jobName":"nowhere","reason":"unroutable"}`,
			`orchestrator.job.completed id-nowhere {"agentId":"","jobName":"nowhere","reason":"unroutable","status":"unroutable"}`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// How a job ended badly is told by a moment of its own where there is one, and always by the reason.
func TestTimelineTellsWhyAJobEnded(t *testing.T) {
	db := storetest.SQLite(t)
	f := newFloor(t, db)
	f.agent("a-1", []string{"linux"}, nil)
	f.register("r", plan.Plan{Jobs: []plan.Job{job("build", on("linux"))}})
	f.claim("id-build", "a-1", 1)
	must(t, f.JobReported(t.Context(), "a-1", wire.JobStatus{JobID: "id-build", State: ci.JobRunning}))
	for reason, moment := range map[string]string{
		ci.ReasonStale: "orchestrator.job.stale_detected", ci.ReasonAgentLost: "orchestrator.job.orphan_recovered",
		ci.ReasonQueueTimeout: "orchestrator.job.queue_expired", ci.ReasonJobTimeout: "",
	} {
		must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE execution_jobs SET status = 'failed', completed_at = $1, reason = $2", f.millis+1, `{"code":"`+reason+`","message":"m"}`)
			return err
		}))
		events, err := report.Timeline(t.Context(), db.Read(), "r")
		must(t, err)
		events = events[3:] // behind the start of the job
		if moment != "" && (events[0].Type != moment || string(events[0].Metadata) != `{"jobName":"build","reason":"`+reason+`"}`) {
			t.Errorf("%s: %+v", reason, events)
		}
		end := events[len(events)-1]
		if end.Type != "orchestrator.job.completed" || string(end.Metadata) != `{"agentId":"a-1","jobName":"build","reason":"`+reason+`","status":"failed"}` {
			t.Errorf("%s: %s %s", reason, end.Type, end.Metadata)
		}
	}
}
