//go:build unix

package local

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
	"kici/internal/kit/redact"
)

// run is one run. All of it belongs to the goroutine of loop; workers send it tasks.
type run struct {
	o       Options
	in      plan.Input
	state   lifecycle.Run
	started int64
	ended   int64
	failure *ci.InitFailure
	jobs    []*job
	byName  map[string]*job
	edges   []plan.Edge
	queue   []*job // that may run, in order
	failed  string // the first job that failed
	drift   bool
	kept    []string
	mask    *redact.Redactor
	changed bool // since it was shown last

	artifacts artifacts // not the loop's: workers speak to it

	tasks   chan func()
	workers sync.WaitGroup
}

// job is one job of the run.
type job struct {
	plan    plan.Job
	state   lifecycle.Job
	view    adminwire.Job
	failure *ci.InitFailure
	outputs json.RawMessage
	secrets map[string]string // its secret outputs
	worker  *worker           // while it runs
}

// agentID is this machine, as decisions name who has a job.
const agentID = "local"

// add makes a job of the run at a place among the others.
func (r *run) add(p plan.Job, at int) *job {
	kind := p.Kind
	if kind == "" {
		kind = ci.KindStandard
	}
	j := &job{plan: p}
	now := time.Now().UnixMilli()
	j.state = lifecycle.Job{
		ID: p.ID, Name: p.Name, Kind: kind, Status: ci.JobPending, CreatedAt: now, GraceMs: p.GraceMs, Deferred: p.Deferred,
		Wave: lifecycle.Wave{Gated: p.WaveGated, MaxParallel: p.MaxParallel, FailFast: p.FailFast, Label: p.VariantLabel},
	}
	j.view = adminwire.Job{JobID: p.ID, JobName: p.Name, BaseJobName: p.BaseName, Status: ci.JobPending, CreatedAt: adminwire.At(now)}
	if len(p.MatrixValues) > 0 {
		j.view.MatrixValues, _ = json.Marshal(p.MatrixValues) // texts always encode
	}
	r.jobs = slices.Insert(r.jobs, at, j)
	r.byName[p.Name] = j
	return j
}

func (r *run) byID(id string) *job {
	for _, j := range r.jobs {
		if j.state.ID == id {
			return j
		}
	}
	return nil
}

// needsOf are the names of the jobs that a job waits for.
func (r *run) needsOf(name string) []string {
	var names []string
	for _, e := range r.edges {
		if e.Job == name {
			names = append(names, e.Upstream)
		}
	}
	return names
}

func (r *run) dependant(j *job) lifecycle.Dependant {
	d := lifecycle.Dependant{Job: j.state}
	for _, e := range r.edges {
		if upstream := r.byName[e.Upstream]; e.Job == j.state.Name && upstream != nil {
			d.Edges = append(d.Edges, lifecycle.Edge{Upstream: e.Upstream, Status: upstream.state.Status, RunOn: e.RunOn})
		}
	}
	return d
}

// apply takes decisions over, and then decides what the ends of jobs in them mean: for those around them one after the
// other, and at last for the run.
func (r *run) apply(outcomes ...lifecycle.Outcome) {
	now := time.Now().UnixMilli()
	var ended []lifecycle.Job
	for _, o := range outcomes {
		r.take(o)
		ended = append(ended, o.Ended...)
	}
	for ; len(ended) > 0; ended = ended[1:] {
		j := r.byID(ended[0].ID)
		if j == nil {
			continue
		}
		follow := lifecycle.Ended(r.aftermath(j), now)
		r.take(follow)
		ended = append(ended, follow.Ended...)
	}
	summaries := make([]lifecycle.Summary, len(r.jobs))
	for i, j := range r.jobs {
		summaries[i] = lifecycle.Summary{Name: j.state.Name, Status: j.state.Status}
	}
	r.take(lifecycle.Settle(r.state, summaries, r.drift, now))
}

func (r *run) aftermath(ended *job) lifecycle.Aftermath {
	a := lifecycle.Aftermath{Run: r.state, Job: ended.state, Failure: ended.failure}
	for _, j := range r.jobs {
		switch {
		case j.state.Status.Terminal():
		case j.plan.Deferred && ended.plan.Target != "" && j.plan.BaseName == ended.plan.Target:
			place := j.state
			a.Place = &place
		}
		if slices.Contains(r.needsOf(j.state.Name), ended.state.Name) {
			a.Dependants = append(a.Dependants, r.dependant(j))
		}
		if ended.state.Wave.MaxParallel > 0 && !j.state.Status.Terminal() && j.plan.BaseName == ended.plan.BaseName {
			a.Siblings = append(a.Siblings, j.state)
		}
	}
	if a.Failure == nil && ended.view.ErrorMessage != nil {
		a.Failure = &ci.InitFailure{Category: ci.InitDynamicEval, Message: *ended.view.ErrorMessage}
	}
	return a
}

// take changes what one decision says.
func (r *run) take(o lifecycle.Outcome) {
	if o.Run != nil {
		r.takeRun(*o.Run)
	}
	for _, c := range o.Jobs {
		if j := r.byID(c.JobID); j != nil {
			r.takeJob(j, c)
		}
	}
	for _, c := range o.Rows {
		if j := r.byID(c.JobID); j != nil {
			r.takeRow(j, c.Op)
		}
	}
	for _, e := range o.Effects {
		c, ok := e.(lifecycle.CancelJob)
		if j := r.byID(c.JobID); ok && j != nil && j.worker != nil {
			j.worker.cancel(c.Force)
		}
	}
	r.changed = true
}

func (r *run) takeRun(c lifecycle.RunChange) {
	if c.Status != "" {
		r.state.Status = c.Status
	}
	if c.StartedAt != 0 {
		r.state.StartedAt, r.started = c.StartedAt, c.StartedAt
	}
	if c.CompletedAt != 0 {
		r.ended = c.CompletedAt
	}
	if c.Reason != nil {
		r.state.Reason = c.Reason
	}
	if c.ClearReason {
		r.state.Reason = nil
	}
	if c.InitFailure != nil {
		r.failure = c.InitFailure
	}
	if c.Cancel != nil {
		r.state.Cancel = c.Cancel
	}
}

func (r *run) takeJob(j *job, c lifecycle.JobChange) {
	s, v := &j.state, &j.view
	if c.Status != "" {
		s.Status, v.Status = c.Status, c.Status
	}
	if c.Reason != nil || s.Status == ci.JobRunning || s.Status == ci.JobSuccess {
		v.Reason = c.Reason
	}
	if c.Error != "" {
		text := r.mask.String(c.Error)
		v.ErrorMessage = &text
	}
	if c.InitFailure != nil {
		j.failure, v.InitFailure = c.InitFailure, c.InitFailure
	}
	if c.StartedAt != 0 {
		s.StartedAt, v.StartedAt = c.StartedAt, adminwire.At(c.StartedAt)
	}
	if c.CompletedAt != 0 {
		v.CompletedAt = adminwire.At(c.CompletedAt)
		if s.StartedAt != 0 {
			took := c.CompletedAt - s.StartedAt
			v.DurationMs = &took
		}
		if s.Status.FailsRun() && r.failed == "" {
			r.failed = s.Name
		}
	}
	if c.Outputs != nil {
		j.outputs, v.Outputs = c.Outputs, json.RawMessage(r.mask.String(string(c.Outputs))) // jobs read them, people look on
	}
	s.NeedsSatisfied = s.NeedsSatisfied || c.Satisfied
	s.Wave.Gated = s.Wave.Gated && !c.Release
	s.Deferred = s.Deferred && !c.Complete
}

func (r *run) takeRow(j *job, op lifecycle.RowOp) {
	switch op {
	case lifecycle.RowEnqueue:
		j.state.Row = &lifecycle.Row{Status: ci.QueuePending}
		r.queue = append(r.queue, j)
		turn := ci.NewReason(ci.ReasonQueued, fmt.Sprintf("waits for its turn: --jobs lets %d run at a time", r.o.Jobs), nil)
		j.view.Reason = &turn
		return
	case lifecycle.RowStart:
		j.state.Row.Started = true
		return
	case lifecycle.RowComplete:
		j.state.Row.Status = ci.QueueCompleted
	case lifecycle.RowFail, lifecycle.RowWithdraw:
		j.state.Row.Status = ci.QueueFailed
	case lifecycle.RowExpire:
		j.state.Row.Status = ci.QueueExpired
	}
	r.queue = slices.DeleteFunc(r.queue, func(queued *job) bool { return queued == j })
}

// dispatch starts jobs while there is room.
func (r *run) dispatch(ctx context.Context) {
	for len(r.queue) > 0 && r.running() < r.o.Jobs {
		j := r.queue[0]
		r.queue = r.queue[1:]
		if r.failed != "" && !r.o.KeepGoing && !r.askedForFailure(j) {
			r.leaveOut(j)
			continue
		}
		j.state.Row.Status, j.state.Row.AgentID = ci.QueueDispatched, agentID
		r.apply(lifecycle.Started(r.state, j.state, agentID, time.Now().UnixMilli()))
		order, err := r.order(j)
		if err != nil {
			r.finish(j, lifecycle.Report{Agent: agentID, Status: ci.JobFailed, Error: err.Error()})
			continue
		}
		r.start(ctx, j, order)
	}
}

func (r *run) running() (n int) {
	for _, j := range r.jobs {
		if j.worker != nil {
			n++
		}
	}
	return n
}

// askedForFailure tells that a job is there for the case that another did not end well.
func (r *run) askedForFailure(j *job) bool {
	for _, name := range r.needsOf(j.state.Name) {
		if upstream := r.byName[name]; upstream != nil && upstream.state.Status != ci.JobSuccess {
			return true
		}
	}
	return false
}

// leaveOut cancels a job that is not begun any more.
func (r *run) leaveOut(j *job) {
	message := fmt.Sprintf("not begun, since %s failed (--keep-going begins such jobs)", r.failed)
	reason := ci.NewReason(ci.ReasonCancelled, message, nil)
	ended := j.state
	ended.Status = ci.JobCancelled
	r.apply(lifecycle.Outcome{
		Rows:  []lifecycle.RowChange{{JobID: j.state.ID, Op: lifecycle.RowExpire, Reason: ci.ReasonCancelled}},
		Jobs:  []lifecycle.JobChange{{JobID: j.state.ID, Status: ci.JobCancelled, Reason: &reason, Error: message, CompletedAt: time.Now().UnixMilli()}},
		Ended: []lifecycle.Job{ended},
	})
}

// cancel decides about the wish that the run ends.
func (r *run) cancel(wish lifecycle.Cancel) {
	var open []lifecycle.Job
	for _, j := range r.jobs {
		if !j.state.Status.Terminal() {
			open = append(open, j.state)
		}
	}
	r.apply(lifecycle.CancelRun(r.state, open, wish, time.Now().UnixMilli()))
}

// finish takes the end of a job that has run.
func (r *run) finish(j *job, report lifecycle.Report) {
	j.worker = nil
	var outcomes []lifecycle.Outcome
	if report.Status == ci.JobSuccess && j.state.Kind.Internal() && !j.state.Status.Terminal() {
		outcomes = r.grow(j, &report)
	}
	r.apply(append(outcomes, lifecycle.Finished(r.state, j.state, report, time.Now().UnixMilli()))...)
}
