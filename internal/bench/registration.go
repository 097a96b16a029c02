package bench

import (
	"context"
	"time"

	"kici/internal/client"
	"kici/internal/proc"
)

// Registration measures how long it takes from a webhook until a run of a thousand jobs is there, one after the other.
// There is no agent: the jobs stay in the queue.
func Registration(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "registration", Store: o.store(), Status: "success"}
	b, err := newBedFor(ctx, o, wide(4))
	if err != nil {
		return result, err
	}
	defer b.close()
	before, err := proc.CPU(b.Server.PID())
	if err != nil {
		return result, err
	}
	var times []time.Duration
	for i := range o.N {
		o.say("run %d of %d", i+1, o.N)
		took, err := b.registered(ctx)
		if err != nil {
			return result, err
		}
		times = append(times, took)
	}
	after, err := proc.CPU(b.Server.PID())
	if err != nil {
		return result, err
	}
	cpu := millis(after-before) / float64(o.N)
	result.Registration, result.ServerCPU = summarise(times), &cpu
	return result, b.memory(&result)
}

// registered sends a webhook and waits for the run of it.
func (b *bed) registered(ctx context.Context) (took time.Duration, err error) {
	d, err := b.Push(ctx)
	if err != nil {
		return 0, err
	}
	err = b.Await(ctx, "the run to be registered", func() (bool, error) {
		list, err := b.API.Runs(ctx, client.RunQuery{Limit: 1, Delivery: d.ID})
		took = time.Since(d.Sent)
		return len(list.Runs) > 0, err
	})
	return took, err
}
