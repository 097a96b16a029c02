package lifecycle

import (
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
)

// CancelRun decides about the wish that a run ends. open are its jobs that have not. Jobs that an agent took are stopped by
// it, and the run is cancelling until the last has answered; all others are cancelled at once. Asking again is harmless,
// and force may follow a polite wish.
func CancelRun(run Run, open []Job, wish Cancel, now int64) Outcome {
	if run.Status.Terminal() {
		return ignored("the run has ended")
	}
	if run.Cancel != nil {
		if run.Cancel.Forced || !wish.Forced {
			return Outcome{} // the standing wish says as much
		}
		wish.By, wish.Reason, wish.At = run.Cancel.By, run.Cancel.Reason, now
	}
	run.Cancel = &wish
	o := Outcome{Run: &RunChange{Cancel: &wish}}
	for _, job := range open {
		if !reachable(job) {
			part := cancelUnheard(run, job, true, now)
			o.Jobs, o.Rows, o.Ended = append(o.Jobs, part.Jobs...), append(o.Rows, part.Rows...), append(o.Ended, part.Ended...)
			if sent(job) {
				o.Effects = append(o.Effects, cancelFrame(run, job))
			}
			continue
		}
		reason := wish.Reason
		o.Jobs = append(o.Jobs, JobChange{JobID: job.ID, Status: ci.JobCancelling, Reason: &reason})
		o.Effects = append(o.Effects, cancelFrame(run, job))
		o.Run.Status = ci.RunCancelling
		o.Run.Reason = &reason
	}
	return o
}

// sent tells that the job was given to an agent that is connected.
func sent(job Job) bool { return job.Row != nil && job.Row.Status == ci.QueueDispatched }

// reachable tells that an agent has the job and will obey. One that has not answered the dispatch may not have got it
// yet: a cancel means nothing to it before, and its answer comes too late to begin.
func reachable(job Job) bool { return sent(job) && !job.Row.Unanswered }

// cancelHere ends a job that no agent has to be asked about. An agent that comes back with it is told that the job is
// no longer its own.
func cancelHere(run Run, job Job, now int64) Outcome {
	reason := ci.NewReason(ci.ReasonCancelled, "run cancelled", nil)
	if run.Cancel != nil {
		reason = run.Cancel.Reason
	}
	var o Outcome
	o.closeRow(job, ci.ReasonCancelled)
	o.end(job, ci.JobCancelled, &reason, now)
	return o
}

// cancelUnheard ends a job whose agent will not be heard any more. Where it may run there still, its reason names the agent
// that should have stopped it: somebody may have to look after what it left. fences is that of Departure.
func cancelUnheard(run Run, job Job, fences bool, now int64) Outcome {
	o := cancelHere(run, job, now)
	if !job.Row.active() || !job.Row.mayRun(fences) {
		return o
	}
	for i, c := range o.Jobs {
		o.Jobs[i].Reason = unconfirmed(*c.Reason, job.Row.AgentID)
		o.Jobs[i].Error = o.Jobs[i].Reason.Message
	}
	return o
}

// unconfirmed is why a job was to end, with the agent that has not said that it did.
func unconfirmed(why ci.Reason, agent string) *ci.Reason {
	details := map[string]any{}
	var known map[string]json.RawMessage
	_ = json.Unmarshal(why.Details, &known) // there may be none
	for name, value := range known {
		details[name] = value
	}
	details["agent"] = agent
	return reasonOf(why.Code, fmt.Sprintf("%s (agent %s did not confirm that it stopped)", why.Message, agent), details)
}

func cancelFrame(run Run, job Job) CancelJob {
	return CancelJob{
		AgentID: job.Row.AgentID, JobID: job.ID, Reason: run.Cancel.Reason.Message,
		Force: run.Cancel.Forced, GraceMs: job.GraceMs,
	}
}

// Patience is how long an agent may take to stop a job.
type Patience struct {
	Polite int64 // from the wish to force: the grace, the hooks, and some
	Forced int64 // from force to giving the agent up
}

// CancelOverdue decides about a cancelling run whose agents have not answered in time: first they are forced, then they
// are given up, and their jobs end here.
func CancelOverdue(run Run, open []Job, p Patience, now int64) Outcome {
	if run.Cancel == nil || run.Status.Terminal() {
		return ignored("the run is not being cancelled")
	}
	if !run.Cancel.Forced {
		if now < run.Cancel.At+p.Polite {
			return Outcome{}
		}
		wish := *run.Cancel
		wish.Forced = true
		return CancelRun(run, open, wish, now)
	}
	if now < run.Cancel.At+p.Forced {
		return Outcome{}
	}
	var o Outcome
	for _, job := range open {
		part := cancelUnheard(run, job, true, now)
		o.Jobs, o.Rows, o.Ended = append(o.Jobs, part.Jobs...), append(o.Rows, part.Rows...), append(o.Ended, part.Ended...)
	}
	return o
}

// Deadline tells whether a run has passed its own limit, counted from its start.
func Deadline(run Run, now int64) bool {
	return run.TimeoutMs > 0 && run.StartedAt > 0 && !run.Status.Terminal() && now >= run.StartedAt+run.TimeoutMs
}
