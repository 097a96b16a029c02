package wire

import (
	"encoding/json"

	"kici/internal/core/ci"
)

// JobAck takes a dispatched job.
type JobAck struct {
	MessageID string `json:"messageId"`
	RunID     string `json:"runId"`
	JobID     string `json:"jobId"`
	Timestamp int64  `json:"timestamp"`
}

// MessageType is "job.ack".
func (JobAck) MessageType() string { return "job.ack" }

// Why an agent refuses a job.
const (
	RejectBusy     = "busy"     // it runs as much as it can
	RejectDraining = "draining" // it takes no more work on this connection
)

// JobReject refuses a dispatched job.
type JobReject struct {
	MessageID string `json:"messageId"`
	RunID     string `json:"runId"`
	JobID     string `json:"jobId"`
	Reason    string `json:"reason" wire:"enum=busy|draining"`
	Timestamp int64  `json:"timestamp"`
}

// MessageType is "job.reject".
func (JobReject) MessageType() string { return "job.reject" }

// JobStatus reports the state of a job. Agents send running and the terminal states success, failed and cancelled; the
// schema knows more, which are no news to the server.
type JobStatus struct {
	MessageID     string                  `json:"messageId"`
	RunID         string                  `json:"runId"`
	JobID         string                  `json:"jobId"`
	State         ci.JobStatus            `json:"state" wire:"enum=pending|queued|running|recovering|cancelling|success|failed|cancelled|skipped|timed_out_stale|drift_dropped"`
	Timestamp     int64                   `json:"timestamp"`
	Data          json.RawMessage         `json:"data,omitempty" wire:"opt,object"` // see ParseJobData
	DroppedJobs   []string                `json:"droppedJobs,omitempty" wire:"opt"` // Data has precedence
	SecretOutputs map[string]SecretOutput `json:"secretOutputs,omitempty" wire:"opt"`
}

// MessageType is "job.status".
func (JobStatus) MessageType() string { return "job.status" }

// SecretOutput is an output of a job, sealed for the run's public key.
type SecretOutput struct {
	AgentPublicKey string `json:"agentPublicKey"` // X25519 SPKI DER, base64
	Encrypted      string `json:"encrypted"`      // base64 of nonce, tag and ciphertext
}

// StepStatus reports the state of a step. A retried step goes back from failed to running; the last report counts.
type StepStatus struct {
	MessageID        string          `json:"messageId"`
	RunID            string          `json:"runId"`
	JobID            string          `json:"jobId"`
	StepIndex        int             `json:"stepIndex" wire:"int,min=0"` // hooks, caches and init steps use high numbers
	StepName         string          `json:"stepName"`
	State            ci.StepStatus   `json:"state" wire:"enum=running|pending|success|failed|skipped|cancelled"`
	Timestamp        int64           `json:"timestamp"`
	Data             json.RawMessage `json:"data,omitempty" wire:"opt,object"` // see ParseStepData
	StepType         string          `json:"step_type,omitempty" wire:"opt,enum=step|hook:onCancel|hook:cleanup|hook:onSuccess|hook:onFailure|hook:beforeStep|hook:afterStep"`
	SecretsAccessed  []string        `json:"secretsAccessed,omitempty" wire:"opt"`
	ConcurrencyKind  string          `json:"concurrencyKind,omitempty" wire:"opt,enum=sequential|parallel-child|parallel-group"`
	GroupID          string          `json:"groupId,omitempty" wire:"opt"`
	LogBytesStreamed *int64          `json:"logBytesStreamed,omitempty" wire:"opt,int,min=0"` // in terminal states only
}

// MessageType is "step.status".
func (StepStatus) MessageType() string { return "step.status" }

// JobLevel is the StepIndex of the log of a job that belongs to none of its steps.
const JobLevel = -1

// LogChunk carries lines of a step's output, without their line ends.
type LogChunk struct {
	MessageID string   `json:"messageId"`
	RunID     string   `json:"runId"`
	JobID     string   `json:"jobId"`
	StepIndex int      `json:"stepIndex"`
	Lines     []string `json:"lines"`
	Timestamp int64    `json:"timestamp"`
}

// MessageType is "log.chunk".
func (LogChunk) MessageType() string { return "log.chunk" }

// JobHeartbeat is the sign of life of a running job.
type JobHeartbeat struct {
	RunID     string `json:"runId"`
	JobID     string `json:"jobId"`
	Timestamp int64  `json:"timestamp"`
	// Progress counts what the running step has done; a counter that stands still tells a stalled step from a busy one.
	// Absent without the feature fast-beat.
	Progress *int64 `json:"progress,omitempty" wire:"opt"`
}

// MessageType is "job.heartbeat".
func (JobHeartbeat) MessageType() string { return "job.heartbeat" }

// RunEvent is an entry of a run's timeline.
type RunEvent struct {
	RunID         string          `json:"runId"`
	EventType     string          `json:"eventType"`
	TimestampMs   int64           `json:"timestampMs"`
	SourceService string          `json:"sourceService" wire:"enum=platform|orchestrator|agent"`
	JobID         string          `json:"jobId,omitempty" wire:"opt,null"`
	DurationMs    *int64          `json:"durationMs,omitempty" wire:"opt,null"`
	Metadata      json.RawMessage `json:"metadata,omitempty" wire:"opt,object"`
}

// MessageType is "run.event".
func (RunEvent) MessageType() string { return "run.event" }

// JobContext tells in which surroundings a job runs. It is sent once at its start.
type JobContext struct {
	RunID   string      `json:"runId"`
	JobID   string      `json:"jobId"`
	Context Environment `json:"context"`
}

// MessageType is "job.context".
func (JobContext) MessageType() string { return "job.context" }

// Environment describes where a job runs.
type Environment struct {
	Runtime          Runtime         `json:"runtime" wire:"opt"`
	SandboxType      string          `json:"sandboxType" wire:"opt"`
	WorkingDirectory string          `json:"workingDirectory" wire:"opt"`
	GitRef           string          `json:"gitRef" wire:"opt"`
	Labels           []string        `json:"labels,omitempty" wire:"opt"`
	EnvVars          []EnvVar        `json:"envVars"`
	LockFileVersion  json.RawMessage `json:"lockFileVersion,omitempty" wire:"opt"`
	SDKVersion       string          `json:"sdkVersion,omitempty" wire:"opt"`
	DepCacheStatus   json.RawMessage `json:"depCacheStatus,omitempty" wire:"opt"`
	NetworkIsolation json.RawMessage `json:"networkIsolation,omitempty" wire:"opt"`
	ScalerContext    json.RawMessage `json:"scalerContext,omitempty" wire:"opt"` // the server adds it
}

// Runtime is what executes the steps.
type Runtime struct {
	NodeVersion string `json:"nodeVersion" wire:"opt"`
	OS          string `json:"os" wire:"opt"`
	Arch        string `json:"arch" wire:"opt"`
}

// EnvVar is one variable of a job's environment. Some agents send the values of secrets in clear.
type EnvVar struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Category string `json:"category" wire:"enum=system|user|inherited|secret"`
}
