// Package pipeline works on deliveries: it finds the lock file of the commit that an event names, matches its
// workflows, plans those that match and hands each to the engine as a run.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"kici/internal/kit/service"
	"kici/internal/server/cache"
	"kici/internal/server/engine"
	"kici/internal/server/forge"
	"kici/internal/server/inbox"
	"kici/internal/server/store"
)

// Engine makes runs. Registering a run id that exists changes nothing and succeeds, so a delivery may be worked on again.
type Engine interface {
	// What is to be done also is done in the same transaction.
	Register(ctx context.Context, r engine.Registration, also ...func(ctx context.Context, tx *store.Tx) error) error
	// Origin is what a run was made from, for its repetition.
	Origin(ctx context.Context, runID string) (engine.Origin, error)
}

// Sources is what is needed of the table of sources.
type Sources interface {
	Get(ctx context.Context, id string) (forge.Source, error)
	ByRoutingKey(ctx context.Context, key string) (forge.Source, error)
}

// Provider is the ports of one kind of source. LockFiles and Refs are nil for a kind without repositories.
type Provider struct {
	forge.Normaliser
	forge.LockFiles
	forge.Refs
}

// Counter counts by label values.
type Counter interface{ Inc(labels ...string) }

// Timer takes seconds, by label values.
type Timer interface {
	Observe(seconds float64, labels ...string)
}

// Builds knows what builds have packed.
type Builds interface {
	Built(ctx context.Context, id cache.Identity, b cache.Build) (cache.Built, error)
}

// Hosts are the limits of fan-outs over hosts.
type Hosts struct {
	Max   int           // of one fan-out (ci.MaxFanoutHosts)
	Grace time.Duration // silence after which a connected host counts as lost (5 minutes)
}

// Deps are what a Pipeline works with.
type Deps struct {
	DB        *store.DB
	Inbox     *inbox.Inbox
	Poke      service.Poke // the one that the inbox wakes
	Sources   Sources
	Providers map[string]Provider // by kind of source
	Engine    Engine
	Log       *slog.Logger
	Workers   int // deliveries worked on at a time (5)
	Clock     service.Clock
	Hosts     Hosts  // the limits of fan-outs over hosts
	Builds    Builds // nil: nothing is packed before jobs

	// Counters; nil counts nothing.
	Received  Counter // kici_orch_webhooks_received_total{source,event}
	Processed Counter // kici_orch_webhooks_processed_total{result}
	Matching  Timer   // kici_orch_trigger_match_duration_seconds
}

// Pipeline is the loop over the inbox.
type Pipeline struct {
	deps Deps
}

// maxBehind is how many deliveries wait here for a worker, with their leases, of which they spend a small part so. Further ones
// wait in the database, from where other nodes may take them, too.
const maxBehind = 24

// tickTime is how long a delivery may lie unseen whose wake-up got lost or whose pause or lease has run out.
const tickTime = time.Second

// New makes a Pipeline.
func New(deps Deps) *Pipeline {
	if deps.Workers == 0 {
		deps.Workers = 5
	}
	for _, c := range []*Counter{&deps.Received, &deps.Processed} {
		if *c == nil {
			*c = noCounter{}
		}
	}
	if deps.Matching == nil {
		deps.Matching = noCounter{}
	}
	return &Pipeline{deps: deps}
}

type noCounter struct{}

func (noCounter) Inc(...string) {}

func (noCounter) Observe(float64, ...string) {}

// Run works until ctx ends and returns when the last worker has ended. Deliveries under work are given back then; what an
// earlier Run of this node left leased, because it was killed, is taken up first.
func (p *Pipeline) Run(ctx context.Context) error {
	if err := p.deps.Inbox.Recover(ctx); err != nil {
		return err
	}
	f := &floor{p: p, work: p.deps.Inbox.Open(p.deps.Workers, maxBehind), freed: service.NewPoke()}
	defer f.clear(ctx)
	for range p.deps.Workers {
		f.workers.Go(func() { f.serve(ctx) })
	}
	tick := time.NewTicker(tickTime)
	defer tick.Stop()
	for {
		if err := f.fill(ctx); err != nil && ctx.Err() == nil {
			p.deps.Log.Error("deliveries could not be leased, the next turn tries again", "err", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.deps.Poke:
		case <-f.freed:
		case <-tick.C:
		}
	}
}

// floor is where the workers are.
type floor struct {
	p       *Pipeline
	workers sync.WaitGroup
	work    chan inbox.Work // has room for every seat
	freed   service.Poke    // a worker has left while deliveries wait
}

// fill gives deliveries that wait to workers until either run out.
func (f *floor) fill(ctx context.Context) error {
	for f.p.deps.Inbox.Sit() {
		w, ok, err := f.p.deps.Inbox.Next(ctx)
		if !ok || err != nil {
			f.p.deps.Inbox.Leave(err != nil)
			return err
		}
		f.work <- w
	}
	return nil
}

// serve is a worker. It stays for as long as deliveries may come: what one needs of the stack would have to grow anew for each.
func (f *floor) serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-f.work:
			f.take(ctx, w)
		}
	}
}

func (f *floor) take(ctx context.Context, w inbox.Work) {
	f.p.work(ctx, w)
	if f.p.deps.Inbox.Leave(true) {
		f.freed.Wake()
	}
}

// clear waits for the workers and gives back what was handed over and not begun.
func (f *floor) clear(ctx context.Context) {
	f.p.deps.Inbox.Close()
	f.workers.Wait()
	for {
		select {
		case w := <-f.work:
			f.take(ctx, w) // which gives it back, since ctx has ended
		default:
			f.p.deps.Inbox.Close() // those who left are no seats
			return
		}
	}
}

// work processes one delivery and records how it ended. Its time ends well before the lease does, so that no second
// worker ever meets it. One that waited here for too long is given back.
func (p *Pipeline) work(ctx context.Context, w inbox.Work) {
	left := p.deps.Inbox.Left(w.Lease) - p.deps.Inbox.LeaseTime()/5
	if left <= 0 {
		p.giveBack(ctx, w, "delivery given back, since its lease has all but run out")
		return
	}
	working, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	result, err := p.process(working, w)
	switch {
	case err == nil:
		p.deps.Log.Info("delivery processed", append(names(w.Delivery), "status", result.Status, "runs", result.Matched)...)
	case errors.Is(err, inbox.ErrLeaseLost), errors.Is(err, inbox.ErrNotTaken):
		p.unrecorded(w.Delivery, err)
	case ctx.Err() != nil:
		p.giveBack(ctx, w, "delivery given back, since the server stops")
	default:
		p.fail(ctx, w, result, err)
	}
}

func (p *Pipeline) giveBack(ctx context.Context, w inbox.Work, why string) {
	p.about(w.Delivery).Info(why)
	recording, done := p.recording(ctx)
	defer done()
	if err := p.deps.Inbox.Return(recording, w); err != nil {
		p.unrecorded(w.Delivery, err)
	}
}

// unrecorded tells that the lease runs out instead, and whoever has the delivery then finds the same runs. There is nothing to
// tell of one that was not taken in: it is a redelivery, or its sender learns that it failed.
func (p *Pipeline) unrecorded(d inbox.Delivery, err error) {
	if errors.Is(err, inbox.ErrNotTaken) {
		return
	}
	p.about(d).Error("end of the delivery was not recorded", "err", err)
}

// fail records that a delivery came to no end.
func (p *Pipeline) fail(ctx context.Context, w inbox.Work, result inbox.Result, err error) {
	p.deps.Processed.Inc("error")
	result.Error = err.Error()
	recording, done := p.recording(ctx)
	defer done()
	if errors.Is(err, forge.ErrRefused) {
		p.about(w.Delivery).Warn("delivery failed", "err", err)
		err = p.deps.Inbox.GiveUp(recording, w, result)
	} else {
		p.about(w.Delivery).Error("delivery failed, it may be tried again", "err", err, "attempt", w.Lease.Attempt)
		err = p.deps.Inbox.Retry(recording, w, result)
	}
	if err != nil {
		p.unrecorded(w.Delivery, err)
	}
}

// recording is a context for recording what has happened, even when the server is being stopped.
func (p *Pipeline) recording(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), p.deps.Inbox.LeaseTime()/10)
}

// process turns a panic into an error: what a delivery holds comes from outside, and one that trips a defect must not
// take the server down with all the others.
func (p *Pipeline) process(ctx context.Context, w inbox.Work) (result inbox.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			p.about(w.Delivery).Error("delivery met a defect", "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal defect: %v", r)
		}
	}()
	return p.evaluate(ctx, w)
}

// about is the log with what names the delivery in each line. Most deliveries have at most one, and need none made.
func (p *Pipeline) about(d inbox.Delivery) *slog.Logger { return p.deps.Log.With(names(d)...) }

func names(d inbox.Delivery) []any {
	return []any{"delivery", d.ID, "source", d.SourceID, "event", d.Event, "request", d.RequestID}
}
