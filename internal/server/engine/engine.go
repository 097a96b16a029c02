package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/core/label"
	"kici/internal/decide/lifecycle"
	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// Settings are the times and limits of the engine.
type Settings struct {
	NodeID         string
	RecoveryWindow time.Duration // how long a job waits for its lost agent
	QueueTimeout   time.Duration // how long a job waits for an agent, 0 = for ever
	QueueMaxDepth  int           // pending jobs above which no new run is admitted
	StaleAfter     time.Duration // a running job without a heartbeat for so long is given up
	CancelPolite   time.Duration // grace, hooks and some: after it a cancel becomes forced
	CancelForced   time.Duration // after it an agent that does not confirm is given up
	LateMessages   time.Duration // how long after its end a job's agent may still speak of it
}

// DefaultSettings are those of a server without configuration.
func DefaultSettings() Settings {
	return Settings{
		RecoveryWindow: 120 * time.Second,
		QueueTimeout:   time.Hour,
		QueueMaxDepth:  100_000,
		StaleAfter:     120 * time.Second,
		CancelPolite:   6 * time.Minute,
		CancelForced:   30 * time.Second,
		LateMessages:   30 * time.Second,
	}
}

// Engine applies commands to the store.
type Engine struct {
	db       *store.DB
	interned *lru.Cache[string, string] // see insertion
	clock    service.Clock
	log      *slog.Logger
	settings Settings
	dispatch service.Poke // there may be something to give to an agent
	effects  service.Poke // there may be something for agents in the outbox
	follow   service.Poke // there may be something for runs in the outbox
	changed  func(runID string)
	contexts Contexts
	judged   func(InstallJudgement)
	events   Events
	scalable func(label.Selector) bool
	asOf     func(window time.Duration) int64
	outputs  SecretOutputs

	registered atomic.Int64 // jobs of runs that were admitted or not, for depth
	waiting    atomic.Int64 // pending jobs at the last look

	expiries, jobsDue horizon // of rows that wait, and of jobs that are with agents
}

// Deps are what an engine needs.
type Deps struct {
	DB       *store.DB
	Clock    service.Clock
	Log      *slog.Logger
	Settings Settings
	Dispatch service.Poke
	Effects  service.Poke
	// Changed is called after every commit that changed something of a run. It must not block. Nil is nobody.
	Changed func(runID string)
	// AsOf is the time as of which a deadline that lies window after its beginning may be judged: earlier than now when
	// this process or all others did not run for a while, so that nobody is blamed for that. Nil: now.
	AsOf func(window time.Duration) int64
	// Scalable tells whether the server could start an agent that fits. Nil: it starts none.
	Scalable func(label.Selector) bool
	// Contexts finds what guards jobs. Nil: no name means a context that has rules.
	Contexts Contexts
	// Outputs keeps secret outputs. Nil drops them.
	Outputs SecretOutputs
	// InstallJudged is told, after the commit, what was decided about the secrets with which a workflow installs. Nil: nobody is.
	InstallJudged func(InstallJudgement)
	// Events takes note of the ends of jobs and runs. Nil: nobody does.
	Events Events
}

// New makes an engine. It owns no goroutine; Sweep is the loop to run.
func New(d Deps) *Engine {
	if d.Changed == nil {
		d.Changed = func(string) {}
	}
	if d.AsOf == nil {
		d.AsOf = func(time.Duration) int64 { return d.Clock.Millis() }
	}
	if d.InstallJudged == nil {
		d.InstallJudged = func(InstallJudgement) {}
	}
	if d.Scalable == nil {
		d.Scalable = func(label.Selector) bool { return false }
	}
	interned, err := lru.New[string, string](maxInterned)
	if err != nil {
		panic(err) // only a size below one is refused
	}
	return &Engine{db: d.DB, interned: interned, clock: d.Clock, log: d.Log, settings: d.Settings, dispatch: d.Dispatch, effects: d.Effects, follow: service.NewPoke(),
		changed: d.Changed, contexts: d.Contexts, judged: d.InstallJudged, outputs: d.Outputs, events: d.Events, scalable: d.Scalable, asOf: d.AsOf}
}

// maxInterned bounds the selectors that are known to be stored. One that is not is stored once more, which changes nothing.
const maxInterned = 4096

// maxRaces bounds how often one command is decided again.
const maxRaces = 5

// write runs a command in one transaction and, when a row changed between reading and writing, or the database gave it up
// for another one that it stood in the way of, once more on the new state.
func (e *Engine) write(ctx context.Context, fn func(ctx context.Context, tx *store.Tx) error) error {
	var err error
	for range maxRaces {
		if err = e.db.Write(ctx, fn); !errors.Is(err, store.ErrUnchanged) && !store.IsDeadlock(err) {
			return err
		}
	}
	return err
}

// onRun runs a command of run scope: the run row is locked first, so that commands of one run follow each other.
// decide sees the run and gives the outcome; follow-ups happen in the same transaction.
func (e *Engine) onRun(ctx context.Context, runID string, decide func(ctx context.Context, tx *store.Tx, run lifecycle.Run, now int64) (lifecycle.Outcome, error)) error {
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return e.command(ctx, tx, runID, decide)
	})
}

func (e *Engine) command(ctx context.Context, tx *store.Tx, runID string, decide func(ctx context.Context, tx *store.Tx, run lifecycle.Run, now int64) (lifecycle.Outcome, error)) error {
	run, ok, err := loadRun(ctx, tx, runID)
	if err != nil || !ok {
		return err
	}
	now := e.clock.Millis()
	o, err := decide(ctx, tx, run, now)
	if err != nil {
		return err
	}
	e.explain(runID, o)
	return e.apply(ctx, tx, run, o)
}

// explain notes why a command changed nothing.
func (e *Engine) explain(runID string, o lifecycle.Outcome) {
	if o.Ignored != "" {
		e.log.Debug("command changed nothing", "run", runID, "why", o.Ignored)
	}
}

// onJob runs a command about one job, in the scope of its run. Errors: those of lockJob.
func (e *Engine) onJob(ctx context.Context, jobID string, decide func(run lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome) error {
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		run, job, err := lockJob(ctx, tx, jobID, nil)
		if err != nil {
			return err
		}
		o := decide(run, job, e.clock.Millis())
		e.explain(run.ID, o)
		return e.apply(ctx, tx, run, o)
	})
}
