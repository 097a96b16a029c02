//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
	"kici/internal/kit/docker"
	"kici/internal/kit/redact"
)

// Options say how to run.
type Options struct {
	Work
	Root      string // of the repository, an absolute path
	KiciDir   string // folder of the workflows in it, relative; "" is .kici
	Jobs      int    // that run at a time; 0: as many as there are processors
	KeepGoing bool   // start jobs also after one has failed
	Only      string // name of a job that alone is wanted, with what it needs; "" is all
	InPlace   bool   // run in the repository itself
	Keep      bool   // leave the folders of the jobs where they are
	Scratch   string // folder in which those are made; it must exist
	Artifacts string // folder of the run's artifacts, which it empties; "" for none. The one above it is made to hide from git
	Debug     bool   // also what steps log for debugging
	Env       map[string]string
	Secrets   Secrets
	Environ   []string // of this process
	Runner    []string // command of the step runner; nil is this program's own
	// Engine runs each job in a container of the image that it names, or of DefaultImage; nil: on this machine.
	Engine *docker.Client
	// Screen is told of every change, by one goroutine at a time.
	Screen Screen
	// Force ends jobs at once, without their hooks, when it is closed.
	Force <-chan struct{}
}

// Screen shows a run while it goes on.
type Screen interface {
	// Show shows the run as it is now, also when only time has passed.
	Show(run adminwire.RunDetail, jobs []adminwire.Job)
	// Line takes a line of a log.
	Line(log adminwire.LogName, text string)
}

// Result is how a run has ended.
type Result struct {
	Run   adminwire.RunDetail
	Jobs  []adminwire.Job
	Drift bool     // check mode has found something to change
	Kept  []string // folders of jobs that were left, with Options.Keep
	// Artifacts are the files that steps have uploaded.
	Artifacts []string
}

// redrawEvery is how often the screen is told that time passes.
const redrawEvery = 250 * time.Millisecond

// errRunEnded ends what still works for a run that has ended.
var errRunEnded = errors.New("the run has ended")

// Run runs the work to its end. The end of ctx cancels the run: its jobs end with their hooks, unless Options.Force says
// otherwise. A run that fails is no error; an error says that there was no run.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.KiciDir == "" {
		o.KiciDir = ".kici"
	}
	if o.Jobs <= 0 {
		o.Jobs = runtime.GOMAXPROCS(0)
	}
	r := &run{o: o, byName: map[string]*job{}, tasks: make(chan func()), mask: redact.New(o.Secrets.values()), artifacts: artifacts{dir: o.Artifacts}}
	now := time.Now().UnixMilli()
	r.in = o.Work.input(uuid.NewString(), now)
	made, err := build(r.in, o.Only)
	if err != nil {
		return Result{}, err
	}
	r.begin(made, now)
	r.loop(ctx)
	return Result{Run: r.detail(), Jobs: r.views(), Drift: r.drift, Kept: r.kept, Artifacts: r.artifacts.complete()}, nil
}

// begin makes the jobs and their first states.
func (r *run) begin(p plan.Plan, now int64) {
	r.state = lifecycle.Run{ID: r.in.RunID, Status: ci.RunPending, CreatedAt: now, TimeoutMs: p.TimeoutMs, CheckMode: r.o.CheckMode}
	r.edges = p.Edges
	if p.InitFailure != nil {
		r.apply(lifecycle.Stillborn(*p.InitFailure, now))
		return
	}
	planned := make([]lifecycle.Planned, len(p.Jobs))
	for i, j := range p.Jobs {
		planned[i] = lifecycle.Planned{Job: r.add(j, len(r.jobs)).state, Needs: r.needsOf(j.Name), InitFailure: j.InitFailure}
	}
	r.apply(lifecycle.Register(planned, now))
}

// loop is the only goroutine that reads or changes the run. It returns when everything that worked for it has ended.
func (r *run) loop(ctx context.Context) {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	redraw := time.NewTicker(redrawEvery)
	defer redraw.Stop()
	interrupted, forced := ctx.Done(), r.o.Force
	for !r.state.Status.Terminal() {
		r.dispatch(work)
		if r.state.Status.Terminal() {
			break
		}
		if r.changed {
			r.show()
		}
		select {
		case task := <-r.tasks:
			task()
		case <-interrupted:
			interrupted = nil
			r.cancel(interruption(false))
		case <-forced:
			interrupted, forced = nil, nil
			r.cancel(interruption(true))
		case <-redraw.C:
			r.tick()
			r.changed = true // the times are other ones
		}
	}
	stop(errRunEnded)
	r.drain()
	r.show()
}

// drain takes what is still said until the last worker has ended.
func (r *run) drain() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.workers.Wait()
	}()
	for {
		select {
		case task := <-r.tasks:
			task()
		case <-ended:
			return
		}
	}
}

// tick ends a run that has passed its limit.
func (r *run) tick() {
	now := time.Now().UnixMilli()
	if r.state.Cancel != nil || !lifecycle.Deadline(r.state, now) {
		return
	}
	message := fmt.Sprintf("workflow_timeout: run exceeded the workflow timeout of %dms", r.state.TimeoutMs)
	r.cancel(lifecycle.Cancel{By: "kici", At: now, Reason: ci.NewReason(ci.ReasonWorkflowTimeout, message, map[string]int64{"timeoutMs": r.state.TimeoutMs})})
}

func interruption(forced bool) lifecycle.Cancel {
	return lifecycle.Cancel{By: "you", At: time.Now().UnixMilli(), Forced: forced, Reason: ci.NewReason(ci.ReasonCancelled, "interrupted", nil)}
}
