package lifecycle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"kici/internal/core/ci"
)

// Acked decides about an agent's job.ack. Fenced tells that the job is not this agent's any more: it must not start. A
// repeated ack changes nothing. A row is with an agent only while its job is open. An agent that was taken for lost, since
// its node was, and answers all the same has come back with the job.
func Acked(jobID string, row *Row, agent string) (change *RowChange, fenced bool) {
	switch {
	case !row.heldBy(agent):
		return nil, true
	case row.Status == ci.QueueRecovering && row.Unanswered:
		return &RowChange{JobID: jobID, Op: RowReclaim}, false
	case row.Status != ci.QueueDispatched || !row.Unanswered:
		return nil, false
	}
	return &RowChange{JobID: jobID, Op: RowAck}, false
}

// Started decides about the report that a job runs.
func Started(run Run, job Job, agent string, now int64) Outcome {
	switch {
	case job.Status.Terminal():
		return ignored("the job has ended")
	case !job.Row.heldBy(agent):
		return ignored("the job is with another agent")
	}
	op := RowStart
	if job.Row.Status == ci.QueueRecovering {
		op = RowResume
	}
	o := Outcome{Rows: []RowChange{{JobID: job.ID, Op: op}}}
	o.begin(run, job, agent, now)
	return o
}

// begin is that a job runs, with what it means for its run.
func (o *Outcome) begin(run Run, job Job, agent string, now int64) {
	change := JobChange{JobID: job.ID, AgentID: agent, Heartbeat: now}
	if job.StartedAt == 0 {
		change.StartedAt = now
	}
	if job.Status != ci.JobCancelling { // a job that is being cancelled stays so until it has ended
		change.Status = ci.JobRunning
	}
	o.Jobs = append(o.Jobs, change)
	if run.Status == ci.RunPending {
		o.Run = &RunChange{Status: ci.RunRunning, StartedAt: now}
	}
}

// Cancelling decides about the report that an agent is stopping a job.
func Cancelling(job Job, agent string) Outcome {
	if job.Status.Terminal() || !job.Row.heldBy(agent) {
		return ignored("the job has ended or is with another agent")
	}
	return Outcome{Jobs: []JobChange{{JobID: job.ID, AgentID: agent, Status: ci.JobCancelling}}}
}

// Report is what an agent says at the end of a job.
type Report struct {
	Agent       string
	Status      ci.JobStatus // success, failed or cancelled
	Error       string
	InitFailure *ci.InitFailure
	Outputs     json.RawMessage // {step: {key: value}}
	Steps       []StepResult
	Dropped     []Job // jobs of the same generator that it says are not made any more
	// BeganAt is when the job began, of an agent that tells of that together with the end; 0 when it does not.
	BeganAt int64
}

// jobTimeoutPrefix begins the error of a job that passed its own limit; agents have written it so ever since.
const jobTimeoutPrefix = "job_timeout"

// Accepts tells whether a terminal report will end the job, so that what comes with it is worth reading.
func Accepts(job Job, r Report) bool { return !job.Status.Terminal() && job.Row.heldBy(r.Agent) }

// Finished decides about an agent's terminal report. The same report again changes nothing, and neither does any report
// about a job that ended otherwise.
func Finished(run Run, job Job, r Report, now int64) Outcome {
	switch {
	case job.Status == r.Status:
		return Outcome{} // a replay
	case job.Status.Terminal():
		return ignored(fmt.Sprintf("the job has ended as %s already", job.Status))
	case !job.Row.heldBy(r.Agent):
		return ignored("the job is with another agent")
	}
	var o Outcome
	o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowComplete, Reason: string(r.Status)})
	told := job.StartedAt == 0 && r.BeganAt != 0
	if told { // not before the agent had it, whatever its clock says
		job.StartedAt = min(max(r.BeganAt, job.Row.ClaimedAt), now)
	}
	c := o.end(job, r.Status, finishReason(run, r), now)
	// A job that failed has the outputs of the steps before, which its dependants on failure may read.
	c.AgentID, c.Name, c.Steps, c.InitFailure, c.Outputs = r.Agent, job.Name, r.Steps, r.InitFailure, r.Outputs
	if r.Error != "" {
		c.Error = ci.CutText(r.Error)
	}
	for _, d := range r.Dropped {
		o.drop(run, d, job, now)
	}
	if told {
		c.StartedAt = job.StartedAt
	}
	if run.Status == ci.RunPending { // the report that it runs came with its end, was lost or never sent
		o.Run = &RunChange{Status: ci.RunRunning, StartedAt: cmp.Or(c.StartedAt, now)}
	}
	return o
}

// drop ends a generated job that another of its generator no longer found when its agent made them again.
func (o *Outcome) drop(run Run, d, by Job, now int64) {
	if d.Status.Terminal() || d.ID == by.ID {
		return
	}
	const message = "determinism drift: job dropped by re-evaluation on executing agent"
	if d.Row.active() {
		o.Effects = append(o.Effects, CancelJob{AgentID: d.Row.AgentID, JobID: d.ID, Reason: message, Force: true})
	}
	o.closeRow(d, ci.ReasonDriftDropped)
	o.end(d, ci.JobDriftDropped, reasonOf(ci.ReasonDriftDropped, message, map[string]string{"by": by.Name}), now)
}

// closeRow ends whatever queue row a job has.
func (o *Outcome) closeRow(job Job, why string) {
	switch {
	case job.Row == nil || job.Row.Status.Terminal():
	case job.Row.Status == ci.QueuePending:
		o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowExpire, Reason: why})
	default:
		o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowFail, Reason: why})
	}
}

// finishReason says in words what the report says by its fields.
func finishReason(run Run, r Report) *ci.Reason {
	switch r.Status {
	case ci.JobSuccess:
		return nil
	case ci.JobCancelled:
		if run.Cancel != nil {
			reason := run.Cancel.Reason
			return &reason
		}
		return reasonOf(ci.ReasonCancelled, textOr(r.Error, "cancelled on the agent"), nil)
	}
	if r.InitFailure != nil {
		return reasonOf(ci.ReasonInitFailure, r.InitFailure.Message, map[string]string{"category": r.InitFailure.Category})
	}
	if strings.HasPrefix(r.Error, jobTimeoutPrefix) {
		return reasonOf(ci.ReasonJobTimeout, r.Error, nil)
	}
	for _, s := range r.Steps {
		if s.Status == ci.StepFailed {
			message := fmt.Sprintf("step '%s' failed", s.Name)
			if s.Error != "" {
				message += ": " + s.Error
			}
			return reasonOf(ci.ReasonStepFailed, message, map[string]string{"step": s.Name})
		}
	}
	return reasonOf(ci.ReasonJobFailed, textOr(r.Error, "the agent reported the job as failed"), nil)
}

func textOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Departure is how an agent's connection ended, as it concerns one job that the database has with it.
type Departure struct {
	Agent     string
	SingleUse bool  // it never comes back
	Left      bool  // it closed the connection in order, so what it had to say before has been heard
	Fences    bool  // it starts nothing before its answer to the dispatch was acknowledged, and may at once after that
	Reboots   bool  // its host was about to reboot
	Deadline  int64 // until when the job waits for it
}

// mayRun tells that steps of the job may have run. What an agent without a fence has answered and not reported as running
// counts as not begun.
func (r *Row) mayRun(fences bool) bool { return r.Started || fences && !r.Unanswered }

// stopping tells that the job, or its run, is being cancelled.
func (j Job) stopping(run Run) bool { return run.Cancel != nil || j.Status == ci.JobCancelling }

// AgentGone decides about a job whose agent lost its connection. A single-use agent never comes back; for another the
// job waits until the deadline.
func AgentGone(run Run, job Job, d Departure, now int64) Outcome {
	agent := d.Agent
	if job.Status.Terminal() || !job.Row.heldBy(agent) {
		return ignored("the job has ended or is with another agent")
	}
	if d.Reboots && !d.SingleUse {
		if o, decided := rebooted(run, job, agent, d.Fences, now); decided {
			return o
		}
	}
	switch {
	case job.stopping(run) && (d.SingleUse || !job.Row.mayRun(d.Fences) || run.Cancel == nil || run.Cancel.Forced):
		return cancelUnheard(run, job, d.Fences, now)
	case job.stopping(run) && job.Row.Status != ci.QueueRecovering:
		return recovering(job, agent, d.Deadline) // it cleans up, connected or not
	case d.SingleUse && !job.Row.mayRun(d.Fences):
		return Undelivered(run, job, agent, "scaler-managed agent disconnected before job start", now)
	case d.Left && !job.Row.mayRun(d.Fences):
		return Undelivered(run, job, agent, "agent left before job start", now)
	case d.SingleUse:
		const message = "Job failed: scaler-managed agent disconnected mid-execution (ephemeral agents are destroyed on disconnect)"
		return lose(job, agent, message, now)
	case job.Row.Status == ci.QueueRecovering:
		return Outcome{} // the first loss set the deadline
	}
	return recovering(job, agent, d.Deadline)
}

func recovering(job Job, agent string, deadline int64) Outcome {
	reason := reasonOf(ci.ReasonRecovering, fmt.Sprintf("agent %s lost its connection; waiting for it to come back", agent),
		map[string]any{"agent": agent, "until": deadline})
	c := JobChange{JobID: job.ID, Reason: reason}
	if job.Status == ci.JobRunning {
		c.Status = ci.JobRecovering
	}
	return Outcome{
		Rows: []RowChange{{JobID: job.ID, Op: RowRecover, Until: deadline}},
		Jobs: []JobChange{c},
	}
}

// RecoveryExpired decides about a job whose agent did not come back in time. Only a job whose dispatch was never
// answered is offered again: from its answer on an agent may run it, cut off as it is, and no job runs twice at once. reboots
// tells that the agent's host was about to reboot, which nobody saw as long as the server itself was away.
func RecoveryExpired(run Run, job Job, reboots bool, now int64) Outcome {
	if job.Status.Terminal() || job.Row == nil || job.Row.Status != ci.QueueRecovering {
		return ignored("the job is not recovering")
	}
	if reboots {
		if o, decided := rebooted(run, job, job.Row.AgentID, true, now); decided {
			return o
		}
	}
	switch {
	case run.Cancel != nil:
		return cancelUnheard(run, job, true, now)
	case !job.Row.Started && job.Row.Unanswered:
		return Undelivered(run, job, job.Row.AgentID, ackExpired, now)
	}
	return lose(job, job.Row.AgentID, "Job failed: agent disconnected and did not reconnect within the recovery window", now)
}

func lose(job Job, agent, message string, now int64) Outcome {
	var o Outcome
	o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowFail, Reason: ci.ReasonAgentLost})
	o.end(job, ci.JobFailed, reasonOf(ci.ReasonAgentLost, message, map[string]string{"agent": agent}), now)
	return o
}

// Return is an agent's registration, as it concerns one job that the database has with it.
type Return struct {
	Agent    string
	Listed   bool  // the agent says that it still holds the job
	Fresh    bool  // the connection is new, so nothing sent before is still on its way
	Truthful bool  // the agent keeps what it says until it is acknowledged, so a job that it does not list is lost
	Fences   bool  // see Departure
	Rebooted bool  // its host was about to reboot when it was seen last
	Deadline int64 // of the recovery, should one begin
}

// Returned decides about one job of an agent that registers.
func Returned(run Run, job Job, r Return, now int64) Outcome {
	agent := r.Agent
	if job.Status.Terminal() || !job.Row.heldBy(agent) {
		return ignored("the job has ended or is with another agent")
	}
	switch {
	case r.Listed:
		return reclaim(run, job, r, now)
	case !r.Fresh:
		return Outcome{} // the dispatch may be on its way; its deadline decides
	}
	if r.Rebooted {
		if o, decided := rebooted(run, job, agent, r.Fences, now); decided {
			return o
		}
	}
	switch {
	case run.Cancel != nil || job.Status == ci.JobCancelling:
		return cancelHere(run, job, now) // the agent no longer has it: there is nothing left to stop
	case !job.Row.mayRun(r.Fences):
		return Undelivered(run, job, agent, "agent came back without the job", now)
	case r.Truthful:
		return lose(job, agent, fmt.Sprintf("Job failed: agent %s came back without the job, so it was lost while it ran", agent), now)
	case job.Row.Status == ci.QueueRecovering:
		return Outcome{} // started: its end may follow on this connection, and the deadline stands
	}
	return recovering(job, agent, r.Deadline)
}

// reclaim gives a job back to its agent. One that keeps nothing for later may have said that it began while nobody was there
// to hear it, and says so no more; any other says when it begins.
func reclaim(run Run, job Job, r Return, now int64) Outcome {
	o := Outcome{Rows: []RowChange{{JobID: job.ID, Op: RowReclaim}}}
	if job.Status == ci.JobRecovering || !r.Truthful {
		o.begin(run, job, r.Agent, now)
	} else {
		o.Jobs = append(o.Jobs, JobChange{JobID: job.ID, AgentID: r.Agent, Heartbeat: now})
	}
	if run.Cancel != nil { // the wish to cancel may have been lost with the connection
		o.Effects = append(o.Effects, cancelFrame(run, job))
	}
	return o
}

// holder is who has the row, else the agent that is known of the job.
func (r *Row) holder(known string) string {
	if r.active() {
		return r.AgentID
	}
	return known
}

// Stale decides about a job that gave no sign of life for silence milliseconds: one that runs, or one that its agent took
// and never began.
func Stale(job Job, silence, now int64) Outcome {
	begun := job.Status == ci.JobRunning
	if !begun && !(job.Status == ci.JobPending && job.Row != nil && job.Row.Status == ci.QueueDispatched && !job.Row.Unanswered) {
		return ignored("the job is with no agent that would give a sign of life")
	}
	var o Outcome
	agent := job.Row.holder(job.AgentID)
	o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowFail, Reason: ci.ReasonStale})
	message := fmt.Sprintf("No heartbeat received for %ds", silence/1000)
	if !begun {
		message = fmt.Sprintf("No heartbeat -- the agent took the job %ds ago and never began it", silence/1000)
	}
	o.end(job, ci.JobTimedOutStale, reasonOf(ci.ReasonStale, message, map[string]string{"agent": agent}), now)
	if agent != "" {
		o.Effects = append(o.Effects,
			CancelJob{AgentID: agent, JobID: job.ID, Reason: message, Force: true},
			DropAgent{AgentID: agent, Reason: "job without heartbeat"})
	}
	return o
}

// Overran decides about a job that runs although its own limit, in milliseconds, and all that an agent may need to end it then
// are over: its agent keeps no limits, or hangs and shows signs of life all the same.
func Overran(job Job, limit, now int64) Outcome {
	if job.Status != ci.JobRunning {
		return ignored("the job does not run")
	}
	var o Outcome
	agent := job.Row.holder(job.AgentID)
	message := fmt.Sprintf("job_timeout: the job ran past its limit of %dms, and its agent did not end it", limit)
	o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowFail, Reason: ci.ReasonJobTimeout})
	o.end(job, ci.JobFailed, reasonOf(ci.ReasonJobTimeout, message, map[string]string{"agent": agent}), now)
	if agent != "" {
		o.Effects = append(o.Effects, CancelJob{AgentID: agent, JobID: job.ID, Reason: message, Force: true})
	}
	return o
}

// QueueExpired decides about a job that waited in the queue for longer than it may. routable tells that some agent
// could have taken it; detail is the last provisioning error, if any.
func QueueExpired(job Job, routable bool, detail string, now int64) Outcome {
	if job.Status.Terminal() || job.Row == nil || job.Row.Status != ci.QueuePending {
		return ignored("the job is not waiting in the queue")
	}
	status, code := ci.JobTimedOutStale, ci.ReasonQueueTimeout
	if !routable {
		status, code = ci.JobUnroutable, ci.ReasonUnroutable
	}
	message := textOr(detail, "Queue timeout expired (job was never dispatched to an agent)")
	var o Outcome
	o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowExpire, Reason: code})
	reason := reasonOf(code, message, nil)
	o.end(job, status, reason, now)
	if detail != "" { // what kept agents from starting is news to whoever looks at the run alone
		o.Run = &RunChange{Reason: reason}
	}
	return o
}

// CannotStart decides about a job that no agent can be given, whatever its row says.
func CannotStart(job Job, f ci.InitFailure, now int64) Outcome {
	if job.Status.Terminal() {
		return ignored("the job has ended")
	}
	var o Outcome
	f.Message = ci.CutText(f.Message)
	if job.Row != nil && !job.Row.Status.Terminal() {
		o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowFail, Reason: ci.ReasonInitFailure})
	}
	o.end(job, ci.JobFailed, reasonOf(ci.ReasonInitFailure, f.Message, map[string]string{"category": f.Category}), now).InitFailure = &f
	return o
}
