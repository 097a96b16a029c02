package scaler

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/decide/capacity"
	"kici/internal/kit/service"
	"kici/internal/kit/telemetry"
	"kici/internal/server/cluster"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

const (
	// period is how often the queue is looked at without a wake-up: the backstop for lost wake-ups and for room that came
	// free elsewhere.
	period = 5 * time.Second
	// breath lies between two passes, so that the wake-ups of a burst share one.
	breath = 250 * time.Millisecond
	// pause is how long an answer holds: a refused selector and a job whose agent is on its way are not asked for again.
	pause = 5 * time.Second
	// patience is how long a waiting job is left to an agent that seems free for it. The agent may be draining, or its
	// node may be dead; only the dispatcher knows.
	patience = 5 * time.Second
	// scan bounds the jobs that one pass looks at. A line whose head is refused costs one of them.
	scan = 200
	// leaseTime is how long this node alone may ask. It is renewed at half of it.
	leaseTime = 30 * time.Second
)

// redriveLease is the right to offer waiting jobs. A second one who does would do no harm: a job gets one agent.
const redriveLease = "scaler-redrive"

// Jobs reads what a waiting job asks for.
type Jobs interface {
	Input(ctx context.Context, jobID string) (engine.Input, error)
}

// RedriveDeps are what a Redrive needs.
type RedriveDeps struct {
	DB           *store.DB
	Clock        service.Clock
	Log          *slog.Logger
	Scaler       Scaler // nil: there is nobody to ask
	Jobs         Jobs
	NodeID       string
	Redispatched *telemetry.Counter // agents for jobs that had been refused before, by trigger: hook or sweep
}

// Redrive offers the waiting jobs for which no agent is free to the scaler, until each has been given out. It is the only
// one who asks, so a job that is new and one that was refused take the same way, in the order of the queue.
type Redrive struct {
	RedriveDeps
	poke  service.Poke
	freed atomic.Bool // there is room again: what was refused may be asked for at once

	// Of the loop alone. It spares questions and may be lost: every answer can be had again.
	leased  int64              // epoch milliseconds until which this node holds the lease
	demands map[string]*demand // by selector, of those that wait
	coming  map[string]int64   // by job: until when its agent is trusted to be on its way
	seated  map[string]int64   // by job: since when an agent seems free for it
}

// demand is what is known about the jobs of one selector.
type demand struct {
	selector label.Selector
	refused  Answer // the last answer, when it was a refusal
	until    int64  // epoch milliseconds before which nothing is asked after a refusal
}

// NewRedrive makes the loop that Run is.
func NewRedrive(d RedriveDeps) *Redrive {
	return &Redrive{RedriveDeps: d, poke: service.NewPoke(), demands: map[string]*demand{}, coming: map[string]int64{}, seated: map[string]int64{}}
}

// Wake says that a job waits for which the dispatcher found no agent.
func (r *Redrive) Wake() { r.poke.Wake() }

// CapacityFreed says that a pool may have room again.
func (r *Redrive) CapacityFreed() {
	r.freed.Store(true)
	r.poke.Wake()
}

// Run offers jobs whenever it is woken, until ctx ends. Without a scaler it is done at once.
func (r *Redrive) Run(ctx context.Context) error {
	if r.Scaler == nil {
		return nil
	}
	return service.Every(ctx, r.Log, "scaler redrive", period, r.poke, func(ctx context.Context) error {
		defer service.Sleep(ctx, breath)
		return r.Pass(ctx)
	})
}

// Pass goes through the lines of the queue, oldest head first. A job takes a place at an agent that is free for it, or is
// offered to the scaler; then the next of its line follows. A refusal ends the line and holds up no other.
func (r *Redrive) Pass(ctx context.Context) error {
	p := &pass{Redrive: r, now: r.Clock.Millis(), trigger: "sweep", seatedNow: map[string]int64{}}
	if r.freed.Swap(false) {
		p.trigger = "hook"
		for _, d := range r.demands {
			d.until = 0
		}
	}
	if mine, err := r.acquire(ctx, p.now); err != nil || !mine {
		return err
	}
	if err := p.load(ctx); err != nil {
		return err
	}
	err := p.walk(ctx)
	r.seated = p.seatedNow
	return err
}

// acquire takes the lease, or knows that it still has it.
func (r *Redrive) acquire(ctx context.Context, now int64) (mine bool, err error) {
	if now < r.leased-leaseTime.Milliseconds()/2 {
		return true, nil
	}
	until := now + leaseTime.Milliseconds()
	err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		mine, err = cluster.Acquire(ctx, tx, redriveLease, r.NodeID, now, until)
		return err
	})
	if r.leased = 0; mine && err == nil {
		r.leased = until
	}
	return mine, err
}

// pass is one turn.
type pass struct {
	*Redrive
	now       int64
	trigger   string
	lines     []line
	seats     *capacity.Seats
	seatedNow map[string]int64
}

// line is the waiting jobs of one selector, from head on.
type line struct {
	head queue.Head
	*demand
}

// load reads the heads of the queue and the agents that have room, and forgets what concerns neither.
func (p *pass) load(ctx context.Context) error {
	heads, err := queue.Heads(ctx, p.DB.Read())
	if err != nil {
		return err
	}
	waiting := map[string]*demand{}
	for _, h := range heads {
		d, known := p.demands[h.SelectorID]
		if !known {
			d = &demand{}
			if d.selector, err = queue.Selector(ctx, p.DB.Read(), h.SelectorID); err != nil {
				return err
			}
		}
		waiting[h.SelectorID] = d
		p.lines = append(p.lines, line{h, d})
	}
	p.demands = waiting
	maps.DeleteFunc(p.coming, func(_ string, until int64) bool { return until <= p.now })
	if len(heads) == 0 {
		return nil
	}
	p.seats, err = p.free(ctx)
	return err
}

// free are the places of the agents that are connected, to whichever node, and whose hosts do not reboot.
func (p *pass) free(ctx context.Context) (*capacity.Seats, error) {
	agents, err := fleet.List(ctx, p.DB.Read())
	if err != nil {
		return nil, err
	}
	held, err := queue.Held(ctx, p.DB.Read())
	if err != nil {
		return nil, err
	}
	var seats []capacity.Seat
	for _, a := range agents {
		if room := a.MaxConcurrency - held[a.ID]; a.Connected() && !a.RebootsAt(p.now) && room > 0 {
			seats = append(seats, capacity.Seat{Agent: label.Agent{ID: a.ID, Labels: a.Labels, Mandatory: a.MandatoryLabels}, Free: room})
		}
	}
	return capacity.NewSeats(seats), nil
}

func (p *pass) walk(ctx context.Context) error {
	for looked := 0; len(p.lines) > 0 && looked < scan; looked++ {
		i := p.oldest()
		goesOn, err := p.look(ctx, p.lines[i])
		if err != nil {
			return err
		}
		if goesOn {
			if p.lines[i].head, goesOn, err = queue.After(ctx, p.DB.Read(), p.lines[i].head); err != nil {
				return err
			}
		}
		if !goesOn {
			p.lines[i] = p.lines[len(p.lines)-1]
			p.lines = p.lines[:len(p.lines)-1]
		}
	}
	return nil
}

func (p *pass) oldest() int {
	best := 0
	for i := range p.lines {
		if p.lines[i].head.Before(p.lines[best].head) {
			best = i
		}
	}
	return best
}

// look decides about the head of a line and reports whether the line goes on behind it.
func (p *pass) look(ctx context.Context, l line) (goesOn bool, err error) {
	id := l.head.JobID
	if p.takesSeat(l) || p.now < p.coming[id] {
		return true, nil
	}
	if l.selector.Pin != "" || p.now < l.until { // no scaler starts the one agent that a pin names
		return false, nil
	}
	answer := p.ask(ctx, l)
	if answer.Action != Spawning {
		return false, p.refuse(ctx, l, answer)
	}
	p.coming[id] = p.now + pause.Milliseconds()
	if l.refused.Action != "" && !answer.Known {
		p.Redispatched.Inc(p.trigger)
	}
	return true, nil
}

// takesSeat tells whether the job is left to an agent that seems free for it. One that is still there after a while is
// not.
func (p *pass) takesSeat(l line) bool {
	since, waiting := p.seated[l.head.JobID]
	if !waiting {
		since = p.now
	}
	overdue := p.now-since >= patience.Milliseconds()
	if !overdue && !p.seats.Take(l.head.SelectorID, l.selector) {
		return false
	}
	p.seatedNow[l.head.JobID] = since
	return !overdue
}

// ask offers one job. Whatever is wrong with it concerns no other.
func (p *pass) ask(ctx context.Context, l line) Answer {
	in, err := p.Jobs.Input(ctx, l.head.JobID)
	if err != nil {
		return Answer{Action: Failed, Reason: err.Error()}
	}
	resources, err := resourcesOf(in.Config)
	if err != nil {
		return Answer{Action: Failed, Reason: err.Error()}
	}
	return Ask(ctx, p.Scaler, Request{
		JobID: l.head.JobID, RunID: in.RunID, Org: in.OrgID,
		Labels: l.selector.Labels, Exclude: l.selector.Exclude, Resources: resources,
	})
}

func resourcesOf(config json.RawMessage) (lockfile.Resources, error) {
	var c struct {
		Resources json.RawMessage `json:"resources"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return lockfile.Resources{}, fmt.Errorf("read resources: %w", err)
	}
	return lockfile.ParseResources(c.Resources)
}

// refuse ends a line for a while. A failure is kept with the job, whose author may be the one who can mend it.
func (p *pass) refuse(ctx context.Context, l line, a Answer) error {
	if a != l.refused {
		p.Log.Info("no agent started for a waiting job", "job", l.head.JobID, "answer", a.Action, "reason", a.Reason,
			"labels", l.selector.Labels, "exclude", l.selector.Exclude)
	}
	l.refused, l.until = a, p.now+pause.Milliseconds()
	if a.Action != Failed {
		return nil
	}
	return p.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		_, err := queue.ProvisioningFailed(ctx, tx, l.head.JobID, ci.CutText(a.Reason))
		return err
	})
}
