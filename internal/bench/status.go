package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/proc"
)

// Status measures how many status updates of steps a server takes in a second, from agents that send theirs as fast as
// they are acknowledged.
func Status(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "status", Store: o.store(), Status: "success"}
	b, err := newBed(ctx, o)
	if err != nil {
		return result, err
	}
	defer b.close()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var floods []*flood
	var jobs []wire.JobDispatch
	for i := range o.Agents {
		f, d, err := b.startFlood(serving, i)
		if err != nil {
			return result, err
		}
		floods, jobs = append(floods, f), append(jobs, d)
	}
	o.say("%d agents send %d updates each", o.Agents, o.N)
	took, cpu, err := b.timed(func() error {
		ended := make(chan error)
		for i, f := range floods {
			go func() { ended <- f.update(serving, jobs[i], o.N) }()
		}
		var failed error
		for range floods {
			failed = errors.Join(failed, <-ended)
		}
		return failed
	})
	if err != nil {
		return result, err
	}
	all := float64(o.N * o.Agents)
	rate, each := all/took.Seconds(), millis(cpu)/all
	result.Updates, result.UpdateCPU = &rate, &each
	return result, b.memory(&result)
}

// update sends n updates: each step starts and succeeds.
func (f *flood) update(ctx context.Context, d wire.JobDispatch, n int) error {
	for i := range n {
		state := ci.StepRunning
		if i%2 == 1 {
			state = ci.StepSuccess
		}
		err := f.post(ctx, wire.StepStatus{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, StepIndex: i / 2,
			StepName: fmt.Sprint("step ", i/2), State: state, Timestamp: time.Now().UnixMilli()})
		if err != nil {
			return err
		}
	}
	return f.await(ctx, 0)
}

// timed tells how long something took, and what it has cost the server.
func (b *bed) timed(do func() error) (took, cpu time.Duration, err error) {
	before, err := proc.CPU(b.Server.PID())
	if err != nil {
		return 0, 0, err
	}
	started := time.Now()
	if err := do(); err != nil {
		return 0, 0, errors.Join(err, b.Words())
	}
	took = time.Since(started)
	after, err := proc.CPU(b.Server.PID())
	return took, after - before, err
}
