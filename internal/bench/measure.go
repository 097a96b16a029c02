package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kici/internal/core/ci"
	"kici/internal/kit/service"
	"kici/internal/proc"
	"kici/internal/rig"
)

// Options say what is measured against what.
type Options struct {
	Postgres string // URL of an empty database; "" is SQLite
	N        int    // how many of what the measure counts
	Agents   int
	Stub     bool
	Delay    time.Duration // of stub agents
	// Progress is told what is being done, for people. Nil is nobody.
	Progress func(text string)
}

func (o Options) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

func (o Options) store() string {
	if o.Postgres != "" {
		return "postgres"
	}
	return "sqlite"
}

// settleTime is how long an idle process is left alone before its memory is read.
const settleTime = 3 * time.Second

// terminal are the states in which a run has ended.
const terminal = "success,failed,cancelled"

// Cold measures the time from the start of the server's process until it answers, each time on an empty data folder.
func Cold(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "cold", Store: o.store(), Status: "success"}
	var times []time.Duration
	for i := range o.N {
		o.say("start %d of %d", i+1, o.N)
		took, err := coldOnce(ctx, o)
		if err != nil {
			return result, err
		}
		times = append(times, took)
	}
	result.ColdStart = summarise(times)
	return result, nil
}

func coldOnce(ctx context.Context, o Options) (time.Duration, error) {
	base, err := os.MkdirTemp("", "kici-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(base)
	started := time.Now()
	server, err := proc.StartServer(ctx, proc.ServerOptions{Data: filepath.Join(base, "cold"), Port: "0", Environ: o.environ()})
	if err != nil {
		return 0, err
	}
	took := time.Since(started)
	server.Stop()
	return took, nil
}

// Idle measures the memory of a server and of agents that have nothing to do.
func Idle(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "idle", Store: o.store(), Status: "success"}
	b, err := newBed(ctx, o)
	if err != nil {
		return result, err
	}
	defer b.close()
	if err := b.startAgents(ctx, o, nil); err != nil {
		return result, err
	}
	o.say("leaving them alone for %s", settleTime)
	if !service.Sleep(ctx, settleTime) {
		return result, ctx.Err()
	}
	return result, b.memory(&result)
}

// memory reads what the server and the largest agent use.
func (b *bed) memory(result *Result) error {
	server, err := proc.RSS(b.Server.PID())
	if err != nil {
		return err
	}
	result.ServerRSS = &server
	for _, a := range b.Agents {
		rss, err := proc.RSS(a.PID())
		if err != nil {
			return err
		}
		if result.AgentRSS == nil || rss > *result.AgentRSS {
			result.AgentRSS = &rss
		}
	}
	return nil
}

// Latency measures, one webhook after the other: the 202; the dispatch, as a stub agent reads it from its socket; and the
// success of a trivial job on a real agent, by the server's own time, which is that of this machine. With Stub there is no
// real agent, and the success is the stub's.
func Latency(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "latency", Store: o.store(), Status: "success"}
	b, err := newBed(ctx, o)
	if err != nil {
		return result, err
	}
	defer b.close()
	stub := o
	stub.Stub, stub.Agents = true, 1
	dispatched := make(chan time.Time, 1)
	if err := b.startAgents(ctx, stub, func(_ string, at time.Time) { dispatched <- at }); err != nil {
		return result, err
	}
	first, err := b.latencies(ctx, o, dispatched)
	if err != nil {
		return result, err
	}
	result.HTTP202, result.Dispatch, result.Success = summarise(first.accepted), summarise(first.dispatched), summarise(first.succeeded)
	if o.Stub {
		return result, b.memory(&result)
	}
	b.endStubs()
	if err := b.startAgents(ctx, o, nil); err != nil {
		return result, err
	}
	second, err := b.latencies(ctx, o, nil)
	if err != nil {
		return result, err
	}
	result.Success = summarise(second.succeeded)
	return result, b.memory(&result)
}

// timings are how long webhooks took to get where.
type timings struct{ accepted, dispatched, succeeded []time.Duration }

// breath is the pause before each webhook: a process that was just told of the last one's end still has things to put away.
const breath = 100 * time.Millisecond

// latencies sends webhooks one after the other. The first is not counted: it fills caches that every later one has.
func (b *bed) latencies(ctx context.Context, o Options, dispatched <-chan time.Time) (timings, error) {
	var t timings
	for i := range o.N + 1 {
		o.say("webhook %d of %d", i, o.N)
		if !service.Sleep(ctx, breath) {
			return t, ctx.Err()
		}
		d, err := b.Push(ctx)
		if err != nil {
			return t, err
		}
		ended, err := b.succeeded(ctx, d)
		if err != nil {
			return t, err
		}
		if dispatched != nil {
			at := <-dispatched
			if i > 0 {
				t.dispatched = append(t.dispatched, at.Sub(d.Sent))
			}
		}
		if i > 0 {
			t.accepted, t.succeeded = append(t.accepted, d.Took), append(t.succeeded, ended.Sub(d.Sent))
		}
	}
	return t, nil
}

// succeeded waits for the success of the delivery's run and gives its time.
func (b *bed) succeeded(ctx context.Context, d rig.Delivery) (at time.Time, err error) {
	err = b.Await(ctx, "the run to end", func() (bool, error) {
		run, ok, err := b.RunOf(ctx, d)
		if !ok || err != nil || !run.Status.Terminal() {
			return false, err
		}
		if run.Status != ci.RunSuccess {
			return false, fmt.Errorf("the run ended as %s: %v", run.Status, run.Reason)
		}
		at = run.CompletedAt.Time
		return true, nil
	})
	return at, err
}

// Burst sends webhooks as fast as the server takes them and waits for the runs to end. A run that never came to be is
// lost; one that has not ended a minute after the last progress is stuck.
func Burst(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "burst", Store: o.store(), Status: "success"}
	b, err := newBed(ctx, o)
	if err != nil {
		return result, err
	}
	defer b.close()
	if err := b.startAgents(ctx, o, nil); err != nil {
		return result, err
	}
	before, err := proc.CPU(b.Server.PID())
	if err != nil {
		return result, err
	}
	sent := time.Now()
	var accepted []time.Duration
	for range o.N {
		d, err := b.Push(ctx)
		if err != nil {
			return result, err
		}
		accepted = append(accepted, d.Took)
	}
	o.say("%d webhooks accepted after %s", o.N, time.Since(sent).Round(time.Millisecond))
	if err := b.drain(ctx, o); err != nil {
		return result, err
	}
	after, err := proc.CPU(b.Server.PID())
	if err != nil {
		return result, err
	}
	result.HTTP202 = summarise(accepted)
	cpu := millis(after-before) / float64(o.N)
	result.ServerCPU = &cpu
	if err := b.tally(ctx, o, sent, &result); err != nil {
		return result, err
	}
	return result, b.memory(&result)
}

const (
	// stuckAfter is how long nothing may end before the measure gives up.
	stuckAfter = time.Minute
	// glance is the pause between two looks at a burst. A look costs the server about as much as a run, and the times of
	// the runs are its own.
	glance = 500 * time.Millisecond
)

// drain waits until all runs have ended, or none does any more.
func (b *bed) drain(ctx context.Context, o Options) error {
	done, moved := 0, time.Now()
	for {
		n, err := b.count(ctx, terminal)
		if err != nil {
			return err
		}
		if n != done {
			done, moved = n, time.Now()
			o.say("%d of %d runs have ended", n, o.N)
		}
		if n >= o.N || time.Since(moved) > stuckAfter {
			return nil
		}
		if !service.Sleep(ctx, glance) {
			return ctx.Err()
		}
	}
}

// tally counts how the runs ended. The rate is that of the server's own times, from the first webhook to the last end.
func (b *bed) tally(ctx context.Context, o Options, sent time.Time, result *Result) error {
	runs, err := b.runs(ctx)
	if err != nil {
		return err
	}
	succeeded, stuck := 0, 0
	last := sent
	for _, run := range runs {
		switch {
		case run.Status == ci.RunSuccess:
			succeeded++
		case !run.Status.Terminal():
			stuck++
		}
		if run.CompletedAt.After(last) {
			last = run.CompletedAt.Time
		}
	}
	lost := o.N - len(runs)
	rate := float64(succeeded) / last.Sub(sent).Seconds()
	result.Runs, result.Succeeded, result.Lost, result.Stuck, result.RunsPerSec = &o.N, &succeeded, &lost, &stuck, &rate
	if succeeded != o.N {
		result.Status = "failed"
	}
	return nil
}
