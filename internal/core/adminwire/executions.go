package adminwire

import (
	"encoding/json"

	"kici/internal/core/ci"
)

// Execution is a run as the older routes name its members: by the columns.
type Execution struct {
	RunID          string       `json:"run_id"`
	WorkflowName   string       `json:"workflow_name"`
	Status         ci.RunStatus `json:"status"`
	RoutingKey     string       `json:"routing_key"`
	Provider       string       `json:"provider"`
	RepoIdentifier string       `json:"repo_identifier"`
	Ref            string       `json:"ref"`
	SHA            string       `json:"sha"`
	DeliveryID     *string      `json:"delivery_id"`
	CreatedAt      Time         `json:"created_at"`
	StartedAt      Time         `json:"started_at"`
	CompletedAt    Time         `json:"completed_at"`
	DurationMs     *int64       `json:"duration_ms"`
	FailureReason  *string      `json:"failure_reason"`
}

// ExecutionJob is a job of an Execution.
type ExecutionJob struct {
	JobID        string       `json:"job_id"`
	RunID        string       `json:"run_id"`
	JobName      string       `json:"job_name"`
	Status       ci.JobStatus `json:"status"`
	AgentID      *string      `json:"agent_id"`
	CreatedAt    Time         `json:"created_at"`
	StartedAt    Time         `json:"started_at"`
	CompletedAt  Time         `json:"completed_at"`
	DurationMs   *int64       `json:"duration_ms"`
	ErrorMessage *string      `json:"error_message"`
}

// ExecutionList is executions, newest first.
type ExecutionList struct {
	Runs []Execution `json:"runs"`
}

// OneExecution is an execution with its jobs in their order.
type OneExecution struct {
	Run  Execution      `json:"run"`
	Jobs []ExecutionJob `json:"jobs"`
}

// Cleared is what clearing the queue did: the runs that it ended, and the jobs of them that were told or ended.
type Cleared struct {
	Cleared bool `json:"cleared"`
	Runs    int  `json:"runs"`
	Jobs    int  `json:"jobs"`
}

// TimelineEvent is something that happened in a run. What agents say of their jobs comes from them as it is.
type TimelineEvent struct {
	Timestamp     Time            `json:"timestamp"`
	EventType     string          `json:"eventType"`
	SourceService string          `json:"sourceService"` // agent or orchestrator
	JobID         *string         `json:"jobId"`
	DurationMs    *int64          `json:"durationMs"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`
}

// Timeline is the last events of a run in order of time.
type Timeline struct {
	RunID  string          `json:"runId"`
	Events []TimelineEvent `json:"events"`
}

// Surroundings is where a job ran, as its agent described it: variables with secret values masked, runtime, labels.
type Surroundings struct {
	RunID   string          `json:"runId"`
	JobID   string          `json:"jobId"`
	Context json.RawMessage `json:"context"` // null when the agent said nothing
}
