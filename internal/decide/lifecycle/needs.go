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
}

// Ended decides what the end of a job means for the jobs around it. Dependants of a cancelled run are not started any
// more; CancelRun has ended them.
func Ended(a Aftermath, now int64) Outcome {
	var o Outcome
	for _, d := range a.Dependants {
		advance(&o, d, now)
	}
	turnWave(&o, a, now)
	return o
}

// advance starts or skips one dependant.
func advance(o *Outcome, d Dependant, now int64) {
	job := d.Job
	if job.Status != ci.JobPending || job.NeedsSatisfied {
		return // decided before
	}
	switch verdict, edge := Needs(d.Edges); verdict {
	case Unmet:
		message := fmt.Sprintf("upstream_unmet: %s (%s)", edge.Upstream, edge.Status)
		o.end(job, ci.JobSkipped, reasonOf(ci.ReasonUpstreamUnmet, message,
			map[string]string{"upstream": edge.Upstream, "status": string(edge.Status)}), now)
	case Ready:
		c := JobChange{JobID: job.ID, Satisfied: true}
		if job.Wave.Gated {
			c.Reason = waveReason(job.Wave)
		} else {
			o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowEnqueue})
			c.Reason = queuedReason()
		}
		o.Jobs = append(o.Jobs, c)
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
	c := JobChange{JobID: s.ID, Release: true}
	if s.NeedsSatisfied {
		o.Rows = append(o.Rows, RowChange{JobID: s.ID, Op: RowEnqueue})
		c.Reason = queuedReason()
	}
	o.Jobs = append(o.Jobs, c)
}

func endsIn(o Outcome, id string) bool { return slices.Contains(o.Ended, id) }
