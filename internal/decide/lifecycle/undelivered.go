package lifecycle

import (
	"fmt"

	"kici/internal/core/ci"
)

// Undelivered decides about a dispatch that did not lead to a start: refused, unanswered, or its agent gone. The job is
// offered again, up to the limit of attempts. where ends the sentence that people read: "agent rejected dispatch (busy)".
func Undelivered(run Run, job Job, agent, where string, now int64) Outcome {
	if job.Status.Terminal() || !job.Row.heldBy(agent) {
		return ignored("the job has ended or is with another agent")
	}
	if run.Cancel != nil || job.Status == ci.JobCancelling {
		return cancelHere(run, job, now)
	}
	attempts := job.Row.Attempts + 1
	if attempts < ci.MaxDispatchAttempts {
		return Outcome{
			Rows: []RowChange{{JobID: job.ID, Op: RowRequeue, Reason: where}},
			Jobs: []JobChange{{JobID: job.ID, Status: ci.JobPending, Reason: reasonOf(ci.ReasonRequeued,
				fmt.Sprintf("offered again after attempt %d of %d: %s", attempts, ci.MaxDispatchAttempts, where),
				map[string]any{"attempts": attempts, "agent": agent})}},
		}
	}
	var o Outcome
	o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowFail, Reason: where})
	message := fmt.Sprintf("Job failed: re-dispatch attempts exhausted after %d attempts (%s)", attempts, where)
	o.end(job, ci.JobFailed, reasonOf(ci.ReasonAttempts, message, map[string]any{"attempts": attempts, "agent": agent}), now)
	return o
}

// OutcomeDeferred is how the delivery ends of a dispatch that its node could not make. It does not count as one that came back.
const OutcomeDeferred = "dispatch deferred"

// Deferred decides about a dispatch that its node could not make, for a reason that may be over in a moment. No agent has
// heard of it, so it costs no attempt and nobody their connection. claimedAt tells it from other deliveries of the job.
func Deferred(run Run, job Job, agent string, claimedAt, now int64) Outcome {
	row := job.Row
	if job.Status.Terminal() || !row.heldBy(agent) || row.Status != ci.QueueDispatched || row.Started || !row.Unanswered || row.ClaimedAt != claimedAt {
		return ignored("the job is no longer as it was given out")
	}
	if run.Cancel != nil || job.Status == ci.JobCancelling {
		return cancelHere(run, job, now)
	}
	return Outcome{
		Rows: []RowChange{{JobID: job.ID, Op: RowRelease, Reason: OutcomeDeferred}},
		Jobs: []JobChange{{JobID: job.ID, Status: ci.JobPending, Reason: reasonOf(ci.ReasonDeferred,
			"what its agent needs could not be read just now, the server's log says why; it is offered again", map[string]any{"agent": agent})}},
	}
}

// ackExpired ends the sentence about a job whose dispatch was never answered.
const ackExpired = "dispatch ack timeout"

// dropTime is how long the end of a connection may take, milliseconds.
const dropTime = 2000

// AckExpired decides about a dispatch that nobody answered in time. Its agent is told to stop and dropped, and only once
// that has had its time is the job offered again: an agent that is still there would get it once more.
func AckExpired(run Run, job Job, agent string, now int64) Outcome {
	if job.Status.Terminal() || !job.Row.heldBy(agent) {
		return ignored("the job has ended or is with another agent")
	}
	o := recovering(job, agent, now+dropTime)
	if run.Cancel != nil || job.Status == ci.JobCancelling {
		o = cancelHere(run, job, now)
	}
	o.Effects = append(o.Effects,
		CancelJob{AgentID: agent, JobID: job.ID, Reason: ackExpired, Force: true},
		DropAgent{AgentID: agent, Reason: ackExpired})
	return o
}
