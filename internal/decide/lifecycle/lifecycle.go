// Package lifecycle decides how runs, jobs and queue rows change. It is pure: a command meets a slice of the state and
// gives the changes and effects; whoever loads the slice and stores the changes in one transaction is elsewhere.
//
// A command about one job sees that job alone. What its end means for others is decided by follow-up commands on slices
// of their own (Ended for dependants and fan-out siblings, Settle for the run), so that a run of a thousand jobs never
// has to be loaded to end one of them.
package lifecycle

import (
	"encoding/json"

	"kici/internal/core/ci"
)

// Run is a run as decisions see it. Times are milliseconds; 0 means not yet.
type Run struct {
	ID            string
	Status        ci.RunStatus
	CreatedAt     int64
	StartedAt     int64
	TimeoutMs     int64 // 0 = no limit
	CheckMode     string
	FailureReason string     // what people see already, kept where it is more specific
	Reason        *ci.Reason // with its code
	Cancel        *Cancel
}

// Cancel is a standing wish that the run ends.
type Cancel struct {
	By     string
	Reason ci.Reason
	At     int64
	Forced bool
}

// Job is a job as decisions see it, with its queue row when it has one. A job that may not run yet has none.
type Job struct {
	ID             string
	Name           string
	Position       int
	Status         ci.JobStatus
	AgentID        string
	StartedAt      int64
	CreatedAt      int64
	GraceMs        int64
	NeedsSatisfied bool
	Wave           Wave
	Row            *Row
	Kind           ci.JobKind
	// Deferred tells that an agent has still to compute a part of the job.
	Deferred bool
	// Holds counts the pending holds on the job, and HoldReason says what the first of them waits for.
	Holds      int
	HoldReason *ci.Reason
	// Guarded tells that gates are asked before the job is queued: it binds contexts, or its author asks for an approval.
	Guarded bool
	// SlotWaiting tells that the job was taken back from its agent until its run has a place in its concurrency group.
	SlotWaiting bool
}

// gate says what keeps a job whose needs are met from the queue, nil when nothing does.
func (j Job) gate() *ci.Reason {
	switch {
	case j.Deferred:
		return reasonOf(ci.ReasonInit, "waits for an agent to compute what its author left to a function", nil)
	case j.Holds > 0 && j.HoldReason != nil:
		return j.HoldReason
	case j.Holds > 0:
		return reasonOf(ci.ReasonHold, "waits for a hold to be released", map[string]int{"holds": j.Holds})
	case j.SlotWaiting:
		return reasonOf(ci.ReasonConcurrency, "waits for a place in its run's concurrency group", nil)
	case j.Wave.Gated:
		return waveReason(j.Wave)
	}
	return nil
}

// admit queues a job whose needs are met, or says what else it waits for.
func (o *Outcome) admit(job Job, c JobChange) {
	if c.Reason = job.gate(); c.Reason == nil {
		o.Rows = append(o.Rows, RowChange{JobID: job.ID, Op: RowEnqueue, Guarded: job.Guarded})
		c.Reason = queuedReason()
	}
	o.Jobs = append(o.Jobs, c)
}

// Wave is a job's place in a fan-out that runs a few children at a time. The zero value is no wave.
type Wave struct {
	Gated       bool
	MaxParallel int
	FailFast    bool
	Label       string // variant label, by which held siblings are released
}

// Row is a queue row.
type Row struct {
	Status   ci.QueueStatus
	AgentID  string
	Attempts int // completed re-deliveries
	Started  bool
	// Unanswered tells that the dispatch waits for an answer.
	Unanswered bool
	// ClaimedAt is when the job was given out last, epoch milliseconds. It tells one delivery from another.
	ClaimedAt int64
}

// active tells that an agent holds the job or may come back with it.
func (r *Row) active() bool {
	return r != nil && (r.Status == ci.QueueDispatched || r.Status == ci.QueueRecovering)
}

// heldBy tells that the row is with that agent.
func (r *Row) heldBy(agent string) bool { return r.active() && r.AgentID == agent }

// JobChange is what happens to one job. Zero fields stay as they are.
type JobChange struct {
	JobID       string
	Status      ci.JobStatus
	Reason      *ci.Reason
	Error       string
	InitFailure *ci.InitFailure
	AgentID     string
	StartedAt   int64
	CompletedAt int64
	Heartbeat   int64
	Satisfied   bool // its needs are met
	Release     bool // its wave lets it go
	Complete    bool // the part that an agent had to compute is there
	Unhold      int  // so many of its holds are released
	Hold        int  // so many more are made
	WaitSlot    bool // it waits for a place in the concurrency group
	GiveSlot    bool // it has one
	CloseHolds  bool // nobody has to decide about its holds any more
	Outputs     json.RawMessage
	Name        string       // of the job, where Steps are told of
	Steps       []StepResult // of the terminal report; they win over what was reported before
}

// StepResult is one entry of a terminal report, in index order.
type StepResult struct {
	Name       string
	Status     ci.StepStatus
	DurationMs int64
	Error      string
}

// RowOp says what happens to a queue row. The statement that does it repeats the guard, so that a race is lost by one.
type RowOp int

// The operations on a queue row.
const (
	RowEnqueue  RowOp = iota + 1 // a new pending row
	RowAck                       // the dispatch is answered: no deadline any more
	RowStart                     // a step may run: the row counts as started
	RowResume                    // the same of a row that waited for its agent: it is dispatched again
	RowRequeue                   // back to pending, one attempt more
	RowRelease                   // back to pending: the dispatch was never sent
	RowRecover                   // its agent is gone; wait until the deadline
	RowReclaim                   // its agent is back with it
	RowComplete                  // done
	RowFail                      // given up
	RowExpire                    // never given to an agent
	RowWithdraw                  // taken back from its agent and out of the line; a new row follows when it may run
)

// RowChange is one operation on the row of a job. Until is the recovery deadline of RowRecover.
type RowChange struct {
	JobID  string
	Op     RowOp
	Until  int64
	Reason string // a reason code, kept with the attempt that ends
	// Guarded tells that the gates of a job have to be asked before it is queued. See Job.
	Guarded bool
}

// RunChange is what happens to the run. Zero fields stay as they are.
type RunChange struct {
	Status      ci.RunStatus
	StartedAt   int64
	CompletedAt int64
	Reason      *ci.Reason
	ClearReason bool
	InitFailure *ci.InitFailure
	Cancel      *Cancel
}

// Begins tells that a change says no more than that the run has begun. There may be no change.
func (c *RunChange) Begins() bool {
	return c != nil && c.Status == ci.RunRunning && *c == RunChange{Status: c.Status, StartedAt: c.StartedAt}
}

// Begin is what a change that Begins makes of a run.
func (r *Run) Begin(c RunChange) {
	r.Status = c.Status
	if r.StartedAt == 0 {
		r.StartedAt = c.StartedAt
	}
}

// Effect is something for the outside world that must happen once the change is committed.
type Effect interface{ effect() }

// CancelJob tells an agent to stop a job.
type CancelJob struct {
	AgentID string
	JobID   string
	Reason  string
	Force   bool
	GraceMs int64
}

// DropAgent closes an agent's connection: it did not answer.
type DropAgent struct {
	AgentID string
	Reason  string
}

func (CancelJob) effect() {}
func (DropAgent) effect() {}

// Outcome is the decision. Ended lists jobs that became terminal, as they are then but for their rows and holds: for each,
// Ended must be decided next, and Settle when no open job is left.
type Outcome struct {
	Jobs    []JobChange
	Rows    []RowChange
	Run     *RunChange
	Effects []Effect
	Ended   []Job
	// Ignored says why the command changed nothing, for the log. Empty for a replay.
	Ignored string
}

func ignored(why string) Outcome { return Outcome{Ignored: why} }

// end makes a job terminal.
func (o *Outcome) end(job Job, status ci.JobStatus, reason *ci.Reason, now int64) *JobChange {
	c := JobChange{JobID: job.ID, Status: status, Reason: reason, CompletedAt: now, CloseHolds: job.Holds > 0}
	if reason != nil && status != ci.JobSuccess {
		c.Error = ci.CutText(reason.Message)
	}
	o.Jobs = append(o.Jobs, c)
	job.Status = status
	o.Ended = append(o.Ended, job)
	return &o.Jobs[len(o.Jobs)-1]
}

func reasonOf(code, message string, details any) *ci.Reason {
	r := ci.NewReason(code, ci.CutText(message), details)
	return &r
}
