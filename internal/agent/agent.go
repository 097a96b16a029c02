package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kici/internal/agent/bundles"
	"kici/internal/agent/host"
	"kici/internal/agent/job"
	"kici/internal/agent/ledger"
	"kici/internal/agent/link"
	"kici/internal/agent/metrics"
	"kici/internal/agent/workspace"
	"kici/internal/core/wire"
	"kici/internal/kit/redact"
)

// guardMargin is how much later than the runner the agent ends a job that exceeds its timeout.
const guardMargin = 30 * time.Second

// How long an ending agent waits.
const (
	stopPatience  = 10 * time.Second // for a running job after SIGTERM, and for its result to be acknowledged
	killPatience  = time.Second      // for a job that is being killed
	flushPatience = time.Second      // of a scaler-managed agent, for the last frames
	drainPatience = time.Minute      // of a drained agent, for the last result to be acknowledged
)

// Agent is one agent. It is served once.
type Agent struct {
	cfg       Config
	log       *slog.Logger
	client    *http.Client // of connections and downloads
	ledger    *ledger.Ledger
	metrics   *metrics.Metrics
	oplog     *oplog
	cache     *workspace.Cache // nil when it cannot be had
	bundles   *bundles.Memory
	facts     host.Facts
	started   time.Time
	questions ledger.Questions
	address   atomic.Value                                    // of the HTTP endpoints, once they listen
	pause     func(attempt int, chance float64) time.Duration // before connecting again; nil for the usual one

	guardMargin   time.Duration   // see the constant
	rebootMachine func() error    // the machine goes down a moment after it returns
	life          context.Context // of Serve

	leave     chan error // asks Serve to end; holds one, more change nothing
	closing   sync.WaitGroup
	mu        sync.Mutex
	session   *link.Session // nil while not registered
	features  []string      // of the server that it was registered with last
	job       *job.Job      // nil while idle
	last      *job.Job      // the latest, whose workspace may still be going away
	spare     *spare        // nil when there is none
	spareLife time.Duration // see the constant; 0 for no spare
	draining  bool
	idle      *time.Timer // of a scaler-managed agent
	offlineAt time.Time
	refused   bool    // for good
	reboot    *reboot // nil while no job wants one
	guarded   bool    // the metadata address of the microVM is closed
}

// New prepares an agent; nothing runs before Serve.
func New(cfg Config, log *slog.Logger) (*Agent, error) {
	cfg = cfg.withDefaults()
	if cfg.OrchestratorURL == "" {
		return nil, errors.New("no server to connect to")
	}
	for _, program := range []string{"git", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("the agent needs %s on its PATH: %w", program, err)
		}
	}
	a := &Agent{
		cfg:       cfg,
		client:    &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		metrics:   metrics.New(cfg.Backpressure),
		bundles:   bundles.New(),
		started:   time.Now(),
		offlineAt: time.Now(),
		leave:     make(chan error, 1),

		guardMargin:   guardMargin,
		spareLife:     spareLife,
		rebootMachine: host.Reboot,
	}
	a.oplog = newOplog(log.Handler(), redact.New([]string{cfg.Token}))
	a.log = slog.New(a.oplog).With("agent", cfg.AgentID)
	a.ledger = ledger.New(cfg.TempDir, a.log)
	a.facts = host.Read(cfg.Labels, cfg.Roles)
	cache, err := workspace.OpenCache(cacheDir(cfg))
	if err != nil {
		a.log.Warn("repositories are cloned without a mirror", "err", err)
	}
	a.cache = cache
	return a, nil
}

func cacheDir(cfg Config) string {
	if cfg.CacheDir != "" {
		return cfg.CacheDir
	}
	base, err := os.UserCacheDir()
	if err != nil { // a service without a home
		base = filepath.Join(os.TempDir(), fmt.Sprintf("kici-cache-%d", os.Getuid()))
	}
	return filepath.Join(base, "kici", "git")
}

// link is the agent's way to its server.
func (a *Agent) link() *link.Link {
	return &link.Link{URL: a.cfg.OrchestratorURL, Token: a.cfg.Token, Client: a.client, Ledger: a.ledger, Log: a.log, Pause: a.pause,
		Register: a.registration, Online: a.online, Offline: a.offline, Receive: a.receive,
		Loops: []func(context.Context, *link.Session) error{a.beatLoop, a.forwardLoop}}
}

// Serve connects and takes jobs until ctx ends, the agent is drained, or a scaler-managed agent has no more to do. The
// end of ctx is graceful: a running job has ten seconds, then it is cancelled and the error is an *ExitError.
func (a *Agent) Serve(ctx context.Context) error {
	return a.serveUntil(ctx, nil)
}

// serveUntil is Serve with a channel whose closing ends the agent at once.
func (a *Agent) serveUntil(ctx context.Context, force <-chan struct{}) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer a.ledger.Close()
	defer a.closing.Wait()
	defer a.dropSpare()
	defer end(nil)
	a.life = life
	if err := a.serveHTTP(life); err != nil {
		return &ExitError{Code: 1, Err: err}
	}
	a.closing.Go(func() { workspace.CleanStale(life, a.cfg.TempDir, 24*time.Hour, time.Now()) })
	a.closing.Go(func() {
		if err := a.link().Run(life); life.Err() == nil {
			a.refuse(err)
		}
	})
	var err error
	select {
	case err = <-a.leave:
	case <-ctx.Done():
	}
	err = errors.Join(err, a.stop(err != nil, force))
	a.sayGoodbye()
	return exitError(err)
}

// exitError gives the ends that are failures their exit code.
func exitError(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: 1, Err: err}
}

// ExitError is an end with an exit code other than 0.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// refuse reacts to a refusal for good. A static agent stays up, unready, so that its operator finds it with the reason
// in its log; one that was started for a job has no purpose any more. A running job ends: nobody takes its result.
func (a *Agent) refuse(err error) {
	a.log.Error("not connecting again", "err", err)
	a.mu.Lock()
	a.refused = true
	j := a.job
	a.mu.Unlock()
	if j != nil {
		j.Abandon(job.ErrRefused)
	}
	if a.cfg.ScalerManaged {
		a.depart(err)
	}
}

// depart asks Serve to end, with an error or nil.
func (a *Agent) depart(err error) {
	select {
	case a.leave <- err:
	default: // it is ending already
	}
}

// Drain makes the agent finish its job, take no other, and end.
func (a *Agent) Drain() {
	a.mu.Lock()
	first := !a.draining
	a.draining = true
	busy := a.job != nil
	a.mu.Unlock()
	if first {
		a.log.Info("draining", "busy", busy)
	}
	if !busy {
		a.depart(nil)
	}
}

// stop ends the work: it waits for the running job and for its result to reach the server. failed skips the waiting
// for what a refused agent cannot deliver.
func (a *Agent) stop(failed bool, force <-chan struct{}) error {
	a.mu.Lock()
	drained := a.draining
	a.draining = true
	j, last := a.job, a.last
	a.stopIdleLocked()
	a.mu.Unlock()
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	if j != nil {
		select {
		case <-j.Done():
		case <-patience.C:
			return a.killJob(j, "the agent was stopped")
		case <-force:
			return a.killJob(j, "the agent was stopped twice")
		}
	} else if last != nil {
		select {
		case <-last.Done(): // its workspace is gone
		case <-patience.C:
		case <-force:
		}
	}
	if failed {
		return nil
	}
	a.sendMetrics()
	wait := stopPatience
	switch {
	case a.cfg.ScalerManaged:
		wait = flushPatience
	case drained && j == nil:
		wait = drainPatience
	}
	a.flush(wait, force)
	return nil
}

// killJob cancels a job that has not ended in time and leaves it a moment to be reported.
func (a *Agent) killJob(j *job.Job, why string) error {
	j.Stop()
	timer := time.NewTimer(killPatience)
	defer timer.Stop()
	select {
	case <-j.Done():
	case <-timer.C:
	}
	a.flush(killPatience/2, nil)
	return fmt.Errorf("%s; its job %s was cancelled", why, j.Ref.ID)
}

// flush waits until the server has everything, for a bounded time.
func (a *Agent) flush(wait time.Duration, force <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	go func() {
		select {
		case <-force:
			cancel()
		case <-ctx.Done():
		}
	}()
	if !a.ledger.Drained(ctx) {
		a.log.Warn("leaving with frames that the server has not confirmed")
	}
}

// sayGoodbye closes the connection in the agreed way.
func (a *Agent) sayGoodbye() {
	a.mu.Lock()
	s := a.session
	a.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// online makes s the agent's connection: what the server has not confirmed is sent again, in order, before anything
// new. It returns how many frames wait.
func (a *Agent) online(s *link.Session) int {
	a.guardMetadata()
	a.mu.Lock()
	offline := time.Since(a.offlineAt)
	a.session, a.features = s, s.Ack.Features
	waiting := a.ledger.Connect(s.Has(wire.FeatureFrameAck))
	a.startIdleLocked(s.Ack.PendingDispatch)
	a.mu.Unlock()
	a.metrics.Connected.Store(1)
	a.oplog.replay(offline, waiting)
	a.ledger.Send(ledger.KeepNot, wire.ConfigAck{MessageID: fmt.Sprintf("config-ack-%s-%d", a.cfg.AgentID, time.Now().UnixMilli()), AgentID: a.cfg.AgentID})
	a.mu.Lock()
	if a.reboot != nil { // the server takes a host that registers for one that is back
		a.askLocked(job.MethodRequestReboot, a.reboot.params)
	}
	a.mu.Unlock()
	return waiting
}

func (a *Agent) offline(s *link.Session) {
	a.mu.Lock()
	if a.session == s {
		a.session = nil
	}
	a.offlineAt = time.Now()
	a.stopIdleLocked()
	a.mu.Unlock()
	a.metrics.Connected.Store(0)
	a.ledger.Disconnect()
	a.questions.Lost(s.Has(wire.FeatureFrameAck))
}

// serverHas tells whether the server has a feature, also while it is away for a moment.
func (a *Agent) serverHas(feature string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.features, feature)
}

func (a *Agent) registered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session != nil
}

// startIdleLocked starts the count-down of an agent that a scaler started for one job.
func (a *Agent) startIdleLocked(pendingDispatch bool) {
	a.stopIdleLocked()
	if !a.cfg.ScalerManaged || a.job != nil || a.session == nil || a.draining {
		return
	}
	wait := a.cfg.IdleTimeout
	if pendingDispatch {
		wait = a.cfg.PendingDispatchTimeout
	}
	a.idle = time.AfterFunc(max(wait, 0), func() {
		a.mu.Lock()
		busy := a.job != nil || a.session == nil
		a.mu.Unlock()
		if !busy {
			a.log.Info("no work, leaving", "after", wait)
			a.depart(nil)
		}
	})
}

func (a *Agent) stopIdleLocked() {
	if a.idle != nil {
		a.idle.Stop()
		a.idle = nil
	}
}

// receive handles one frame of the server. It runs in the reader, so nothing here may take long.
func (a *Agent) receive(ctx context.Context, s *link.Session, m wire.Message) {
	switch m := m.(type) {
	case wire.JobDispatch:
		a.dispatched(m)
	case wire.JobCancel:
		a.cancelled(m)
	case wire.Ack:
		a.ledger.Ack(m.MessageID, m.Through)
	case wire.ConcurrencyAck:
		a.questions.Concurrency(m)
	case wire.ApprovalResolved:
		a.questions.Answer(m.RequestID, m)
	case wire.CacheUploadResponse:
		a.questions.Answer(m.RequestID, m)
	case wire.UserCacheRestoreResponse:
		a.questions.Answer(m.RequestID, m)
	case wire.UserCacheSaveResponse:
		a.questions.Answer(m.RequestID, m)
	case wire.ArtifactUploadResponse:
		a.questions.Answer(m.RequestID, m)
	case wire.ArtifactCommitResponse:
		a.questions.Answer(m.RequestID, m)
	case wire.ProvenanceUploadResponse:
		a.questions.Answer(m.RequestID, m)
	case wire.EventEmitResponse:
		a.questions.Answer(m.RequestID, m)
	case wire.APIResponse:
		a.questions.Answer(m.RequestID, m)
	case wire.FleetLogsRequest:
		a.closing.Go(func() { a.sendBundle(ctx, m) })
	case wire.ErrorFrame:
		a.log.Warn("the server reports an error", "code", m.Code, "message", m.Message)
	case wire.RateLimitWarning:
		a.log.Warn("the server reports that it drops frames", "retryAfterMs", m.RetryAfterMs)
	}
}
