// Package chaos is the killing test: real servers and agents work off a stream of runs while a killer kills, pauses and
// restarts them and disturbs the lines between them. When it is over, everything that was promised must have been kept.
//
// The promises are judged by what the steps themselves have noted outside of the system, by what was seen on the wire, and
// by what senders were told, against what the servers have stored.
package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Options say how long and how hard.
type Options struct {
	Seed     uint64 // of the killer's plan
	Duration time.Duration
	Servers  int
	Agents   int
	Postgres string        // URL of an empty database; "" is SQLite, for one server
	Settle   time.Duration // how long the last runs may take once nothing is killed any more
	Logs     string        // folder for all that the processes write, "" for none
	// Progress is told what is being done, for people. Nil is nobody.
	Progress func(text string)
}

func (o Options) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// Result is what came of it.
type Result struct {
	Seed       uint64         `json:"seed"`
	Store      string         `json:"store"`
	Servers    int            `json:"servers"`
	Agents     int            `json:"agents"`
	Seconds    float64        `json:"seconds"` // of torment
	Settled    float64        `json:"settledSeconds"`
	Faults     map[Action]int `json:"faults"`
	Runs       map[string]int `json:"runs"`   // by how they ended
	Reruns     int            `json:"reruns"` // among them
	Jobs       int            `json:"jobs"`
	Attempts   int            `json:"attempts"`
	Executions int            `json:"executions"`
	AckedLines int            `json:"acknowledgedLines"`
	Violations []Violation    `json:"violations"`
	Status     string         `json:"status"` // success, or failed: a promise was broken
}

// Run torments a system of its own and judges it. An error says that the test itself could not be done; broken promises
// are in the result.
func Run(ctx context.Context, o Options) (Result, error) {
	r := Result{Seed: o.Seed, Store: "sqlite", Servers: o.Servers, Agents: o.Agents, Status: "failed", Faults: map[Action]int{}}
	if o.Postgres != "" {
		r.Store = "postgres"
	}
	s, err := build(ctx, o)
	if err != nil {
		return r, err
	}
	defer s.close()
	w := &workload{system: s, maxOpen: 2 * o.Agents, seen: map[string]told{}}
	faults := plan(o.Seed, shape{servers: o.Servers, agents: o.Agents, lines: len(s.lines), duration: o.Duration})
	o.say("seed %d: %d faults within %s", o.Seed, len(faults), o.Duration)
	if err := w.live(ctx, o, faults, &r); err != nil {
		return r, err
	}
	var f facts
	settled := time.Now()
	f.Open = w.settle(ctx, o.Settle)
	r.Settled = time.Since(settled).Seconds()
	s.rest()
	w.testify(&f)
	if err := s.collect(ctx, o, &f); err != nil {
		return r, err
	}
	r.judge(f)
	return r, ctx.Err()
}

// live lets the workload and the killer go on together until the plan is done, and heals the system.
func (w *workload) live(ctx context.Context, o Options, faults []Fault, r *Result) error {
	working, stop := context.WithTimeout(ctx, o.Duration)
	defer stop()
	life, end := context.WithTimeout(ctx, o.Duration+o.Settle)
	defer end()
	var parts sync.WaitGroup
	parts.Go(func() { w.push(working, life) })
	parts.Go(func() { w.watch(working) })
	parts.Go(func() { w.meddle(working) })
	began := time.Now()
	err := w.torment(working, faults, func(f Fault) {
		r.Faults[f.Action]++
		o.say("%s", f)
	})
	if err != nil {
		return err
	}
	<-working.Done()
	r.Seconds = time.Since(began).Seconds()
	if err := w.heal(ctx); err != nil {
		return err
	}
	o.say("everything is left in peace")
	parts.Wait()
	return ctx.Err()
}

// judge counts and checks.
func (r *Result) judge(f facts) {
	r.Runs = map[string]int{}
	for _, run := range f.Runs {
		r.Runs[string(run.Status)]++
	}
	r.Reruns, r.Jobs, r.Attempts, r.Executions, r.AckedLines = len(f.Reruns), len(f.Jobs), len(f.Attempts), len(f.Executions), len(f.Acked.Lines)
	r.Violations = Check(f)
	if len(r.Violations) == 0 {
		r.Status = "success"
	}
}
