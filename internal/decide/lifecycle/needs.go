package lifecycle

import (
	"fmt"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/kit/collate"
)

// Edge is one need of a job: the job it waits for, that one's present state, and the ends that are good enough.
type Edge struct {
	Upstream string // expanded name
	Status   ci.JobStatus
	RunOn    []ci.JobStatus
}

// admits tells whether that end is good enough. Lock files from before the status unroutable existed spell "always"
// without it, so an edge that admits timed_out_stale admits it too.
func (e Edge) admits() bool {
	if slices.Contains(e.RunOn, e.Status) {
		return true
	}
	return e.Status == ci.JobUnroutable && slices.Contains(e.RunOn, ci.JobTimedOutStale)
}

// Verdict is what a job's needs say.
type Verdict int

// The verdicts.
const (
	Wait  Verdict = iota
	Ready         // every need is met
	Unmet         // some need can no longer be met
)

// Needs judges a job's needs, in the order in which they were written. One upstream that ended otherwise than asked for
// decides at once, without waiting for the others; the first such edge is named.
func Needs(edges []Edge) (Verdict, Edge) {
	verdict := Ready
	for _, e := range edges {
		switch {
		case !e.Status.Terminal():
			verdict = Wait
		case !e.admits():
			return Unmet, e
		}
	}
	return verdict, Edge{}
}

// Dependant is a job that waits for the one that ended.
type Dependant struct {
	Job   Job
	Edges []Edge
}

// Aftermath is the slice that Ended sees: the job that ended, those that wait for it, and its fan-out when that is
// limited in width (the ended job among them).
type Aftermath struct {
	Run        Run
	Job        Job
	Dependants []Dependant
	Siblings   []Job
	Place      *Job            // of an init job: the job that it works for
	Failure    *ci.InitFailure // of a job that works for others: what it said of its failure
}

// Ended decides what the end of a job means for the jobs around it. Dependants of a cancelled run are not started any
// more; CancelRun has ended them.
func Ended(a Aftermath, now int64) Outcome {
	var o Outcome
	switch {
	case a.Job.Status == ci.JobSuccess:
	case a.Job.Kind == ci.KindInit:
		o.failPlace(a, now)
	case a.Job.Kind == ci.KindBuild:
		o.failBuild(a, now)
	}
	for _, d := range a.Dependants {
		if !endsIn(o, d.Job.ID) {
			advance(&o, d, a.cause(), now)
		}
	}
	turnWave(&o, a, now)
	return o
}

// Stuck tells that nothing will ever judge the job's needs again, though it waits for them: all that it needs has ended.
// It must never be so; whoever finds it lets Recompute judge.
func Stuck(d Dependant) bool {
	if d.Job.Status != ci.JobPending || d.Job.NeedsSatisfied {
		return false
	}
	verdict, _ := Needs(d.Edges)
	return verdict != Wait
}

// Recompute judges jobs whose needs were drawn anew, with all of their edges.
func Recompute(jobs []Dependant, now int64) Outcome {
	var o Outcome
	for _, d := range jobs {
		advance(&o, d, upstreamCause{}, now)
	}
	return o
}

// Completed decides about a place that an agent has completed without multiplying it.
func Completed(job Job) Outcome {
	if job.Status != ci.JobPending || !job.Deferred {
		return ignored("the job does not wait for an agent's result")
	}
	var o Outcome
	job.Deferred = false
	if c := (JobChange{JobID: job.ID, Complete: true}); job.NeedsSatisfied {
		o.admit(job, c)
	} else {
		o.Jobs = append(o.Jobs, c)
	}
	return o
}

// failPlace ends the job for which an init job worked that did not succeed.
func (o *Outcome) failPlace(a Aftermath, now int64) {
	if a.Place == nil || a.Place.Status.Terminal() {
		return
	}
	f := ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval, JobName: ci.CutName(a.Place.Name),
		Message: ci.CutText(fmt.Sprintf("%s ended as %s", a.Job.Name, a.Job.Status))}
	if a.Failure != nil {
		f.Category, f.Message = a.Failure.Category, a.Failure.Message
	}
	reason := reasonOf(ci.ReasonInitFailure, f.Message, map[string]string{"category": f.Category, "job": a.Job.Name})
	o.end(*a.Place, ci.JobFailed, reason, now).InitFailure = &f
}

// failBuild ends what waited for source and dependencies that will not come, and gives the run the reason.
func (o *Outcome) failBuild(a Aftermath, now int64) {
	if a.Run.Cancel != nil {
		return // the jobs are being cancelled
	}
	message := fmt.Sprintf("%s ended as %s", a.Job.Name, a.Job.Status)
	if a.Failure != nil {
		message = a.Failure.Message
	}
	f := ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitBuildCoordination, Message: ci.CutText(message)}
	details := map[string]string{"category": f.Category, "job": a.Job.Name}
	for _, d := range a.Dependants {
		own := f
		own.Scope, own.JobName = ci.ScopeJob, ci.CutName(d.Job.Name)
		o.end(d.Job, ci.JobFailed, reasonOf(ci.ReasonInitFailure, f.Message, details), now).InitFailure = &own
	}
	o.Run = &RunChange{InitFailure: &f, Reason: reasonOf(ci.ReasonInitFailure, f.Message, details)}
}

// upstreamCause is what people are told of the end of an upstream beside its name. The zero value is nothing.
type upstreamCause struct{ upstream, text string }

// cause is why a host was not brought up. Who looks at the job that was to run there has never seen the other.
func (a Aftermath) cause() upstreamCause {
	if a.Job.Kind != ci.KindBringup || a.Failure == nil {
		return upstreamCause{}
	}
	return upstreamCause{a.Job.Name, ": " + a.Failure.Message}
}

// advance starts or skips one dependant.
func advance(o *Outcome, d Dependant, cause upstreamCause, now int64) {
	job := d.Job
	if job.Status != ci.JobPending || job.NeedsSatisfied {
		return // decided before
	}
	switch verdict, edge := Needs(d.Edges); verdict {
	case Unmet:
		message := fmt.Sprintf("upstream_unmet: %s (%s)", edge.Upstream, edge.Status)
		if edge.Upstream == cause.upstream {
			message += cause.text
		}
		o.end(job, ci.JobSkipped, reasonOf(ci.ReasonUpstreamUnmet, message,
			map[string]string{"upstream": edge.Upstream, "status": string(edge.Status)}), now)
	case Ready:
		o.admit(job, JobChange{JobID: job.ID, Satisfied: true})
	}
}

func queuedReason() *ci.Reason {
	return reasonOf(ci.ReasonQueued, "waiting in the queue for an agent", nil)
}

func waveReason(w Wave) *ci.Reason {
	return reasonOf(ci.ReasonWave, fmt.Sprintf("waits for a place: %d of its fan-out run at a time", w.MaxParallel), nil)
}

// turnWave moves a limited fan-out on after one of its children ended: under fail-fast an end other than success skips
// the children still held; else the place that became free goes to the held child with the lowest label.
func turnWave(o *Outcome, a Aftermath, now int64) {
	w := a.Job.Wave
	if w.MaxParallel == 0 {
		return
	}
	var held []Job
	inFlight := 0
	for _, s := range a.Siblings {
		switch {
		case s.ID == a.Job.ID || s.Status.Terminal() || endsIn(*o, s.ID):
		case s.Wave.Gated:
			held = append(held, s)
		default:
			inFlight++
		}
	}
	slices.SortFunc(held, func(x, y Job) int { return collate.Compare(x.Wave.Label, y.Wave.Label) })
	if w.FailFast && a.Job.Status != ci.JobSuccess {
		for _, s := range held {
			o.end(s, ci.JobSkipped, reasonOf(ci.ReasonFailFast, "fan-out halted by failFast", nil), now)
		}
		return
	}
	for _, s := range held {
		if inFlight >= w.MaxParallel {
			return
		}
		release(o, s)
		inFlight++
	}
}

func release(o *Outcome, s Job) {
	s.Wave.Gated = false
	if c := (JobChange{JobID: s.ID, Release: true}); s.NeedsSatisfied {
		o.admit(s, c)
	} else {
		o.Jobs = append(o.Jobs, c)
	}
}

func endsIn(o Outcome, id string) bool {
	return slices.ContainsFunc(o.Ended, func(j Job) bool { return j.ID == id })
}
