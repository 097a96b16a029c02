package runner

import (
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
)

// Types of messages from the runner to the agent.
const (
	TypeReady           = "ready"
	TypeLogLine         = "log.line"
	TypeStepStart       = "step.start"
	TypeStepComplete    = "step.complete"
	TypeSecretMount     = "step.secret_mount"
	TypeEventEmit       = "event.emit"
	TypeAPIRequest      = "agent.api.request"
	TypeCacheRequest    = "cache.request"
	TypeProvenance      = "provenance.request"
	TypeArtifact        = "artifact.request"
	TypeApprovalRequest = "approval.request"
	TypeConcurrency     = "concurrency.report"
	TypeBundle          = "bundle"
	TypeJobComplete     = "job.complete"
)

// Types of messages from the agent to the runner.
const (
	TypeExecute            = "execute"
	TypeAbort              = "abort"
	TypeEventEmitResponse  = "event.emit.response"
	TypeAPIResponse        = "agent.api.response"
	TypeCacheResponse      = "cache.response"
	TypeProvenanceResponse = "provenance.response"
	TypeArtifactResponse   = "artifact.response"
	TypeApprovalResolved   = "approval.resolved"
	TypeConcurrencyAck     = "concurrency.ack"
)

// JobLog is the step index of the job's own log.
const JobLog = -1

// Message is one line of the protocol between agent and runner. Raw is the whole JSON object, its type included.
type Message struct {
	Type string
	Raw  json.RawMessage
}

// Decode reads the message into one of the structs of this file.
func (m Message) Decode(into any) error {
	if err := json.Unmarshal(m.Raw, into); err != nil {
		return fmt.Errorf("decode %s message: %w", m.Type, err)
	}
	return nil
}

// parseMessage reads one line; ok is false for what is no message, which both sides ignore.
func parseMessage(line []byte) (m Message, ok bool) {
	var head struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &head) != nil || head.Type == "" {
		return Message{}, false
	}
	return Message{Type: head.Type, Raw: line}, true
}

// LogLine is one line of output of a step, or of the job for JobLog. Line has no line end; ANSI codes are kept.
type LogLine struct {
	Type      string `json:"type"`
	StepIndex int    `json:"stepIndex"`
	Line      string `json:"line"`
}

// StepStart says that a step runs, or with State "pending" that a child of a parallel group waits for its turn.
type StepStart struct {
	Type            string `json:"type"`
	StepIndex       int    `json:"stepIndex"`
	StepName        string `json:"stepName"`
	StepType        string `json:"step_type,omitempty"`
	State           string `json:"state,omitempty"`
	ConcurrencyKind string `json:"concurrencyKind,omitempty"`
	GroupID         string `json:"groupId,omitempty"`
}

// StepComplete is the end of one attempt of a step, or of a hook or cache pseudo-step (StepType).
type StepComplete struct {
	Type            string          `json:"type"`
	StepIndex       int             `json:"stepIndex"`
	StepName        string          `json:"stepName,omitempty"`
	Status          string          `json:"status"` // success, failed, skipped, cancelled
	DurationMs      int64           `json:"durationMs"`
	Error           *StepError      `json:"error,omitempty"`
	Outputs         json.RawMessage `json:"outputs,omitempty"`
	StepType        string          `json:"step_type,omitempty"`
	SecretsAccessed []string        `json:"secretsAccessed"` // names, never values
	Data            json.RawMessage `json:"data,omitempty"`
	CheckOutcome    string          `json:"checkOutcome,omitempty"`
	DriftSummary    string          `json:"driftSummary,omitempty"`
	Drift           json.RawMessage `json:"drift,omitempty"`
	ConcurrencyKind string          `json:"concurrencyKind,omitempty"`
	GroupID         string          `json:"groupId,omitempty"`
}

// StepError is why a step failed; ExitCode and Signal are those of the command that failed, when it was one.
type StepError struct {
	Message  string `json:"message"`
	ExitCode *int   `json:"exitCode,omitempty"`
	Signal   string `json:"signal,omitempty"`
}

// SecretMount says that secrets were written to a file for a step.
type SecretMount struct {
	Type      string   `json:"type"`
	StepIndex int      `json:"stepIndex"`
	Sources   []string `json:"sources"`
	Target    string   `json:"target"`
	Kind      string   `json:"kind"` // mountFile, exposeFile
	EnvVar    string   `json:"envVar,omitempty"`
}

// Request is any message that the agent answers by request id; which fields count depends on its type.
type Request struct {
	Type      string `json:"type"`
	RequestID string `json:"requestId"`

	// event.emit
	EventName string          `json:"eventName,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"` // approval.request, too
	Target    json.RawMessage `json:"target,omitempty"`

	// agent.api.request
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`

	// cache.request (Op restore, beginSave, completeSave) and provenance.request (Op requestUploadUrl, complete)
	Op            string   `json:"op,omitempty"`
	Key           string   `json:"key,omitempty"`
	RestoreKeys   []string `json:"restoreKeys,omitempty"`
	TarHash       string   `json:"tarHash,omitempty"`
	SizeBytes     int64    `json:"sizeBytes,omitempty"` // of an artifact: -1 while it is not known
	SubjectDigest string   `json:"subjectDigest,omitempty"`
	SubjectName   string   `json:"subjectName,omitempty"`
	MediaType     string   `json:"mediaType,omitempty"`

	// artifact.request (Op begin with the name and size, commit with the rest and the size)
	Name     string `json:"name,omitempty"`
	UploadID string `json:"uploadId,omitempty"`
	SHA256   string `json:"sha256,omitempty"` // hexadecimal

	// approval.request
	StepIndex      *int            `json:"stepIndex,omitempty"`
	StepName       string          `json:"stepName,omitempty"`
	Clauses        json.RawMessage `json:"clauses,omitempty"`
	Reason         string          `json:"reason,omitempty"`
	TimeoutSeconds float64         `json:"timeoutSeconds,omitempty"`
}

// Response answers a Request of the same id. Error is set on failure; for an approval it means a rejection.
type Response struct {
	Type      string          `json:"type"`
	RequestID string          `json:"requestId"`
	Error     string          `json:"error,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"` // agent.api.response

	DeliveryID string `json:"deliveryId,omitempty"` // event.emit.response

	Hit         bool   `json:"hit,omitempty"` // cache.response, to the end
	MatchedKey  string `json:"matchedKey,omitempty"`
	DownloadURL string `json:"downloadUrl,omitempty"`
	TarHash     string `json:"tarHash,omitempty"`
	Skip        bool   `json:"skip,omitempty"`
	UploadURL   string `json:"uploadUrl,omitempty"` // provenance.response and artifact.response, too

	UploadID string `json:"uploadId,omitempty"` // artifact.response, to the end
	MaxBytes int64  `json:"maxBytes,omitempty"`
	SaveTo   string `json:"saveTo,omitempty"` // instead of a URL: the file on this machine that the artifact becomes

	Outcome string `json:"outcome,omitempty"` // approval.resolved, to the end
	Reason  string `json:"reason,omitempty"`
}

// ConcurrencyReport is the concurrency group that the workflow's function gave.
type ConcurrencyReport struct {
	Type  string `json:"type"`
	Group string `json:"group"`
}

// ConcurrencyAck answers it: Action is proceed, wait or cancel.
type ConcurrencyAck struct {
	Type   string `json:"type"`
	Action string `json:"action"`
	Reason string `json:"reason,omitempty"`
}

// Abort asks the job to end: with Force at once, else with its cancel hooks.
type Abort struct {
	Type  string `json:"type"`
	Force bool   `json:"force,omitempty"`
}

// Execute starts the job. Request is an object with the fields that the runner reads; see Job for those of them that
// the host itself needs.
type Execute struct {
	Type    string          `json:"type"`
	Request json.RawMessage `json:"request"`
	// Bundle is the workflow as an earlier runner has bundled it from the same files; nil lets the runner do it.
	Bundle *Bundle `json:"bundle,omitempty"`
	// Env is the whole environment of the job, for a runner that was started without it; nil keeps that of the process.
	Env []string `json:"env,omitempty"`
	// KeepBundle asks for the bundle that the runner makes. It comes before any other message, and before the author's
	// code is run, so that it is what the runner made for certain.
	KeepBundle bool `json:"keepBundle,omitempty"`
}

// Bundle is a workflow ready for the embedded host. Without Part it is no use to another job: it needs node, or files
// from outside of the folder .kici.
type Bundle struct {
	Type string `json:"type,omitempty"`
	Part string `json:"part,omitempty"` // the author's part, see bundle.Result
	Map  string `json:"map,omitempty"`  // its source map
}

// JobComplete is the result of the job and the runner's last message.
type JobComplete struct {
	Type          string                     `json:"type"`
	Status        string                     `json:"status"` // success, failed
	StepResults   []StepResult               `json:"stepResults"`
	Error         string                     `json:"error,omitempty"`
	Outputs       map[string]json.RawMessage `json:"outputs,omitempty"`       // by step name
	SecretOutputs map[string]string          `json:"secretOutputs,omitempty"` // plaintext: the agent encrypts them
	DroppedJobs   []string                   `json:"droppedJobs,omitempty"`

	// What a job computed that works for others: parts of a job, or the jobs of a generator as a lock file has them.
	InitResult  json.RawMessage `json:"initResult,omitempty"`
	DynamicJobs json.RawMessage `json:"dynamicJobs,omitempty"`
	InitFailure json.RawMessage `json:"initFailure,omitempty"` // a category and more about Error, where there is more
}

// StepResult is the last state of one step, in the order of step indices.
type StepResult struct {
	Name       string          `json:"name"`
	StepIndex  int             `json:"stepIndex"`
	Status     string          `json:"status"`
	DurationMs int64           `json:"durationMs"`
	Error      string          `json:"error,omitempty"`
	Outputs    json.RawMessage `json:"outputs,omitempty"`
}

// Job is the part of an execute request that the host reads itself; the rest goes to the runner script untouched.
type Job struct {
	WorkDir           string               `json:"workDir"`    // absolute, as the runner sees it
	SourceFile        string               `json:"sourceFile"` // repo-relative; "" is .kici/workflows/ci.ts
	IsGlobalWorkflow  bool                 `json:"isGlobalWorkflow"`
	Secrets           map[string]string    `json:"secrets"`
	NamespacedSecrets ci.NamespacedSecrets `json:"namespacedSecrets"`
}
