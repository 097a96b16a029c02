package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"kici/internal/client"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/kit/service"
)

// downTime is how long the server is away.
const downTime = time.Second

// keeper is a stub that holds one job, through lost connections, until it is told to end it.
type keeper struct {
	stub    func() *Stub
	release <-chan struct{}

	given atomic.Int64 // dispatches
	mu    sync.Mutex
	job   *wire.JobDispatch
	ended bool // its end is acknowledged
}

// run keeps the stub connected until ctx ends. It pauses before connecting again as agents do.
func (k *keeper) run(ctx context.Context) {
	for pause := time.Second; ctx.Err() == nil; {
		if k.connected(ctx) {
			pause = time.Second
		}
		if !service.Sleep(ctx, time.Duration(float64(pause)*(1+rand.Float64()/2))) {
			return
		}
		pause = min(pause*3/2, time.Minute)
	}
}

// connected serves one connection and tells whether it came to be.
func (k *keeper) connected(ctx context.Context) bool {
	s := k.stub()
	s.Features = []string{wire.FeatureFrameAck, wire.FeatureStartFence}
	k.mu.Lock()
	if k.job != nil && !k.ended {
		s.InFlight = []wire.InFlightJob{{JobID: k.job.JobID, RunID: k.job.RunID}}
	}
	k.mu.Unlock()
	end := ""
	s.Handle = func(ctx context.Context, m wire.Message) error {
		switch m := m.(type) {
		case wire.JobDispatch:
			return k.take(ctx, s, m)
		case wire.Ack:
			if m.MessageID == end {
				k.mu.Lock()
				k.ended = true
				k.mu.Unlock()
			}
		}
		return nil
	}
	if err := s.Connect(ctx); err != nil {
		return false
	}
	end = uuid.NewString()
	life, stop := context.WithCancel(ctx)
	defer stop()
	go k.finish(life, s, end)
	_ = s.Serve(life) // whatever ended it, the next connection goes on
	return true
}

// take accepts a dispatch and says that the job runs.
func (k *keeper) take(ctx context.Context, s *Stub, d wire.JobDispatch) error {
	k.given.Add(1)
	k.mu.Lock()
	k.job = &d
	k.mu.Unlock()
	at := time.Now().UnixMilli()
	return s.sendAll(ctx, []wire.Message{
		wire.JobAck{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, Timestamp: at},
		wire.JobStatus{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: at},
	})
}

// finish reports the success of the job once it is told to.
func (k *keeper) finish(ctx context.Context, s *Stub, id string) {
	select {
	case <-ctx.Done():
		return
	case <-k.release:
	}
	k.mu.Lock()
	job, ended := k.job, k.ended
	k.mu.Unlock()
	if job != nil && !ended {
		_ = s.send(ctx, wire.JobStatus{MessageID: id, RunID: job.RunID, JobID: job.JobID, State: ci.JobSuccess, Timestamp: time.Now().UnixMilli()})
	}
}

// Restart gives each of many stub agents a job, kills the server, starts it again, and measures how long it takes until
// every agent has its job again. Then the jobs end; one that did not succeed is lost.
func Restart(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "restart", Store: o.store(), Status: "failed"}
	if o.Agents%wideJobs != 0 || o.Agents/wideJobs > 4 || o.Agents == 0 {
		return result, fmt.Errorf("--agents must be %d, %d, %d or %d: each has a job of one run; it is %d", wideJobs, 2*wideJobs, 3*wideJobs, 4*wideJobs, o.Agents)
	}
	b, err := newBedFor(ctx, o, wide(o.Agents/wideJobs))
	if err != nil {
		return result, err
	}
	defer b.close()
	release := make(chan struct{})
	keepers, stop := b.keep(ctx, o.Agents, release)
	defer stop()
	o.say("%d agents connect and are given a job each", o.Agents)
	if err := b.AwaitAgents(ctx, o.Agents); err != nil {
		return result, err
	}
	if _, err := b.Push(ctx); err != nil {
		return result, err
	}
	err = b.awaitJobs(ctx, o, func(s ci.JobStatus) bool { return s == ci.JobRunning })
	if err != nil {
		return result, err
	}
	if err := b.bounce(ctx, o, &result); err != nil {
		return result, err
	}
	close(release)
	o.say("the jobs end")
	if err := b.awaitJobs(ctx, o, ci.JobStatus.Terminal); err != nil {
		return result, err
	}
	return result, b.audit(ctx, o, keepers, &result)
}

// keep starts the stub agents. The second result ends them.
func (b *bed) keep(ctx context.Context, count int, release <-chan struct{}) ([]*keeper, func()) {
	ctx, cancel := context.WithCancel(ctx)
	keepers := make([]*keeper, count)
	var running sync.WaitGroup
	for i := range keepers {
		keepers[i] = &keeper{stub: func() *Stub { return b.stub(i) }, release: release}
		running.Go(func() { keepers[i].run(ctx) })
	}
	return keepers, func() {
		cancel()
		running.Wait()
	}
}

// countJobs counts jobs of the only run.
func (b *bed) countJobs(ctx context.Context, counts func(status ci.JobStatus) bool) (int, error) {
	list, err := b.API.Runs(ctx, client.RunQuery{Limit: 1})
	if err != nil || len(list.Runs) == 0 {
		return 0, err
	}
	jobs, err := b.API.Jobs(ctx, list.Runs[0].RunID)
	n := 0
	for _, j := range jobs {
		if counts(j.Status) {
			n++
		}
	}
	return n, err
}

// lookEvery is how often a thousand jobs are looked at: the answer costs the server something.
const lookEvery = 250 * time.Millisecond

// awaitJobs waits until all jobs are in one of the states.
func (b *bed) awaitJobs(ctx context.Context, o Options, counts func(ci.JobStatus) bool) error {
	return b.Await(ctx, "all jobs to move", func() (bool, error) {
		service.Sleep(ctx, lookEvery)
		n, err := b.countJobs(ctx, counts)
		return n == o.Agents, err
	})
}

// bounce kills the server, lets it be away for a while and starts it again.
func (b *bed) bounce(ctx context.Context, o Options, result *Result) error {
	o.say("the server is killed")
	u, err := url.Parse(b.Server.URL)
	if err != nil {
		return err
	}
	b.Server.Kill()
	if !service.Sleep(ctx, downTime) {
		return ctx.Err()
	}
	started := time.Now()
	if err := b.StartServer(ctx, u.Port()); err != nil {
		return err
	}
	healthy := time.Now()
	o.say("it answers again after %s", healthy.Sub(started).Round(time.Millisecond))
	err = b.Await(ctx, "the agents to come back", func() (bool, error) {
		waiting, err := b.API.Queue(ctx, client.QueueQuery{Status: string(ci.QueueRecovering), Limit: 1})
		return len(waiting) == 0, err
	})
	if err != nil {
		return err
	}
	ready, reowned := millis(healthy.Sub(started)), millis(time.Since(healthy))
	result.Ready, result.Reowned = &ready, &reowned
	return nil
}

// audit counts what was lost, and what was given out more than once.
func (b *bed) audit(ctx context.Context, o Options, keepers []*keeper, result *Result) error {
	succeeded, err := b.countJobs(ctx, func(s ci.JobStatus) bool { return s == ci.JobSuccess })
	if err != nil {
		return err
	}
	lost, given := o.Agents-succeeded, 0
	for _, k := range keepers {
		given += int(k.given.Load())
	}
	repeated := given - o.Agents
	result.Jobs, result.Lost, result.Repeated = &o.Agents, &lost, &repeated
	if lost == 0 && repeated == 0 {
		result.Status = "success"
		return nil
	}
	return errors.Join(fmt.Errorf("%d jobs were lost and %d given out again", lost, repeated), b.memory(result))
}
