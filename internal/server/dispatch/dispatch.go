package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// selectorCache bounds the selectors kept in memory. One that was dropped is read again.
const selectorCache = 4096

// Settings are the dispatcher's.
type Settings struct {
	NodeID      string
	Poll        time.Duration // how often it looks without having been woken, should a wake-up be lost
	AckTimeout  time.Duration // within which an agent must answer a dispatch
	MaxLogBytes int64         // of one step, told to agents
	// QueueTimeout is how long a job may wait for an agent, 0 for ever.
	QueueTimeout time.Duration
	PressureAt   int // pending jobs that are too many for the agents there are; 0 = never
}

// Engine is what the dispatcher needs of the engine.
type Engine interface {
	Complete(ctx context.Context, stored engine.Stored) (engine.Input, error)
	CannotDispatch(ctx context.Context, jobID, category, message string) error
	Unsent(ctx context.Context, agentID, jobID string) error
	Deferred(ctx context.Context, agentID, jobID string, claimedAt int64) error
}

// Grant is what a job is given that is never stored with it.
type Grant struct {
	Variables    map[string]string    // environment variables of its contexts
	Secrets      map[string]string    // all of them by key
	Namespaced   ci.NamespacedSecrets // those of each context
	Registries   []wire.NpmRegistry   // of packages, with their tokens
	InstallEnv   map[string]string    // of the installation of dependencies
	RunPublicKey string               // for which its agent seals secret outputs: X25519 SPKI DER, base64
}

// Packed is what a build has packed for a job. An empty URL is a part that the agent gets by itself.
type Packed struct {
	SourceURL, SourceHash string
	DepsURL, DepsHash     string
}

// Builds finds what was packed for a job.
type Builds interface {
	Packed(ctx context.Context, in engine.Input, platform, arch string) (Packed, error)
}

// Secrets reads what a job is granted at the moment it is given out. An error made with Permanent ends the job; with any other
// it goes back in line, since the next try may go better.
type Secrets interface {
	// Ask asks, with the claim of a job, for what ForJob needs of most jobs.
	Ask(jobID string, known *Known) store.Ask
	ForJob(ctx context.Context, in engine.Input, known Known, agentID string) (Grant, error)
}

// Known is what is known of the secrets of a job when it is claimed.
type Known struct {
	RunPublicKey string // as in Grant; "" when the run has no key yet
	Flat         bool   // its organisation has secrets that all of its jobs get
}

// material is what is read of a job when it is claimed, for its frame.
type material struct {
	stored engine.Stored
	known  Known
}

// Dispatcher gives pending jobs to this node's agents.
type Dispatcher struct {
	db        *store.DB
	clock     service.Clock
	log       *slog.Logger
	hub       Hub
	engine    Engine
	secrets   Secrets
	builds    Builds
	settings  Settings
	asOf      func(window time.Duration) int64
	poke      service.Poke
	selectors *lru.Cache[string, label.Selector]
	draining  atomic.Bool
	claiming  sync.Mutex // held while jobs are claimed, so that a drain can wait for it
	sample    atomic.Pointer[Depth]
	unsent    unsent         // the loop's
	foreseen  map[string]int // the loop's: the lines that the next look reads on a guess, by selector, and how far
}

// Deps are what a dispatcher needs. Poke wakes it.
type Deps struct {
	DB      *store.DB
	Clock   service.Clock
	Log     *slog.Logger
	Hub     Hub
	Engine  Engine
	Secrets Secrets
	Builds  Builds // nil: nothing is packed
	// AsOf is the time as of which the time of a job may be up: earlier than now when this process did not run for a while,
	// since nobody could be given a job then. Nil: now.
	AsOf     func(window time.Duration) int64
	Settings Settings
	Poke     service.Poke
}

// New makes a dispatcher. Run is its loop.
func New(d Deps) (*Dispatcher, error) {
	cache, err := lru.New[string, label.Selector](selectorCache)
	if err != nil {
		return nil, err
	}
	if d.AsOf == nil {
		d.AsOf = func(time.Duration) int64 { return d.Clock.Millis() }
	}
	return &Dispatcher{db: d.DB, clock: d.Clock, log: d.Log, hub: d.Hub, engine: d.Engine, secrets: d.Secrets, builds: d.Builds, asOf: d.AsOf,
		settings: d.Settings, poke: d.Poke, selectors: cache}, nil
}

// rest is between two passes. A job that comes to an idle node is given out at once; under load those that come within a
// rest share a look at the queue and a claim, which cost about as much for one job as for many.
const rest = 3 * time.Millisecond

// Run offers pending jobs to free agents whenever it is woken, until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	return service.Every(ctx, d.log, "dispatch", d.settings.Poll, d.poke, func(ctx context.Context) error {
		err := d.Pass(ctx)
		service.Sleep(ctx, rest)
		return err
	})
}

// Pass gives jobs to agents until there is nothing more to give or nobody to take it.
func (d *Dispatcher) Pass(ctx context.Context) error {
	if err := d.giveBack(ctx); err != nil {
		return err
	}
	lost := map[string]bool{} // connections that ended meanwhile; what was for them is not offered to them again
	for !d.draining.Load() && !d.unsent.full(d.clock) {
		offers, err := d.match(ctx, lost)
		if err != nil || len(offers) == 0 {
			return err
		}
		given, err := d.give(ctx, offers, lost)
		if err != nil || given == 0 { // other nodes were faster, so the next pass sees less
			return err
		}
		if given == len(offers) && given < queue.MaxOffers && len(lost) == 0 {
			return nil // all that could be
		}
	}
	return nil
}

// offer is a job and the agent that is to have it.
type offer struct {
	jobID string
	agent Agent
	room  int // of the agent, before the offers ahead of this one
}

// match decides who gets what, oldest first: each job goes to the first agent by name that fits it and has room. A job
// that fits nobody here holds up no other. What is decided is no more than one claim takes.
func (d *Dispatcher) match(ctx context.Context, lost map[string]bool) ([]offer, error) {
	agents, waiting, err := d.look(ctx, lost)
	if err != nil {
		return nil, err
	}
	var offers []offer
	for _, w := range waiting {
		if d.unsent.rests(w.JobID) {
			continue
		}
		a := d.taker(agents, w.selector)
		if a == nil {
			continue
		}
		a.left--
		offers = append(offers, offer{jobID: w.JobID, agent: a.Agent, room: a.MaxConcurrency - a.given})
		a.given++
		if len(offers) == queue.MaxOffers {
			break
		}
	}
	return offers, nil
}

// taker finds the first agent that fits and has room, nil when there is none. It asks for each once more whether it takes work:
// the agents were listed before the queue was read, and one may have given back since what the queue now shows.
func (d *Dispatcher) taker(agents []vacancy, s label.Selector) *vacancy {
	for i := range agents {
		a := &agents[i]
		if a.left == 0 || !s.Matches(a.Agent.Agent) {
			continue
		}
		if a.given > 0 || d.hub.Takes(a.ConnectionID) {
			return a
		}
		a.left = 0
	}
	return nil
}

// give claims what was decided and sends what it got, and tells how much that was. An error concerns some of the jobs;
// the others have been sent.
func (d *Dispatcher) give(ctx context.Context, offers []offer, lost map[string]bool) (given int, err error) {
	now := d.clock.Millis()
	claimed, of, err := d.claim(ctx, offers, now)
	if err != nil {
		for _, o := range offers { // it may be stored all the same
			d.unsent.note(o, now)
		}
		return 0, err
	}
	var failed error
	for i, o := range offers {
		if !slices.Contains(claimed, o.jobID) {
			continue
		}
		connected, err := d.send(ctx, o.jobID, of[i], o.agent)
		if err != nil {
			d.unsent.note(o, now)
			failed = errors.Join(failed, err)
		}
		if !connected {
			lost[o.agent.ConnectionID] = true
		}
	}
	return len(claimed), errors.Join(failed, d.giveBack(ctx))
}

// claim takes the offered jobs as of now, in one transaction, lists those that it got, and reads what the frame of each offer needs. A node that
// has begun to drain meanwhile gets none.
func (d *Dispatcher) claim(ctx context.Context, offers []offer, now int64) (claimed []string, of []material, err error) {
	d.claiming.Lock()
	defer d.claiming.Unlock()
	if d.draining.Load() {
		return nil, nil, nil
	}
	rows := make([]queue.Offer, len(offers))
	of = make([]material, len(offers))
	asks := make([]store.Ask, 0, 2*len(offers))
	for i, o := range offers {
		rows[i] = queue.Offer{JobID: o.jobID, AgentID: o.agent.ID, Room: o.room}
		asks = append(asks, engine.AskStored(o.jobID, &of[i].stored), d.secrets.Ask(o.jobID, &of[i].known))
	}
	err = d.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		claimed, err = queue.ClaimAll(ctx, tx, rows, d.settings.NodeID, queue.Moment{Now: now, AsOf: d.asOf(d.settings.QueueTimeout),
			AckDeadline: now + d.settings.AckTimeout.Milliseconds()}, asks...)
		return err
	})
	return claimed, of, err
}

// send builds the frame of a claimed job and writes it, and reports whether the agent's connection stands. A job whose
// frame can never be built ends with the reason; one whose frame cannot be written goes back in line. After an error the
// claim is still to be given back.
func (d *Dispatcher) send(ctx context.Context, jobID string, of material, a Agent) (connected bool, err error) {
	frame, err := d.frame(ctx, jobID, of, a)
	if unusable, ok := errors.AsType[*unusableError](err); ok {
		return true, d.fail(ctx, jobID, unusable)
	}
	if err != nil {
		return true, err
	}
	err = d.hub.Dispatch(ctx, a.ConnectionID, of.stored.JobName(), frame)
	if errors.Is(err, wire.ErrTooLarge) {
		return true, d.fail(ctx, jobID, tooLarge(frame, err))
	}
	if err != nil {
		d.log.Info("dispatch not written", "job", jobID, "agent", a.ID, "err", err)
		return false, d.engine.Unsent(ctx, a.ID, jobID)
	}
	d.log.Info("job dispatched", "run", frame.RunID, "job", jobID, "agent", a.ID)
	return true, nil
}

// fail ends a job that no agent can be given.
func (d *Dispatcher) fail(ctx context.Context, jobID string, why *unusableError) error {
	d.log.Warn("job cannot be dispatched", "job", jobID, "category", why.category, "err", why.cause)
	return d.engine.CannotDispatch(ctx, jobID, why.category, why.message)
}
