package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// What a pass of BenchmarkPass has before it.
const (
	waitingRows      = 100_000 // that fit no agent
	waitingSelectors = 100
	benchAgents      = 100
	benchSlots       = 10
)

// sink is a hub of agents that take everything.
type sink struct {
	askNothing
	agents []dispatch.Agent
}

func (s sink) Ready() []dispatch.Agent                                          { return s.agents }
func (s sink) Takes(string) bool                                                { return true }
func (s sink) Active() int                                                      { return 0 }
func (s sink) Dispatch(context.Context, string, string, wire.JobDispatch) error { return nil }
func (sink) ForJob(context.Context, engine.Input, dispatch.Known, string) (dispatch.Grant, error) {
	return dispatch.Grant{}, nil
}

// BenchmarkPass gives a thousand jobs to a hundred agents, past a hundred thousand older ones that fit nobody. One
// operation is one job: its claim, and the frame that goes with it.
func BenchmarkPass(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *store.DB{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(name, func(b *testing.B) { benchmarkPass(b, open(b)) })
	}
}

func benchmarkPass(b *testing.B, db *store.DB) {
	log := slog.New(slog.DiscardHandler)
	settings := engine.DefaultSettings()
	settings.NodeID, settings.QueueMaxDepth = "n", 10*waitingRows
	e := engine.New(engine.Deps{DB: db, Clock: time.Now, Log: log, Settings: settings, Dispatch: service.NewPoke(), Effects: service.NewPoke()})
	var hub sink
	for i := range benchAgents {
		hub.agents = append(hub.agents, agent(fmt.Sprintf("agent-%03d", i), benchSlots, "linux", "x64"))
	}
	d, err := dispatch.New(dispatch.Deps{DB: db, Clock: time.Now, Log: log, Hub: hub, Engine: e, Secrets: hub, Poke: service.NewPoke(),
		Settings: dispatch.Settings{NodeID: "n", Poll: time.Hour, AckTimeout: time.Minute}})
	if err != nil {
		b.Fatal(err)
	}
	crowd(b, db)
	b.ResetTimer()
	for done := 0; done < b.N; done += benchAgents * benchSlots {
		b.StopTimer()
		arrive(b, db, e, done)
		b.StartTimer()
		if err := d.Pass(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	var left int
	if err := db.Read().QueryRowContext(b.Context(), "SELECT count(*) FROM dispatch_queue WHERE status = 'pending'").Scan(&left); err != nil || left != waitingRows {
		b.Fatalf("%d rows wait, want %d (%v)", left, waitingRows, err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
}

// crowd fills the queue with rows that fit nobody.
func crowd(b *testing.B, db *store.DB) {
	b.Helper()
	write(b, db, func(ctx context.Context, tx *store.Tx) error {
		for i := range waitingSelectors {
			id, err := queue.Intern(ctx, tx, label.Selector{Labels: []string{fmt.Sprint("rare-", i)}})
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, `INSERT INTO dispatch_queue (id, run_id, selector_id, status, created_at)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
SELECT 'waiting-' || $1 || '-' || i, 'run', $1, 'pending', i FROM n`, id, waitingRows/waitingSelectors)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// arrive ends what the agents hold and registers one job for each of their slots.
func arrive(b *testing.B, db *store.DB, e *engine.Engine, n int) {
	b.Helper()
	write(b, db, func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE dispatch_queue SET status = 'completed' WHERE status = 'dispatched'")
		return err
	})
	r := engine.Registration{RunID: fmt.Sprint("run-", n), OrgID: "default", Plan: plan.Plan{Workflow: "ci"}, Event: json.RawMessage(`{"type":"push"}`)}
	for i := range benchAgents * benchSlots {
		r.Plan.Jobs = append(r.Plan.Jobs, plan.Job{ID: fmt.Sprintf("job-%d-%d", n, i), Name: fmt.Sprint(i), BaseName: fmt.Sprint(i),
			Selector: on("linux"), Config: json.RawMessage(`{"name":"x"}`)})
	}
	if err := e.Register(b.Context(), r); err != nil {
		b.Fatal(err)
	}
}

func write(b *testing.B, db *store.DB, fn func(ctx context.Context, tx *store.Tx) error) {
	b.Helper()
	if err := db.Write(b.Context(), fn); err != nil {
		b.Fatal(err)
	}
}
