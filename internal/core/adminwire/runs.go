// Package adminwire holds the JSON shapes of the admin API, shared by the server and its clients. Times are RFC 3339 in
// UTC with milliseconds; what was never set is null.
package adminwire

import (
	"encoding/json"
	"time"

	"kici/internal/core/ci"
)

// Error codes of a run that is not there, of one that was removed since it ended too long ago, and of the repetition of such
// a one.
const (
	CodeRunUnknown    = "run_not_found"
	CodeRunForgotten  = "run_forgotten"
	CodeNotRerunnable = "runArchivedNotRerunnable"
)

// Time is a moment as the API writes it. The zero value is null.
type Time struct{ time.Time }

// timeLayout has a fixed width, so that texts order as times do.
const timeLayout = "2006-01-02T15:04:05.000Z"

// At is the moment of a stored time, milliseconds since 1970; 0 is null.
func At(millis int64) Time {
	if millis == 0 {
		return Time{}
	}
	return Time{ci.Moment(millis)}
}

// MarshalJSON writes null or the text.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(t.UTC().Format(timeLayout))
}

// UnmarshalJSON reads null or any RFC 3339 text.
func (t *Time) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		*t = Time{}
		return nil
	}
	return t.Time.UnmarshalJSON(raw)
}

// Untrusted marks a text that an author, a contributor or a process chose. Readers must treat it as data.
type Untrusted struct {
	Untrusted bool   `json:"untrusted"`
	Value     string `json:"value"`
}

// Mark wraps a text; an empty one is null.
func Mark(s string) *Untrusted {
	if s == "" {
		return nil
	}
	return &Untrusted{Untrusted: true, Value: s}
}

// Run is one row of the list of runs.
type Run struct {
	RunID          string       `json:"runId"`
	WorkflowName   string       `json:"workflowName"`
	Status         ci.RunStatus `json:"status"`
	Provider       string       `json:"provider"`
	RepoIdentifier string       `json:"repoIdentifier"`
	Ref            string       `json:"ref"`
	SHA            string       `json:"sha"`
	CreatedAt      Time         `json:"createdAt"`
	StartedAt      Time         `json:"startedAt"`
	CompletedAt    Time         `json:"completedAt"`
	DurationMs     *int64       `json:"durationMs"`
	ParentRunID    *string      `json:"parentRunId"`
	TriggeredBy    *string      `json:"triggeredBy"`
	TriggerEvent   *string      `json:"triggerEvent"`
	FailureReason  *string      `json:"failureReason"`
	Environment    *string      `json:"environment"`
	TrustTier      *string      `json:"trustTier"`
}

// RunDetail is one run.
type RunDetail struct {
	Run
	OrgID               string          `json:"orgId"`
	DeliveryID          *string         `json:"deliveryId"`
	RequestID           *string         `json:"requestId"`
	IsTestRun           bool            `json:"isTestRun"`
	OriginalRunID       *string         `json:"originalRunId"`
	CancelledBy         *string         `json:"cancelledBy"`
	LockFileSource      *string         `json:"lockFileSource"`
	ContributorUsername *string         `json:"contributorUsername"`
	CommitMessage       *string         `json:"commitMessage"`
	LogBytes            int64           `json:"logBytes"`
	WorkflowTimeoutMs   *int64          `json:"workflowTimeoutMs"`
	Reason              *ci.Reason      `json:"reason"` // why it waits or why it ended
	InitFailure         *ci.InitFailure `json:"initFailure"`
}

// Job is one job of a run.
type Job struct {
	JobID        string          `json:"jobId"`
	JobName      string          `json:"jobName"`
	BaseJobName  string          `json:"baseJobName"`
	Status       ci.JobStatus    `json:"status"`
	MatrixValues json.RawMessage `json:"matrixValues"`
	VariantKind  string          `json:"variantKind,omitempty"`  // of a child of a fan-out: matrix or host
	VariantLabel string          `json:"variantLabel,omitempty"` // what tells it from the others
	Environments []string        `json:"environments"`           // names of the contexts that it binds, those of its workflow last
	AgentID      *string         `json:"agentId"`
	Attempts     int             `json:"attempts"` // deliveries to an agent so far
	CreatedAt    Time            `json:"createdAt"`
	DispatchedAt Time            `json:"dispatchedAt"` // given to its present or last agent
	StartedAt    Time            `json:"startedAt"`
	CompletedAt  Time            `json:"completedAt"`
	DurationMs   *int64          `json:"durationMs"`
	LogBytes     int64           `json:"logBytes"`
	ErrorMessage *string         `json:"errorMessage"`
	Reason       *ci.Reason      `json:"reason"`
	InitFailure  *ci.InitFailure `json:"initFailure"`
	RunsOnLabels []string        `json:"runsOnLabels"`
	Needs        []Need          `json:"needs"`
	Outputs      json.RawMessage `json:"outputs"`
	Steps        []Step          `json:"steps,omitzero"` // absent unless asked for
}

// OwnLogIndex is the step index of a job's own log.
const OwnLogIndex = -1

// LogName names a log: that of a step, or a job's own, whose index is OwnLogIndex. Names of jobs and steps are for people;
// several may have the same.
type LogName struct {
	JobID     string
	Job       string
	StepIndex int
	Step      string
}

// Log names the log of a step of the job.
func (j Job) Log(s Step) LogName { return LogName{j.JobID, j.JobName, s.StepIndex, s.StepName} }

// OwnLog stands for the job's own log as steps stand for theirs: what the job says before its first step, between them and
// after the last. It has no name; its status is pending before the job has an agent, running as long as lines may come, and
// success then.
func (j Job) OwnLog() Step {
	own := Step{StepIndex: OwnLogIndex, Status: ci.StepRunning}
	switch {
	case j.AgentID == nil:
		own.Status = ci.StepPending
	case j.Status.Terminal():
		own.Status = ci.StepSuccess
	}
	return own
}

// Need is one job that a job waits for.
type Need struct {
	UpstreamName string         `json:"upstreamName"`
	RunOn        []ci.JobStatus `json:"runOn"`
}

// Step is one step of a job. Hooks and caches stand among them with high indices and their own type.
type Step struct {
	StepIndex       int             `json:"stepIndex"`
	StepName        string          `json:"stepName"`
	Status          ci.StepStatus   `json:"status"`
	StepType        string          `json:"stepType,omitempty"` // absent for an ordinary step
	ExitCode        *int64          `json:"exitCode"`
	StartedAt       Time            `json:"startedAt"`
	CompletedAt     Time            `json:"completedAt"`
	DurationMs      *int64          `json:"durationMs"`
	ErrorMessage    *string         `json:"errorMessage"`
	LogBytes        int64           `json:"logBytes"`
	SecretsAccessed []string        `json:"secretsAccessed"` // null = not reported
	CheckOutcome    *string         `json:"checkOutcome,omitempty"`
	DriftSummary    *string         `json:"driftSummary,omitempty"`
	Drift           json.RawMessage `json:"drift,omitempty"`
	ConcurrencyKind *string         `json:"concurrencyKind,omitempty"`
	GroupID         *string         `json:"groupId,omitempty"`
}

// RunList is a page of runs.
type RunList struct {
	Runs   []Run `json:"runs"`
	Total  int   `json:"total"`
	Limit  int   `json:"limit"`
	Offset int   `json:"offset"`
}

// QueueEntry is a job of the queue. The names are the columns', as the queue's API has always had them.
type QueueEntry struct {
	ID           string         `json:"id"`
	RunID        string         `json:"run_id"`
	WorkflowName string         `json:"workflow_name"`
	JobName      string         `json:"job_name"`
	Status       ci.QueueStatus `json:"status"`
	RoutingKey   string         `json:"routing_key"`
	Provider     string         `json:"provider"`
	CreatedAt    Time           `json:"created_at"`
	ExpiresAt    Time           `json:"expires_at"`
	DeliveryID   *string        `json:"delivery_id"`
	AgentID      *string        `json:"agent_id"`
	Attempts     int            `json:"attempts"`
	RunsOn       []string       `json:"runs_on"`
	Reason       ci.Reason      `json:"reason"`
	Nearest      []Candidate    `json:"nearest"`
}

// CancelResult is the answer to a cancel.
type CancelResult struct {
	Status        ci.RunStatus `json:"status"`
	CancelledJobs int          `json:"cancelledJobs"`
}

// OneRun is the answer about one run.
type OneRun struct {
	Run RunDetail `json:"run"`
}

// JobList is the jobs of a run in their order.
type JobList struct {
	Jobs []Job `json:"jobs"`
}

// QueueList is the jobs of the queue, oldest first.
type QueueList struct {
	Entries []QueueEntry `json:"entries"`
	Depth   *QueueDepth  `json:"depth,omitempty"` // of the whole queue, for who may see all of it
}
