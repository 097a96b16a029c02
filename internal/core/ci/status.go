// Package ci holds the words of the field that every room shares: runs, jobs, steps, their statuses and reasons, the
// event envelope, ids and limits. It imports nothing of ours and does no I/O.
package ci

import "slices"

// RunStatus is the state of one run. A run in a terminal state never changes again.
type RunStatus string

// The states of a run.
const (
	RunPending    RunStatus = "pending"
	RunRunning    RunStatus = "running"
	RunHeld       RunStatus = "held"
	RunCancelling RunStatus = "cancelling"
	RunSuccess    RunStatus = "success"
	RunFailed     RunStatus = "failed"
	RunCancelled  RunStatus = "cancelled"
)

// RunStatuses lists every run state.
var RunStatuses = []RunStatus{RunPending, RunRunning, RunHeld, RunCancelling, RunSuccess, RunFailed, RunCancelled}

// Terminal tells whether the run has ended.
func (s RunStatus) Terminal() bool {
	return s == RunSuccess || s == RunFailed || s == RunCancelled
}

// JobStatus is the state of one job. A job in a terminal state never changes again.
type JobStatus string

// The states of a job. Unroutable, timed-out-stale and drift-dropped are decided by the server alone; all three fail the
// run.
const (
	JobPending       JobStatus = "pending"
	JobQueued        JobStatus = "queued"
	JobRunning       JobStatus = "running"
	JobRecovering    JobStatus = "recovering"
	JobCancelling    JobStatus = "cancelling"
	JobSuccess       JobStatus = "success"
	JobFailed        JobStatus = "failed"
	JobCancelled     JobStatus = "cancelled"
	JobSkipped       JobStatus = "skipped"
	JobTimedOutStale JobStatus = "timed_out_stale"
	JobDriftDropped  JobStatus = "drift_dropped"
	JobUnroutable    JobStatus = "unroutable"
)

// TerminalJobStatuses lists the states in which a job has ended, in the order in which lock files write them.
var TerminalJobStatuses = []JobStatus{
	JobSuccess, JobFailed, JobCancelled, JobSkipped, JobTimedOutStale, JobDriftDropped, JobUnroutable,
}

// JobStatuses lists every job state.
var JobStatuses = append([]JobStatus{JobPending, JobQueued, JobRunning, JobRecovering, JobCancelling}, TerminalJobStatuses...)

// Terminal tells whether the job has ended.
func (s JobStatus) Terminal() bool { return slices.Contains(TerminalJobStatuses, s) }

// FailsRun tells whether a job that ended so makes its run fail.
func (s JobStatus) FailsRun() bool {
	return s == JobFailed || s == JobTimedOutStale || s == JobDriftDropped || s == JobUnroutable
}

// StepStatus is the state of one step.
type StepStatus string

// The states of a step.
const (
	StepPending   StepStatus = "pending"
	StepRunning   StepStatus = "running"
	StepSuccess   StepStatus = "success"
	StepFailed    StepStatus = "failed"
	StepSkipped   StepStatus = "skipped"
	StepCancelled StepStatus = "cancelled"
)

// StepStatuses lists every step state.
var StepStatuses = []StepStatus{StepPending, StepRunning, StepSuccess, StepFailed, StepSkipped, StepCancelled}

// Terminal tells whether the step has ended.
func (s StepStatus) Terminal() bool { return s != StepPending && s != StepRunning }

// QueueStatus is the state of a row of the dispatch queue: one job on its way to an agent.
type QueueStatus string

// The states of a queue row.
const (
	QueuePending    QueueStatus = "pending"
	QueueDispatched QueueStatus = "dispatched"
	QueueRecovering QueueStatus = "recovering"
	QueueCompleted  QueueStatus = "completed"
	QueueFailed     QueueStatus = "failed"
	QueueExpired    QueueStatus = "expired"
)

// QueueStatuses are all states of a queue row, first those that have not ended.
var QueueStatuses = []QueueStatus{QueuePending, QueueDispatched, QueueRecovering, QueueCompleted, QueueFailed, QueueExpired}

// Terminal tells whether the row is history.
func (s QueueStatus) Terminal() bool {
	return s == QueueCompleted || s == QueueFailed || s == QueueExpired
}

// VariantKind tells what made a job one of several children of its base job.
type VariantKind string

// The kinds of fan-out; the empty kind is a plain job.
const (
	VariantMatrix VariantKind = "matrix"
	VariantHost   VariantKind = "host"
)
