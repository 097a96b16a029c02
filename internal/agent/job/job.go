// Package job carries out one job: it prepares the source, lets a step runner run the steps, and reports what happened.
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"kici/internal/agent/bundles"
	"kici/internal/agent/host"
	"kici/internal/agent/ledger"
	"kici/internal/agent/runner"
	"kici/internal/agent/steplog"
	"kici/internal/agent/workspace"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/kit/redact"
)

// Time limits of a job that its dispatch does not set.
const (
	readyLimit   = 30 * time.Second // for the runner to start
	maxGrace     = 30 * time.Second // between the polite and the hard stop
	hookLimit    = 5*time.Minute + 5*time.Second
	maxRequests  = 64       // questions of one job to the server at a time
	jobErrorSize = 64 << 10 // of an error text
)

// Job is one job of an agent, from its acceptance until nothing of it is left.
type Job struct {
	Ref ledger.Job

	shop    Workshop
	d       wire.JobDispatch
	conf    jobConfig
	confErr error // why the configuration could not be read
	log     *slog.Logger
	mask    *redact.Redactor
	logs    *steplog.Logs
	started time.Time
	fence   <-chan struct{} // closed when the server has confirmed that the job is ours; nil = need not be waited for
	done    chan struct{}   // closed when process and workspace are gone

	ctx      context.Context // ends when the job is to end at once
	end      context.CancelCauseFunc
	progress atomic.Int64  // what the runner has said so far
	requests chan struct{} // one for each question that waits for its answer
	outbox   chan any      // messages to the runner

	bundleKey string   // of the workflow, "" when its bundle is of no use to other jobs
	env       []string // of the runner, when it was started before the job came and does not have it

	mu         sync.Mutex
	proc       *runner.Process
	ready      bool // the runner has said that it waits for its request
	executing  bool // the runner has its request: from now on it can end politely
	cancelling bool
	heard      string      // id of the last cancel
	deadline   *time.Timer // of the polite end
	grace      time.Duration
	steps      []wire.StepResult // as reported, for a runner that ends without a result
	stepAt     map[int]int       // step index to its place in steps
	silent     bool              // nothing more is reported
	marks      []slog.Attr       // when each part of the job was done, since its acceptance
}

// outcome is how the job ended.
type outcome struct {
	state ci.JobStatus
	err   string
	// result is what the runner reported; nil when it did not come so far.
	result *runner.JobComplete
	sealed map[string]wire.SecretOutput // its secret outputs, encrypted
}

// New makes the job of a dispatch; it begins with Run. fence is closed when the server has confirmed that the job is this
// agent's; nil where that need not be waited for.
func New(shop Workshop, d wire.JobDispatch, fence <-chan struct{}) *Job {
	j := &Job{
		Ref:      ledger.Job{Run: d.RunID, ID: d.JobID},
		shop:     shop,
		d:        d,
		log:      shop.Log.With("run", d.RunID, "job", d.JobID),
		mask:     redact.New(secretValues(d, shop.Token)),
		started:  time.Now(),
		fence:    fence,
		done:     make(chan struct{}),
		requests: make(chan struct{}, maxRequests),
		outbox:   make(chan any, 2*maxRequests),
		stepAt:   map[int]int{},
	}
	if err := json.Unmarshal(d.JobConfig, &j.conf); err != nil {
		j.confErr = fmt.Errorf("the job's configuration cannot be read: %w", err)
	}
	j.ctx, j.end = context.WithCancelCause(context.Background())
	limit := d.MaxLogSizeBytes
	if limit <= 0 {
		limit = shop.MaxLogBytes
	}
	j.logs = &steplog.Logs{Job: j.Ref, Limit: limit, Drop: shop.DropLines, Mask: j.mask, Ledger: shop.Ledger, Metrics: shop.Metrics,
		Ended: j.ctx.Done()}
	return j
}

// Done is closed when nothing of the job is left.
func (j *Job) Done() <-chan struct{} { return j.done }

// Progress counts what the job has said so far.
func (j *Job) Progress() int64 { return j.progress.Load() }

// secretValues lists what must never leave in clear.
func secretValues(d wire.JobDispatch, token string) []string {
	values := []string{token, d.Token}
	for _, v := range d.Secrets {
		values = append(values, v)
	}
	for _, context := range d.NamespacedSecrets {
		for _, v := range context.Secrets {
			values = append(values, v)
		}
	}
	for _, v := range d.InstallEnvSecrets {
		values = append(values, v)
	}
	for _, r := range d.NpmRegistries {
		values = append(values, r.Token)
	}
	for _, auth := range []*wire.GitAuth{d.SourceAuth, d.WorkflowAuth} {
		if auth != nil {
			values = append(values, auth.Secret)
		}
	}
	return values
}

// Run does the whole job. The agent is free as soon as the end is reported; removing the workspace comes after that,
// since it may hold a great many files.
func (j *Job) Run() {
	defer close(j.done)
	defer j.end(nil)
	ws, err := workspace.Open(j.ctx, workspace.Options{TempDir: j.shop.TempDir, Cache: j.shop.Cache, Environ: j.shop.Environ,
		CopyObjects: j.shop.Place.Sandboxed})
	j.status(ci.JobRunning)
	j.beginHelp()
	var res outcome
	if err != nil {
		res = j.failure(err)
	} else {
		res = j.work(ws)
	}
	j.clear(res)
	j.mark("ended")
	j.logs.Close()
	if !j.isSilent() {
		j.endHelp(res)
		j.event("agent.execution.end", time.Since(j.started), map[string]any{"status": res.state})
	}
	j.shop.Metrics.Ended(res.state)
	j.log.Info("job ended", "state", res.state, "err", res.err, "took", time.Since(j.started))
	j.shop.Finished(j, func() {
		if !j.isSilent() {
			j.report(res)
			j.event("agent.teardown", 0, nil)
		}
	})
	j.tearDown()
	if ws != nil {
		if err := ws.Close(); err != nil {
			j.log.Error("workspace is left behind", "err", err)
		}
	}
	j.mark("removed")
	j.logMarks()
}

// work prepares the job and lets the runner run it.
func (j *Job) work(ws *workspace.Workspace) outcome {
	if j.confErr != nil {
		return j.failure(j.confErr)
	}
	if err := j.conf.supported(j.shop.Place); err != nil {
		return j.failure(err)
	}
	if limit := j.conf.timeout(); limit > 0 {
		guard := time.AfterFunc(limit+j.shop.GuardMargin, func() { j.end(&timeoutError{limit}) })
		defer guard.Stop()
	}
	box, err := j.shop.Place.Box(ws.Dir(), j.d.RepoURL)
	if err != nil {
		return j.failure(err)
	}
	if j.conf.kind() == build {
		return j.build(ws, box)
	}
	env := j.runnerEnvironment(box)
	// The runner starts while the source is fetched: starting costs time, and it waits for its request anyway.
	proc, err := j.startRunner(runner.Options{Dir: ws.Dir(), Env: env, Command: box.Command})
	if err != nil {
		return j.failure(fmt.Errorf("the step runner cannot be started: %w", err))
	}
	j.shop.Go(func() { j.feed(proc) })
	j.sendContext(env, ws.Dir(), box.Kind)
	j.event("agent.execution.start", 0, nil)
	if err := j.prepare(ws); err != nil {
		return j.failure(err)
	}
	j.mark("prepared")
	if err := j.awaitFence(); err != nil {
		return j.failure(err)
	}
	j.mark("confirmed")
	return j.converse(proc, j.execution(box, filepath.Join(ws.Dir(), j.root())))
}

// failure is the outcome of a job whose runner has not given one.
func (j *Job) failure(err error) outcome {
	if cause := context.Cause(j.ctx); cause != nil {
		err = cause
	}
	j.mu.Lock()
	cancelling := j.cancelling
	j.mu.Unlock()
	switch {
	case errors.Is(err, errCancelled) || cancelling:
		return outcome{state: ci.JobCancelled}
	case errors.Is(err, errStopped) || errors.Is(err, ErrRefused) || errors.Is(err, ErrNotAssigned):
		return outcome{state: ci.JobCancelled, err: err.Error()}
	}
	return outcome{state: ci.JobFailed, err: err.Error()}
}

// awaitFence waits until the server has confirmed that this agent has the job: a dispatch may have sat in a connection
// while the job was given to another agent.
func (j *Job) awaitFence() error {
	if j.fence == nil {
		return nil
	}
	select {
	case <-j.fence:
		return nil
	case <-j.ctx.Done():
		return context.Cause(j.ctx)
	}
}

// execution is the order to run the job. repository is where the workflow is, as the agent sees it.
func (j *Job) execution(box host.Box, repository string) runner.Execute {
	e := runner.Execute{Type: runner.TypeExecute, Request: j.request(box), Env: j.env}
	j.bundleKey = bundles.Key(repository, j.conf.sourceFile())
	e.Bundle = j.shop.Bundles.Find(j.bundleKey)
	e.KeepBundle = e.Bundle == nil && j.bundleKey != ""
	return e
}

// converse runs the job in the runner and handles what it says until its end.
func (j *Job) converse(proc *runner.Process, order runner.Execute) outcome {
	if err := j.awaitReady(proc); err != nil {
		return j.failure(err)
	}
	j.mark("ready")
	j.mu.Lock()
	stopped := j.ctx.Err() != nil
	if !stopped {
		j.executing = true
		j.tell(order) // before any abort
	}
	j.mu.Unlock()
	if stopped {
		return j.failure(context.Cause(j.ctx))
	}
	var result *runner.JobComplete
	for first := true; result == nil; first = false {
		select {
		case m, ok := <-proc.Messages():
			switch {
			case !ok:
				return j.withoutResult(proc)
			case first && order.KeepBundle && m.Type == runner.TypeBundle:
				j.keepBundle(m)
			default:
				result = j.handle(m)
				j.mark("answered")
			}
		case <-j.ctx.Done():
			return j.failure(context.Cause(j.ctx))
		}
	}
	j.mark("completed")
	return j.withResult(result)
}

func (j *Job) awaitReady(proc *runner.Process) error {
	if j.ready {
		return nil
	}
	timer := time.NewTimer(readyLimit)
	defer timer.Stop()
	for {
		select {
		case m, ok := <-proc.Messages():
			switch {
			case !ok:
				return errors.New(j.mask.String(proc.Wait().String()))
			case m.Type == runner.TypeReady:
				return nil
			}
		case <-timer.C:
			return fmt.Errorf("the step runner did not start within %v", readyLimit)
		case <-j.ctx.Done():
			return context.Cause(j.ctx)
		}
	}
}

// keepBundle remembers the workflow's bundle for later jobs.
func (j *Job) keepBundle(m runner.Message) {
	if v, ok := decode[runner.Bundle](j, m); ok {
		j.shop.Bundles.Keep(j.bundleKey, v)
	}
}

// withResult judges what the runner reported. A cancelled job is cancelled, whatever its last steps made of it.
func (j *Job) withResult(result *runner.JobComplete) outcome {
	res := outcome{state: ci.JobFailed, err: j.masked(result.Error), result: result, sealed: j.seal(result.SecretOutputs)}
	if result.Status == "success" {
		res.state = ci.JobSuccess
	}
	if err := j.checkHelp(res); err != nil {
		res.state, res.err = ci.JobFailed, err.Error()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cancelling {
		res.state = ci.JobCancelled
	}
	return res
}

// withoutResult is the outcome of a runner that ended without one.
func (j *Job) withoutResult(proc *runner.Process) outcome {
	return j.failure(errors.New(j.mask.String(proc.Wait().String())))
}
