package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/core/label"
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
	PressureAt  int           // pending jobs that are too many for the agents there are; 0 = never
}

// Engine is what the dispatcher needs of the engine.
type Engine interface {
	Input(ctx context.Context, jobID string) (engine.Input, error)
	CannotDispatch(ctx context.Context, jobID, category, message string) error
	Unsent(ctx context.Context, agentID, jobID string) error
}

// Secrets reads the secrets of a job at the moment it is given out. They are never stored with it. An error made with
// Permanent ends the job; any other leaves it to the ack deadline, since the next try may go better.
type Secrets interface {
	ForJob(ctx context.Context, orgID string, contexts []string, runID, jobID string) (map[string]string, error)
}

// Dispatcher gives pending jobs to this node's agents.
type Dispatcher struct {
	db        *store.DB
	clock     service.Clock
	log       *slog.Logger
	hub       Hub
	engine    Engine
	secrets   Secrets
	settings  Settings
	poke      service.Poke
	selectors *lru.Cache[string, label.Selector]
	draining  atomic.Bool
	sample    atomic.Pointer[Depth]
}

// Deps are what a dispatcher needs. Poke wakes it.
type Deps struct {
	DB       *store.DB
	Clock    service.Clock
	Log      *slog.Logger
	Hub      Hub
	Engine   Engine
	Secrets  Secrets
	Settings Settings
	Poke     service.Poke
}

// New makes a dispatcher. Run is its loop.
func New(d Deps) (*Dispatcher, error) {
	cache, err := lru.New[string, label.Selector](selectorCache)
	if err != nil {
		return nil, err
	}
	return &Dispatcher{db: d.DB, clock: d.Clock, log: d.Log, hub: d.Hub, engine: d.Engine, secrets: d.Secrets,
		settings: d.Settings, poke: d.Poke, selectors: cache}, nil
}

// Run offers pending jobs to free agents whenever it is woken, until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	return service.Every(ctx, d.log, "dispatch", d.settings.Poll, d.poke, d.Pass)
}

// Pass goes through the heads of the queue, oldest first, and gives each to the first agent by name that fits it and
// has room; then the next head of the same selector takes its place. A head that fits nobody here holds up no other.
func (d *Dispatcher) Pass(ctx context.Context) error {
	if d.draining.Load() {
		return nil
	}
	agents := d.hub.Ready()
	if len(agents) == 0 {
		return nil
	}
	heads, err := queue.Heads(ctx, d.db.Read())
	if err != nil || len(heads) == 0 {
		return err
	}
	held, err := queue.Held(ctx, d.db.Read())
	if err != nil {
		return err
	}
	for len(heads) > 0 && !d.draining.Load() {
		i := oldest(heads)
		head := heads[i]
		given, err := d.offer(ctx, head, agents, held)
		if err != nil {
			return err
		}
		next, more, err := d.after(ctx, head, given)
		if err != nil {
			return err
		}
		if more {
			heads[i] = next
		} else {
			heads = slices.Delete(heads, i, i+1)
		}
	}
	return nil
}

// oldest prefers pinned heads on equal age by nothing but age: a pin is part of the selector, so it has its own line.
func oldest(heads []queue.Head) int {
	best := 0
	for i, h := range heads {
		if h.Before(heads[best]) {
			best = i
		}
	}
	return best
}

// after is the head that follows in the same line. A head that nobody took ends the line for this pass.
func (d *Dispatcher) after(ctx context.Context, head queue.Head, given bool) (queue.Head, bool, error) {
	if !given {
		return queue.Head{}, false, nil
	}
	return queue.HeadOf(ctx, d.db.Read(), head.SelectorID)
}

// offer claims the head for the first agent that fits and has room, and sends it. It reports whether the row is no
// longer pending.
func (d *Dispatcher) offer(ctx context.Context, head queue.Head, agents []Agent, held map[string]int) (bool, error) {
	selector, err := d.selector(ctx, head.SelectorID)
	if err != nil {
		return false, err
	}
	for _, a := range agents {
		if held[a.ID] >= a.MaxConcurrency || !selector.Matches(a.Agent) {
			continue
		}
		claimed, err := d.claim(ctx, head.JobID, a)
		if err != nil {
			return false, err
		}
		if !claimed { // another node was faster, the job was cancelled, or the agent has no room after all
			held[a.ID]++ // not offered again in this pass
			continue
		}
		held[a.ID]++
		return true, d.send(ctx, head.JobID, a)
	}
	return false, nil
}

func (d *Dispatcher) selector(ctx context.Context, id string) (label.Selector, error) {
	if s, ok := d.selectors.Get(id); ok {
		return s, nil
	}
	s, err := queue.Selector(ctx, d.db.Read(), id)
	if err != nil {
		return s, err
	}
	d.selectors.Add(id, s)
	return s, nil
}

func (d *Dispatcher) claim(ctx context.Context, jobID string, a Agent) (claimed bool, err error) {
	now := d.clock.Millis()
	err = d.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		claimed, err = queue.Claim(ctx, tx, jobID, a.ID, d.settings.NodeID, a.MaxConcurrency, now, now+d.settings.AckTimeout.Milliseconds())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("claim job %s: %w", jobID, err)
	}
	return claimed, nil
}

// send builds the frame of a claimed job and writes it. A job whose frame cannot be built ends with the reason; one
// whose frame cannot be written goes back in line.
func (d *Dispatcher) send(ctx context.Context, jobID string, a Agent) error {
	frame, err := d.frame(ctx, jobID, a)
	var unusable *unusableError
	if errors.As(err, &unusable) {
		d.log.Warn("job cannot be dispatched", "job", jobID, "category", unusable.category, "err", unusable.cause)
		return d.engine.CannotDispatch(ctx, jobID, unusable.category, unusable.message)
	}
	if err != nil {
		return err // the ack deadline brings the job back
	}
	if err := d.hub.Dispatch(ctx, a.ConnectionID, frame); err != nil {
		d.log.Info("dispatch not written", "job", jobID, "agent", a.ID, "err", err)
		return d.engine.Unsent(ctx, a.ID, jobID)
	}
	d.log.Info("job dispatched", "run", frame.RunID, "job", jobID, "agent", a.ID)
	return nil
}
