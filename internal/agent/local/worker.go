//go:build unix

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"kici/internal/agent/runner"
	"kici/internal/agent/workspace"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/lifecycle"
)

// Time limits of a job that the workflow does not set.
const (
	readyLimit   = 30 * time.Second // for the runner to start
	defaultGrace = 30 * time.Second // between the polite and the hard stop
	hookLimit    = 5*time.Minute + 5*time.Second
	guardMargin  = 30 * time.Second // the runner ends a job at its timeout by itself; this much later it is ended
)

// Why a job's context ends before the job.
var (
	errCancelled = errors.New("the job was cancelled")
	errOverdue   = errors.New("the job did not stop within its grace period")
)

// worker runs one job in a goroutine of its own. What it learns it sends to the run as tasks.
type worker struct {
	r     *run
	j     *job
	order order
	ctx   context.Context
	end   context.CancelCauseFunc
	abort chan struct{} // asks once for the polite end
	helps bool          // the job works for others: it has no steps of the author's

	mu        sync.Mutex
	executing bool // the runner has its request: from now on the job can end politely
}

// start begins a job.
func (r *run) start(ctx context.Context, j *job, o order) {
	w := &worker{r: r, j: j, order: o, abort: make(chan struct{}, 1), helps: j.state.Kind.Internal()}
	w.ctx, w.end = context.WithCancelCause(ctx)
	j.worker = w
	r.workers.Go(func() {
		defer w.end(nil)
		report, result := w.work()
		w.tell(func() { w.finished(report, result) })
	})
}

// tell lets the run do something. It always takes it: it ends after its workers.
func (w *worker) tell(task func()) { w.r.tasks <- task }

// cancel ends the job: politely the first time, with its hooks, unless force says otherwise or no step can have begun. It
// is called by the run.
func (w *worker) cancel(force bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if force || !w.executing {
		w.end(errCancelled)
		return
	}
	select {
	case w.abort <- struct{}{}:
	default: // it was asked before
	}
}

// work prepares the job's folder and lets the runner run it. The folder is gone when it returns, unless it is kept.
func (w *worker) work() (lifecycle.Report, *runner.JobComplete) {
	if limit := time.Duration(w.order.limitMs) * time.Millisecond; limit > 0 {
		ctx, cancel := context.WithTimeoutCause(w.ctx, limit+guardMargin, fmt.Errorf("job_timeout: job exceeded its timeout of %dms", w.order.limitMs))
		defer cancel()
		w.ctx = ctx
	}
	dir := w.r.o.Root
	if !w.r.o.InPlace {
		ws, err := workspace.Open(w.ctx, workspace.Options{TempDir: w.r.o.Scratch, Environ: w.r.o.Environ})
		if err != nil {
			return w.failure(err), nil
		}
		defer w.leave(ws)
		dir = ws.Dir()
		if err := w.fetch(ws); err != nil {
			return w.failure(err), nil
		}
	}
	for _, remark := range w.order.remarks {
		w.say(remark)
	}
	return w.run(dir)
}

// say writes a line of ours to the job's log.
func (w *worker) say(text string) {
	w.tell(func() { w.r.line(w.j, wire.JobLevel, "[kici] "+text) })
}

// leave removes the folder of the job, or tells where it is.
func (w *worker) leave(ws *workspace.Workspace) {
	if w.r.o.Keep {
		w.tell(func() { w.r.kept = append(w.r.kept, ws.Dir()) })
		return
	}
	if err := ws.Close(); err != nil {
		w.say(err.Error())
	}
}

// run runs the job in the folder. Nothing of it is left when it returns.
func (w *worker) run(dir string) (lifecycle.Report, *runner.JobComplete) {
	proc, err := w.launch(dir)
	if err != nil {
		return w.failure(fmt.Errorf("the step runner cannot be started: %w", err)), nil
	}
	if w.order.image != "" {
		dir = containerDir // as the runner sees it
	}
	report, result := w.converse(proc, dir)
	if err := proc.Kill(); err != nil {
		w.say("processes of the job are left behind: " + err.Error())
	}
	return report, result
}

func (w *worker) launch(dir string) (*runner.Process, error) {
	if w.order.image != "" {
		return w.contain(dir)
	}
	return runner.Start(w.ctx, runner.Options{Dir: dir, Env: w.order.env, Command: w.r.o.Runner})
}

// converse gives the runner its request and handles what it says until its end.
func (w *worker) converse(proc *runner.Process, dir string) (lifecycle.Report, *runner.JobComplete) {
	if err := w.execute(proc, dir); err != nil {
		return w.failure(err), nil
	}
	grace := defaultGrace
	if w.order.graceMs > 0 {
		grace = min(grace, time.Duration(w.order.graceMs)*time.Millisecond)
	}
	if w.order.image != "" {
		grace = min(grace, containerGrace)
	}
	overdue := time.NewTimer(hookLimit)
	overdue.Stop()
	stopping := false
	for {
		select {
		case m, ok := <-proc.Messages():
			if !ok {
				return w.withoutResult(proc, stopping), nil
			}
			if result := w.handle(proc, m); result != nil {
				return w.report(result, stopping), result
			}
			if stopping && cancelHook(m) {
				overdue.Reset(hookLimit)
			}
		case <-w.abort:
			stopping = true
			overdue.Reset(grace)
			w.stop(proc)
		case <-overdue.C:
			w.end(errOverdue)
		case <-w.ctx.Done():
			return w.failure(context.Cause(w.ctx)), nil
		}
	}
}

// execute sends the request once the runner waits for it.
func (w *worker) execute(proc *runner.Process, dir string) error {
	select {
	case m, ok := <-proc.Messages():
		if !ok || m.Type != runner.TypeReady {
			return errors.New(proc.Wait().String())
		}
	case <-time.After(readyLimit):
		return fmt.Errorf("the step runner did not start within %v", readyLimit)
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	fields := maps.Clone(w.order.fields)
	fields["workDir"] = dir
	request, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode the request of the job: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	w.executing = true
	return proc.Send(runner.Execute{Type: runner.TypeExecute, Request: request})
}

func (w *worker) withoutResult(proc *runner.Process, stopping bool) lifecycle.Report {
	if stopping {
		return lifecycle.Report{Agent: agentID, Status: ci.JobCancelled}
	}
	return w.failure(errors.New(proc.Wait().String()))
}

// stop asks the runner for the polite end. One that has gone needs no asking.
func (w *worker) stop(proc *runner.Process) {
	if proc.Send(runner.Abort{Type: runner.TypeAbort}) == nil {
		_ = proc.Terminate()
	}
}

// cancelHook tells the start of a hook that has a time of its own.
func cancelHook(m runner.Message) bool {
	var v runner.StepStart
	return m.Type == runner.TypeStepStart && m.Decode(&v) == nil && (v.StepType == "hook:onCancel" || v.StepType == "hook:cleanup")
}

// failure is the report of a job whose runner has not given one.
func (w *worker) failure(err error) lifecycle.Report {
	cause := context.Cause(w.ctx)
	if errors.Is(cause, errCancelled) || errors.Is(cause, errOverdue) || errors.Is(cause, errRunEnded) {
		return lifecycle.Report{Agent: agentID, Status: ci.JobCancelled}
	}
	if cause != nil {
		err = cause
	}
	return lifecycle.Report{Agent: agentID, Status: ci.JobFailed, Error: err.Error()}
}

// report is what the runner reported, as decisions read it. A cancelled job is cancelled, whatever its last steps made
// of it.
func (w *worker) report(result *runner.JobComplete, stopping bool) lifecycle.Report {
	report := lifecycle.Report{Agent: agentID, Status: ci.JobFailed, Error: result.Error}
	switch {
	case stopping:
		report.Status = ci.JobCancelled
	case result.Status == "success":
		report.Status = ci.JobSuccess
	}
	for _, s := range result.StepResults {
		report.Steps = append(report.Steps, lifecycle.StepResult{Name: s.Name, Status: ci.StepStatus(s.Status), DurationMs: s.DurationMs, Error: s.Error})
	}
	if len(result.InitFailure) > 0 {
		var f ci.InitFailure
		if json.Unmarshal(result.InitFailure, &f) == nil {
			report.InitFailure = &f
		}
	}
	if len(result.Outputs) > 0 {
		report.Outputs, _ = json.Marshal(result.Outputs) // they came out of JSON
	}
	return report
}

// finished takes the end of the job into the run. result is nil when the runner gave none.
func (w *worker) finished(report lifecycle.Report, result *runner.JobComplete) {
	j := w.j
	if result != nil {
		j.settleSteps(result.StepResults)
		j.secrets = result.SecretOutputs
		w.r.mask.Add(slices.Collect(maps.Values(result.SecretOutputs))...)
		for _, name := range result.DroppedJobs {
			report.Dropped = append(report.Dropped, w.r.siblings(name)...)
		}
		switch j.state.Kind {
		case ci.KindInit:
			j.outputs = result.InitResult
		case ci.KindGenerator:
			j.outputs = result.DynamicJobs
		case ci.KindStandard, ci.KindBuild:
		}
	}
	j.closeSteps()
	w.r.finish(j, report)
}

// siblings are the generated jobs of a base name.
func (r *run) siblings(base string) (list []lifecycle.Job) {
	for _, j := range r.jobs {
		if j.plan.BaseName == base && j.plan.DynamicSource != nil {
			list = append(list, j.state)
		}
	}
	return list
}
