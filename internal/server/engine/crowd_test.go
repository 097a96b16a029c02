package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/contexts"
	"kici/internal/server/engine"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// crowd is agents, people and loops of several nodes that all act at once, on whatever there is, without regard for each
// other. What each of them does may come too late, and nothing else may become of it.
type crowd struct {
	*bench
	runs atomic.Int64
}

// one is a member of the crowd.
type one struct {
	*crowd
	*rand.Rand
	agent string
}

func TestACrowdStandsInNobodysWay(t *testing.T) {
	const members, steps = 8, 60
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {ConcurrencyLimit: number(2)}, "base": {RequiredReviewers: []string{"anna"}},
			"last": {ConcurrencyLimit: number(1), ConcurrencyStrategy: contexts.CancelPending}})
		c := &crowd{bench: b}
		var all sync.WaitGroup
		for n := range members {
			all.Go(func() {
				o := one{c, rand.New(rand.NewPCG(uint64(n), 1)), fmt.Sprint("agent-", n%4)}
				for range steps {
					if err := o.act(b.t.Context()); err != nil && !errors.Is(err, engine.ErrNotOwner) && !errors.Is(err, engine.ErrRunTerminal) {
						b.t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if twice := b.list("SELECT job_id FROM dispatch_attempts WHERE ended_at IS NULL GROUP BY job_id HAVING count(*) > 1"); len(twice) > 0 {
			b.t.Errorf("jobs that were given out twice: %q", twice)
		}
		for _, run := range b.list("SELECT run_id FROM execution_runs WHERE completed_at IS NULL") {
			_, err := b.e.Cancel(b.t.Context(), run, "api_key:1", "", true)
			b.must(err)
		}
		for range 4 { // whatever still waits for an agent is given up, and so is what comes of that
			b.now.Add(25 * 3_600_000)
			b.must(errors.Join(b.e.SweepOnce(b.t.Context()), b.e.FollowOnce(b.t.Context())))
		}
		for what, query := range settled {
			if left := b.list(query); len(left) > 0 {
				b.t.Errorf("%s: %q", what, left)
			}
		}
	})
}

func (o one) any(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[o.IntN(len(values))]
}

func (o one) act(ctx context.Context) error {
	job := o.any(o.list("SELECT id FROM dispatch_queue WHERE status IN ('dispatched', 'recovering') AND agent_id = $1", o.agent))
	if job == "" || o.IntN(8) == 0 {
		job = o.any(o.list("SELECT job_id FROM execution_jobs WHERE completed_at IS NULL"))
	}
	run := o.any(o.list("SELECT run_id FROM execution_jobs WHERE job_id = $1", job))
	said := wire.JobStatus{MessageID: "m", JobID: job, Timestamp: 1}
	switch o.IntN(14) {
	case 0:
		o.begins()
	case 1, 2:
		return o.takes(ctx)
	case 3, 4:
		_, err := o.e.Acked(ctx, o.agent, "", job)
		return err
	case 5:
		said.State = ci.JobRunning
		return o.e.JobReported(ctx, o.agent, said)
	case 6, 7:
		said.State = []ci.JobStatus{ci.JobSuccess, ci.JobSuccess, ci.JobFailed}[o.IntN(3)]
		said.Data = []byte(o.any([]string{`{}`, `{"initComplete":true,"initResult":{"env":{},"matrixValues":[{"v":"1"},{"v":"2"}]}}`,
			`{"dynamicComplete":true,"dynamicJobs":[` + lockJob("x", "") + `,` + lockJob("y", `,"needs":["x"]`) + `]}`}))
		return o.e.JobReported(ctx, o.agent, said)
	case 8:
		word := wire.StepStatus{MessageID: "1", RunID: run, JobID: job, StepIndex: o.IntN(3), StepName: "s", State: ci.StepRunning, Timestamp: 1}
		return errors.Join(o.e.Reported(ctx, o.agent, engine.Owned{RunID: run, JobID: job, JobName: "a"}, word),
			o.e.JobBeat(ctx, o.agent, wire.JobHeartbeat{JobID: job}))
	case 9:
		if run != "" && o.IntN(3) == 0 {
			_, err := o.e.Cancel(ctx, run, "api_key:1", "", o.IntN(2) == 0)
			return err
		}
	case 10:
		_, err := o.e.Connected(ctx, "agent-1", []wire.InFlightJob{{JobID: job}}, true)
		return errors.Join(err, o.e.Lost(ctx, "agent-2", "", false))
	case 11:
		_, err := engine.Groups{Engine: o.e}.Report(ctx, o.agent, o.IntN(2) == 0, wire.ConcurrencyReport{MessageID: "q-" + job, JobID: job, Group: "g"})
		return err
	case 12:
		o.now.Add(3000)
		return errors.Join(o.e.SweepOnce(ctx), o.e.FollowOnce(ctx))
	case 13:
		if hold := o.any(o.list("SELECT id FROM held_runs WHERE status = 'pending'")); hold != "" {
			_, err := o.e.Decide(ctx, hold, engine.Vote{By: contexts.Actor{ID: "anna", MayDecide: true}, Through: ci.QueueContext, Answer: contexts.Approve})
			return err
		}
	}
	return nil
}

// begins registers a run that has a bit of everything.
func (o one) begins() {
	in := func(names ...string) string {
		for i, name := range names {
			names[i] = fmt.Sprintf(`{"value":%q,"dynamic":false}`, name)
		}
		return `,"environments":[` + strings.Join(names, ",") + `]`
	}
	members := []string{"", in("prod"), in("last"), in("base"), in("prod", "last"), in("last", "prod")}
	o.plan(fmt.Sprint("run-", o.runs.Add(1)), nil, o.any([]string{"", queueMode, `,"concurrency":{"hasGroup":true}`}),
		lockJob("a", o.any(members)), lockJob("b", o.any(members)), lockJob("c", `,"needs":["a"]`+o.any(members)),
		lockJob("m", `,"matrix":{"_type":"dynamic"},"maxParallel":1`), generator)
}

// takes claims some of what waits, in any order.
func (o one) takes(ctx context.Context) error {
	var offers []queue.Offer
	for _, id := range o.list("SELECT id FROM dispatch_queue WHERE status = 'pending' LIMIT 6") {
		offers = append(offers, queue.Offer{JobID: id, AgentID: o.agent, Room: 4})
	}
	if len(offers) == 0 {
		return nil
	}
	o.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
	return o.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		now := o.now.Load()
		_, err := queue.ClaimAll(ctx, tx, offers, "node-1", queue.Moment{Now: now, AsOf: now, AckDeadline: now + 10_000})
		return err
	})
}
