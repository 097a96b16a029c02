package lifecycle

import (
	"slices"

	"kici/internal/core/ci"
)

// Held puts a hold on a job that has not begun.
func Held(job Job, why ci.Reason) Outcome {
	if job.Status != ci.JobPending || job.Row != nil && !job.Row.Status.Terminal() {
		return ignored("the job is beyond its gates")
	}
	return Outcome{Jobs: []JobChange{{JobID: job.ID, Hold: 1, Reason: &why}}}
}

// HoldReleased takes a hold from a job. It is queued when nothing else keeps it.
func HoldReleased(job Job) Outcome {
	if job.Status != ci.JobPending || job.Holds == 0 {
		return ignored("the job is not held")
	}
	var o Outcome
	job.Holds--
	job.HoldReason = nil
	if c := (JobChange{JobID: job.ID, Unhold: 1}); job.NeedsSatisfied {
		o.admit(job, c)
	} else {
		o.Jobs = append(o.Jobs, c)
	}
	return o
}

// HoldRefused ends a job whose hold was rejected or ran out.
func HoldRefused(job Job, why ci.Reason, now int64) Outcome {
	if job.Status != ci.JobPending || job.Holds == 0 {
		return ignored("the job is not held")
	}
	var o Outcome
	f := ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitEnvironmentRules, Message: ci.CutText(why.Message), JobName: ci.CutName(job.Name)}
	o.end(job, ci.JobFailed, &why, now).InitFailure = &f
	return o
}

// TurnBack takes a job that was about to be queued from an outcome: its gates hold or refuse it.
func (o *Outcome) TurnBack(jobID string) {
	o.Rows = slices.DeleteFunc(o.Rows, func(r RowChange) bool { return r.JobID == jobID && r.Op == RowEnqueue })
}

// Keep lets a job that is turned back wait for a hold.
func (o *Outcome) Keep(jobID string, why ci.Reason) {
	o.TurnBack(jobID)
	for i := range o.Jobs {
		if c := &o.Jobs[i]; c.JobID == jobID && c.CompletedAt == 0 {
			c.Hold++
			c.Reason = &why
		}
	}
}

// Refuse ends a job that is turned back.
func (o *Outcome) Refuse(jobID string, f ci.InitFailure, now int64) {
	o.TurnBack(jobID)
	reason := reasonOf(ci.ReasonInitFailure, f.Message, map[string]string{"category": f.Category})
	o.end(Job{ID: jobID}, ci.JobFailed, reason, now).InitFailure = &f
}

// HeldAnew tells jobs whose hold was released that the next one keeps them.
func HeldAnew(held []Job, why ci.Reason) (o Outcome) {
	for _, job := range held {
		o.Jobs = append(o.Jobs, JobChange{JobID: job.ID, Reason: &why})
	}
	return o
}

// FailHeld ends a run that was held as a whole, with all its open jobs, of which none was ever queued.
func FailHeld(open []Job, f ci.InitFailure, now int64) Outcome {
	reason := reasonOf(ci.ReasonInitFailure, f.Message, map[string]string{"category": f.Category})
	o := Outcome{Run: &RunChange{InitFailure: &f, Reason: reason}}
	for _, job := range open {
		o.end(job, ci.JobFailed, reason, now)
	}
	return o
}
