package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/server/engine"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// atOnce runs things side by side, each of which may be too late, and nothing else.
func atOnce(t *testing.T, tooLate []error, do ...func() error) {
	t.Helper()
	var all sync.WaitGroup
	for _, one := range do {
		all.Go(func() {
			err := one()
			for _, late := range tooLate {
				if errors.Is(err, late) {
					return
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A word about a step locks the job and its queue row, and so does every command. In two orders they would wait for each
// other until the database gives one of them up.
func TestWordsAboutStepsMeetCommandsOfTheirRun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		for round := range 8 {
			run := fmt.Sprint("run-", round)
			b.register(run, job{name: "a"}, job{name: "b"}, job{name: "c", needs: []string{"a"}})
			agents := map[string]string{run + "/a": "agent-1", run + "/b": "agent-2"}
			for job, agent := range agents {
				if !b.claim(job, agent) {
					t.Fatalf("job %s cannot be claimed", job)
				}
				b.start(agent, job)
			}
			var all []func() error
			for job, agent := range agents {
				all = append(all, func() error {
					for i := range 6 {
						m := wire.StepStatus{MessageID: fmt.Sprint(i), RunID: run, JobID: job, StepIndex: i, StepName: "s", State: ci.StepRunning, Timestamp: 1}
						if err := b.e.StepReported(t.Context(), agent, engine.Owned{RunID: run, JobID: job, JobName: "a"}, m); err != nil {
							return err
						}
					}
					return nil
				}, func() error {
					return b.e.JobBeat(t.Context(), agent, wire.JobHeartbeat{JobID: job})
				}, func() error {
					return b.e.JobReported(t.Context(), agent, wire.JobStatus{MessageID: "r", RunID: run, JobID: job, State: ci.JobRunning, Timestamp: 1})
				})
			}
			all = append(all, func() error { return b.e.Lost(t.Context(), "agent-2", "", false) },
				func() error { _, err := b.e.Cancel(t.Context(), run, "api_key:1", "", false); return err },
				func() error {
					return b.e.JobReported(t.Context(), "agent-1", wire.JobStatus{MessageID: "e", RunID: run, JobID: run + "/a", State: ci.JobSuccess, Timestamp: 1})
				})
			atOnce(t, []error{engine.ErrRunTerminal}, all...)
			for job, agent := range agents {
				b.must(b.e.JobReported(t.Context(), agent, wire.JobStatus{MessageID: "z", RunID: run, JobID: job, State: ci.JobCancelled, Timestamp: 1}))
			}
			if open := b.list(`SELECT s.job_id FROM execution_steps s JOIN execution_jobs j ON j.job_id = s.job_id
WHERE j.completed_at IS NOT NULL AND s.status = 'running'`); len(open) > 0 {
				t.Fatalf("steps that go on in jobs that have ended: %q", open)
			}
			if t.Failed() {
				return
			}
		}
	})
}

// Somebody else's transaction may take rows in another order, such as a person's at the database.
func TestACommandThatTheDatabaseGivesUpIsDecidedAgain(t *testing.T) {
	b := newBench(t, storetest.Postgres(t))
	b.register("r", job{name: "a"})
	cancelled := make(chan error, 1)
	b.write(func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Do(ctx, "SET LOCAL deadlock_timeout = '1min'"); err != nil { // so that it is the engine's that is given up
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE execution_jobs SET pick = pick WHERE job_id = 'r/a'"); err != nil {
			return err
		}
		go func() {
			_, err := b.e.Cancel(ctx, "r", "api_key:1", "", false)
			cancelled <- err
		}()
		b.somebodyWaits()
		_, err := store.Texts(ctx, tx, "SELECT run_id FROM execution_runs FOR UPDATE")
		return err
	})
	b.must(<-cancelled)
	b.wantJobs(map[string]string{"r/a": "cancelled"})
}

// Runs that come at once must not each find the slot free that only one of them can have.
func TestRunsThatComeAtOnceKeepToTheSlotsOfTheirContext(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {ConcurrencyLimit: number(2)}})
		var all []func() error
		for n := range 10 {
			r := registration(fmt.Sprint("run-", n), job{name: "a", edit: func(j *plan.Job) { j.Contexts = []string{"prod"} }})
			all = append(all, func() error { return b.e.Register(b.t.Context(), r) })
		}
		atOnce(b.t, nil, all...)
		if queued := b.list("SELECT id FROM dispatch_queue"); len(queued) != 2 {
			b.t.Errorf("queued %q", queued)
		}
		if held := b.list("SELECT run_id FROM held_runs WHERE status = 'pending'"); len(held) != 8 {
			b.t.Errorf("held %q", held)
		}
	})
}

// One run that two nodes register at once is one run, and what is done with it is done by both.
func TestARunThatIsRegisteredByTwoAtOnce(t *testing.T) {
	each(t, func(b *bench) {
		for n := range 5 {
			r := registration(fmt.Sprint("run-", n), job{name: "a"}, job{name: "b", needs: []string{"a"}})
			var with atomic.Int64
			register := func() error {
				return b.e.Register(b.t.Context(), r, func(ctx context.Context, tx *store.Tx) error {
					tx.After(func() { with.Add(1) })
					return nil
				})
			}
			atOnce(b.t, nil, register, register, register)
			if jobs, rows := b.list("SELECT job_id FROM execution_jobs WHERE run_id = $1", r.RunID), b.list("SELECT id FROM dispatch_queue WHERE run_id = $1", r.RunID); len(jobs) != 2 || len(rows) != 1 || with.Load() != 3 {
				b.t.Errorf("jobs %q, queued %q, done also: %d", jobs, rows, with.Load())
			}
		}
	})
}

// Runs of one new workflow bring the same new selectors, each in the order of its jobs.
func TestRunsInternTheirSelectorsInOneOrder(t *testing.T) {
	b := newBench(t, storetest.Postgres(t))
	labelled := func(name string) job {
		return job{name: name, edit: func(j *plan.Job) { j.Selector = label.Selector{Labels: []string{name}} }}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	intern := func(ctx context.Context, name string) error {
		return b.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			_, err := queue.Intern(ctx, tx, label.Selector{Labels: []string{name}})
			return err
		})
	}
	registered := make(chan error, 1)
	err := b.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if _, err := queue.Intern(ctx, tx, label.Selector{Labels: []string{"m"}}); err != nil {
			return err
		}
		if err := tx.All(ctx); err != nil {
			return err
		}
		go func() {
			registered <- b.e.Register(ctx, registration("r", labelled("z"), labelled("m"), labelled("a")))
		}()
		b.somebodyWaits()
		return intern(ctx, "z") // which the run does not have yet
	})
	b.must(err)
	b.must(<-registered)
}

// somebodyWaits returns once a transaction waits for another.
func (b *bench) somebodyWaits() {
	b.t.Helper()
	for waits := ""; waits == ""; {
		waits = b.text("SELECT max(pid)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
	}
}
