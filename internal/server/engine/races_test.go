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
						if err := b.e.Reported(t.Context(), agent, engine.Owned{RunID: run, JobID: job, JobName: "a"}, m); err != nil {
							return err
						}
					}
					return nil
				}, func() error {
					return b.e.Reported(t.Context(), agent, engine.Owned{RunID: run, JobID: job, JobName: "a"},
						wire.StepStatus{MessageID: "6", RunID: run, JobID: job, StepIndex: 6, StepName: "s", State: ci.StepRunning, Timestamp: 1},
						wire.JobStatus{MessageID: "r", RunID: run, JobID: job, State: ci.JobRunning, Timestamp: 1})
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
	b.register("r", job{name: "a"}, job{name: "b"})
	b.deadlock(deadlock{
		gate:  "SELECT job_id FROM execution_jobs WHERE job_id = 'r/a' FOR UPDATE",
		holds: "SELECT job_id FROM execution_jobs WHERE job_id = 'r/b' FOR UPDATE",
		wants: "SELECT run_id FROM execution_runs FOR UPDATE",
		engine: func() error {
			_, err := b.e.Cancel(t.Context(), "r", "api_key:1", "", false)
			return err
		},
	})
	b.wantJobs(map[string]string{"r/a": "cancelled", "r/b": "cancelled"})
}

// deadlock is a transaction of somebody else and one of the engine, each of which waits for what the other has.
type deadlock struct {
	gate   string       // locks what the engine locks between what the other wants and what it holds
	holds  string       // locks what the other has
	wants  string       // locks what the engine has by then
	engine func() error // what the engine does
	then   string       // what the other does before it commits, "" for nothing
}

// deadlock has the engine's transaction given up for the other. PostgreSQL looks for a deadlock once for every wait, a second
// after it began, so it has to be the engine's that waits last, however slow the machine: a third transaction keeps it
// at the gate until the other waits.
func (b *bench) deadlock(d deadlock) {
	b.t.Helper()
	done := make(chan error, 1)
	b.write(func(ctx context.Context, other *store.Tx) error {
		if err := other.Do(ctx, "SET LOCAL deadlock_timeout = '1h'"); err != nil {
			return err
		}
		if _, err := store.Texts(ctx, other, d.holds); err != nil {
			return err
		}
		waited := make(chan error, 1)
		b.write(func(ctx context.Context, third *store.Tx) error {
			if _, err := store.Texts(ctx, third, d.gate); err != nil {
				return err
			}
			go func() { done <- d.engine() }()
			b.wait(1)
			go func() {
				_, err := store.Texts(ctx, other, d.wants)
				waited <- err
			}()
			b.wait(2)
			return nil
		})
		if err := <-waited; err != nil || d.then == "" {
			return err
		}
		return other.Do(ctx, d.then)
	})
	b.must(<-done)
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
		if err := storetest.Send(ctx, tx); err != nil {
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
	b.wait(1)
}

// wait returns once so many transactions wait for others.
func (b *bench) wait(many int) {
	b.t.Helper()
	const waiting = "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	for len(b.list(waiting)) < many {
	}
}

// An agent that may start holds the job, and one that lost it may not, however close the answer and the deadline are.
func TestAnAnswerAtTheLastMoment(t *testing.T) {
	each(t, func(b *bench) {
		for round := range 10 {
			run, agent := fmt.Sprint("run-", round), fmt.Sprint("agent-", round)
			b.register(run, job{name: "a"})
			if !b.claim(run+"/a", agent) {
				b.t.Fatal("cannot be claimed")
			}
			b.now.Add(10_001)
			var fenced [2]bool
			answer := func(n int) func() error {
				return func() error {
					ack, err := b.e.Acked(b.t.Context(), agent, "", run+"/a")
					fenced[n] = ack.Fenced
					return err
				}
			}
			atOnce(b.t, nil, answer(0), func() error { return b.e.SweepOnce(b.t.Context()) }, answer(1))
			holder := b.text("SELECT coalesce(agent_id, '') FROM dispatch_queue WHERE id = $1", run+"/a")
			for _, fenced := range fenced {
				if fenced == (holder == agent) {
					b.t.Errorf("fenced: %v, and the job is with %q", fenced, holder)
				}
			}
		}
	})
}

// What an agent says of a step while its job is taken from it counts no more, also when it began to say so before.
func TestAWordAboutAStepThatWaitsForTheRowOfAnotherOwner(t *testing.T) {
	b := newBench(t, storetest.Postgres(t))
	for end, change := range map[string]func(ctx context.Context, tx *store.Tx) error{
		"requeued": func(ctx context.Context, tx *store.Tx) error {
			return queue.Requeue(ctx, tx, "requeued/a", "why", 1, 0)
		},
		"withdrawn": func(ctx context.Context, tx *store.Tx) error { return queue.Withdraw(ctx, tx, "withdrawn/a", "why", 1) },
		"ended": func(ctx context.Context, tx *store.Tx) error {
			return tx.Do(ctx, "UPDATE execution_jobs SET completed_at = 5, status = 'failed' WHERE job_id = 'ended/a'")
		},
		"kept": func(ctx context.Context, tx *store.Tx) error { return queue.Start(ctx, tx, "kept/a") },
	} {
		b.register(end, job{name: "a"})
		if agents := map[string]string{"requeued": "agent-1", "withdrawn": "agent-2", "ended": "agent-3", "kept": "agent-4"}; !b.claim(end+"/a", agents[end]) {
			t.Fatalf("%s cannot be claimed", end)
		}
		agent := b.text("SELECT agent_id FROM dispatch_queue WHERE id = $1", end+"/a")
		said := make(chan error, 1)
		b.write(func(ctx context.Context, tx *store.Tx) error {
			if err := errors.Join(change(ctx, tx), storetest.Send(ctx, tx)); err != nil {
				return err
			}
			go func() {
				m := wire.StepStatus{MessageID: "1", RunID: end, JobID: end + "/a", StepName: "s", State: ci.StepRunning, Timestamp: 1}
				said <- b.e.Reported(ctx, agent, engine.Owned{RunID: end, JobID: end + "/a", JobName: "a"}, m)
			}()
			b.somebodyWaits()
			return nil
		})
		b.must(<-said)
		if steps := b.list("SELECT job_id FROM execution_steps WHERE run_id = $1", end); (len(steps) == 1) != (end == "kept") {
			t.Errorf("%s: steps %q", end, steps)
		}
	}
}

// Of a group no more runs go on than may, however many ask and end at once, and each has its turn.
func TestManyRunsAskForAGroupAtOnce(t *testing.T) {
	each(t, func(b *bench) {
		const runs = 6
		var jobs []string
		for n := range runs {
			run := fmt.Sprint("run-", n)
			b.plan(run, nil, queueMode, lockJob("a", ""))
			jobs = append(jobs, b.id(run, "a"))
			b.begin(fmt.Sprint("agent-", n), jobs[n])
		}
		ended := map[string]bool{}
		for len(ended) < runs {
			var proceed [runs]bool
			var all []func() error
			for n, job := range jobs {
				if ended[job] {
					continue
				}
				all = append(all, func() error {
					ack, err := engine.Groups{Engine: b.e}.Report(b.t.Context(), fmt.Sprint("agent-", n), true, wire.ConcurrencyReport{MessageID: job, JobID: job, Group: "g"})
					proceed[n] = ack.Action == wire.ConcurrencyProceed
					return err
				})
			}
			atOnce(b.t, nil, all...)
			going := 0
			for n, job := range jobs {
				if proceed[n] {
					going++
					b.report(fmt.Sprint("agent-", n), job, ci.JobSuccess, "")
					ended[job] = true
				}
			}
			if going != 1 {
				b.t.Fatalf("%d go on", going)
			}
		}
	})
}

// What is decided again is answered as it was decided last.
func TestAnAnswerIsThatOfTheLastDecision(t *testing.T) {
	b := newBench(t, storetest.Postgres(t))
	for _, run := range []string{"r1", "r2"} {
		b.plan(run, nil, queueMode, lockJob("a", ""))
	}
	first, second := b.id("r1", "a"), b.id("r2", "a")
	b.begin("agent-1", first)
	b.begin("agent-2", second)
	b.group("agent-1", first, "g", true)
	if ack := b.group("agent-2", second, "g", true); ack.Action != wire.ConcurrencyWait {
		t.Fatalf("second: %+v", ack)
	}
	var ack wire.ConcurrencyAck
	b.deadlock(deadlock{
		gate:  "SELECT group_key FROM concurrency_groups FOR UPDATE",
		holds: "SELECT job_id FROM concurrency_waiters FOR UPDATE", // to which it comes with what it decided
		wants: "SELECT run_id FROM execution_runs WHERE run_id = 'r2' FOR UPDATE",
		engine: func() (err error) {
			ack, err = engine.Groups{Engine: b.e}.Report(t.Context(), "agent-2", true, wire.ConcurrencyReport{MessageID: "ask-" + second, JobID: second, Group: "g"})
			return err
		},
		then: "DELETE FROM concurrency_slots WHERE run_id = 'r1'",
	})
	if ack.Action != wire.ConcurrencyProceed {
		t.Errorf("the place is free: %+v", ack)
	}
}
