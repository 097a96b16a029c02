package events

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
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

func TestMain(m *testing.M) { storetest.Main(m) }

// rig is the room with an engine that tells it of what ends, on a clock that the test moves.
type rig struct {
	t    testing.TB
	db   *store.DB
	room *Room
	e    *engine.Engine
	now  int64 // milliseconds

	mu      sync.Mutex
	dropped map[string]int
}

func newRig(t testing.TB, db *store.DB) *rig {
	r := &rig{t: t, db: db, now: 1_000_000, dropped: map[string]int{}}
	clock := func() time.Time { return time.UnixMilli(r.now) }
	log := slog.New(slog.DiscardHandler)
	settings := DefaultSettings()
	settings.PerMinute = 3
	r.room = New(Deps{DB: db, Clock: clock, Log: log, Settings: settings, Wake: service.NewPoke(), Dropped: r.drop})
	r.e = newEngine(r, r.room)
	return r
}

func newEngine(r *rig, events engine.Events) *engine.Engine {
	settings := engine.DefaultSettings()
	settings.NodeID = "node"
	return engine.New(engine.Deps{DB: r.db, Clock: r.room.Clock, Log: r.room.Log, Settings: settings, Dispatch: service.NewPoke(),
		Effects: service.NewPoke(), Events: events})
}

func each(t *testing.T, test func(r *rig)) {
	storetest.Each(t, func(t *testing.T, db *store.DB) { test(newRig(t, db)) })
}

func (r *rig) drop(reason string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped[reason] += n
}

// drops are the counts so far.
func (r *rig) drops() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.dropped)
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) emit(e Event) (id string, err error) {
	err = r.db.Write(r.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		id, err = r.room.EmitTx(ctx, tx, e)
		return err
	})
	return id, err
}

func (r *rig) exec(statement string, args ...any) {
	r.t.Helper()
	r.must(r.db.Write(r.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}))
}

// woken tells whether somebody was woken since it was asked last.
func (r *rig) woken() bool {
	select {
	case <-r.room.Wake:
		return true
	default:
		return false
	}
}

// row is an event as the store has it.
type row struct {
	Name, Payload, Org, Repo, RoutingKey, Run, Job, Targets string
	Depth                                                   int
	Limited                                                 bool
	CreatedAt, ExpiresAt                                    int64
}

// rows are the events in the order in which they were written.
func (r *rig) rows() []row {
	r.t.Helper()
	found, err := r.db.Read().QueryContext(r.t.Context(), `SELECT event_name, payload, org_id, source_repo, source_routing_key, source_run_id,
    source_job_id, target_repos, chain_depth, rate_key IS NOT NULL, created_at, expires_at FROM kici_events ORDER BY id`)
	r.must(err)
	defer found.Close()
	var out []row
	for found.Next() {
		var e row
		var run, job, targets sql.NullString
		r.must(found.Scan(&e.Name, &e.Payload, &e.Org, &e.Repo, &e.RoutingKey, &run, &job, &targets, &e.Depth, &e.Limited, &e.CreatedAt, &e.ExpiresAt))
		e.Run, e.Job, e.Targets = run.String, job.String, targets.String
		out = append(out, e)
	}
	r.must(found.Err())
	return out
}

func (r *rig) names() []string {
	r.t.Helper()
	var out []string
	for _, e := range r.rows() {
		out = append(out, e.Name)
	}
	return out
}

// registration is a run of the workflow "ci" with jobs of these names.
func registration(run string, jobs ...plan.Job) engine.Registration {
	reg := engine.Registration{RunID: run, OrgID: "acme", RoutingKey: "github:1", Provider: "github", Repo: "a/b", Ref: "main", SHA: "abc",
		Plan: plan.Plan{Workflow: "ci"}}
	for _, j := range jobs {
		j.ID, j.BaseName, j.Selector = run+"/"+j.Name, j.Name, label.Selector{Labels: []string{"linux"}}
		reg.Plan.Jobs = append(reg.Plan.Jobs, j)
	}
	return reg
}

// run plays a job of a run until it ends.
func (r *rig) run(run, job string, end ci.JobStatus, data string) {
	r.t.Helper()
	id := run + "/" + job
	r.must(r.db.Write(r.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := queue.Claim(ctx, tx, id, "agent", "node", 1, r.now, r.now+10_000)
		return err
	}))
	_, err := r.e.Acked(r.t.Context(), "agent", run, id)
	r.must(err)
	r.must(r.e.JobReported(r.t.Context(), "agent", wire.JobStatus{JobID: id, State: ci.JobRunning, Timestamp: r.now}))
	r.now += 250
	r.end(id, end, data)
}

func (r *rig) end(job string, end ci.JobStatus, data string) {
	r.t.Helper()
	m := wire.JobStatus{JobID: job, State: end, Timestamp: r.now}
	if data != "" {
		m.Data = json.RawMessage(data)
	}
	r.must(r.e.JobReported(r.t.Context(), "agent", m))
}
