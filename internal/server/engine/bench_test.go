package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func benchEngine(b *testing.B) (*engine.Engine, *store.DB) {
	b.Helper()
	db := storetest.SQLite(b)
	settings := engine.DefaultSettings()
	settings.NodeID = "node"
	return engine.New(engine.Deps{DB: db, Clock: time.Now, Log: slog.New(slog.DiscardHandler), Settings: settings,
		Dispatch: service.NewPoke(), Effects: service.NewPoke()}), db
}

func mustB(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkTrivialRun is all that the engine and the queue do for a run of one job of one step.
func BenchmarkTrivialRun(b *testing.B) {
	e, db := benchEngine(b)
	for i := 0; b.Loop(); i++ {
		run := fmt.Sprint("run-", i)
		jobID := run + "/one"
		mustB(b, e.Register(b.Context(), registration(run, job{name: "one"})))
		claimB(b, db, jobID)
		_, err := e.Acked(b.Context(), "agent", run, jobID)
		mustB(b, err)
		mustB(b, e.JobReported(b.Context(), "agent", wire.JobStatus{JobID: jobID, State: ci.JobRunning}))
		for _, state := range []ci.StepStatus{ci.StepRunning, ci.StepSuccess} {
			mustB(b, e.Reported(b.Context(), "agent", engine.Owned{RunID: run, JobID: jobID, JobName: "one"}, wire.StepStatus{JobID: jobID, StepName: "go", State: state, Timestamp: 1}))
		}
		end := wire.JobStatus{JobID: jobID, State: ci.JobSuccess, Data: json.RawMessage(`{"stepResults":[{"name":"go","status":"success","durationMs":1}]}`)}
		mustB(b, e.JobReported(b.Context(), "agent", end))
	}
}

func claimB(b *testing.B, db *store.DB, jobID string) {
	b.Helper()
	var ok bool
	mustB(b, db.Write(b.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		ok, err = queue.Claim(ctx, tx, jobID, "agent", "node", 1, 1, 2)
		return err
	}))
	if !ok {
		b.Fatalf("job %s cannot be claimed", jobID)
	}
}

// BenchmarkRegisterThousandJobs makes a run of a thousand jobs.
func BenchmarkRegisterThousandJobs(b *testing.B) {
	e, _ := benchEngine(b)
	for i := 0; b.Loop(); i++ {
		r := engine.Registration{RunID: fmt.Sprint("run-", i), OrgID: "default", Plan: plan.Plan{Workflow: "ci"}}
		for n := range 1000 {
			r.Plan.Jobs = append(r.Plan.Jobs, plan.Job{ID: fmt.Sprintf("%d/%d", i, n), Name: fmt.Sprint(n), BaseName: fmt.Sprint(n),
				Selector: label.Selector{Labels: []string{"linux"}}, Config: json.RawMessage(`{}`)})
		}
		mustB(b, e.Register(b.Context(), r))
	}
}

// BenchmarkClaim claims the head of a selector, with rows that fit nobody ahead of it.
func BenchmarkClaim(b *testing.B) {
	for _, ahead := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("%d rows ahead", ahead), func(b *testing.B) {
			_, db := benchEngine(b)
			fill(b, db, "nobody", ahead)
			const batch = 5000
			n := 0
			b.ResetTimer()
			for b.Loop() {
				if n%batch == 0 {
					b.StopTimer()
					fill(b, db, fmt.Sprint("linux-", n), batch)
					b.StartTimer()
				}
				claimB(b, db, fmt.Sprintf("linux-%d/%d", n-n%batch, n%batch))
				mustB(b, db.Write(b.Context(), func(ctx context.Context, tx *store.Tx) error {
					err := queue.Complete(ctx, tx, fmt.Sprintf("linux-%d/%d", n-n%batch, n%batch), "success", 3)
					return err
				}))
				n++
			}
		})
	}
}

// fill puts rows of one selector into the queue.
func fill(b *testing.B, db *store.DB, name string, rows int) {
	b.Helper()
	mustB(b, db.Write(b.Context(), func(ctx context.Context, tx *store.Tx) error {
		id, err := queue.Intern(ctx, tx, label.Selector{Labels: []string{name}})
		if err != nil {
			return err
		}
		for i := range rows {
			if err := queue.Enqueue(ctx, tx, fmt.Sprintf("%s/%d", name, i), "run", id, int64(i), 0, 0); err != nil {
				return err
			}
		}
		return nil
	}))
}
