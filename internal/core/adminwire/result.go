package adminwire

import "kici/internal/core/ci"

// RunResult is a run for programs that pass it on, such as to a language model: every text that an author, a
// contributor or a process can choose is marked as untrusted. Values of secret outputs are never in it.
type RunResult struct {
	RunID               string       `json:"runId"`
	WorkflowName        *Untrusted   `json:"workflowName"`
	Status              ci.RunStatus `json:"status"`
	Provider            string       `json:"provider"`
	RepoIdentifier      *Untrusted   `json:"repoIdentifier"`
	Ref                 *Untrusted   `json:"ref"`
	SHA                 string       `json:"sha"`
	BaseSHA             *string      `json:"baseSha"`
	StartedAt           Time         `json:"startedAt"`
	CompletedAt         Time         `json:"completedAt"`
	DurationMs          *int64       `json:"durationMs"`
	TrustTier           *string      `json:"trustTier"`
	ContributorUsername *Untrusted   `json:"contributorUsername"`
	FailureCategory     *string      `json:"failureCategory"`
	FailureReason       *Untrusted   `json:"failureReason"`
	TriggeredBy         *string      `json:"triggeredBy"`
	Jobs                []JobResult  `json:"jobs"`
}

// JobResult is one job of a RunResult.
type JobResult struct {
	JobID            string         `json:"jobId"`
	JobName          *Untrusted     `json:"jobName"`
	Status           ci.JobStatus   `json:"status"`
	StartedAt        Time           `json:"startedAt"`
	CompletedAt      Time           `json:"completedAt"`
	DurationMs       *int64         `json:"durationMs"`
	AgentID          *string        `json:"agentId"`
	ErrorMessage     *Untrusted     `json:"errorMessage"`
	InitFailure      *FailureResult `json:"initFailure"`
	Needs            []NeedResult   `json:"needs"`
	Outputs          *UntrustedMap  `json:"outputs"`
	SecretOutputKeys []string       `json:"secretOutputKeys"`
	Steps            []StepResult   `json:"steps"`
}

// FailureResult is why a job never could start.
type FailureResult struct {
	Scope    ci.InitScope `json:"scope"`
	Category string       `json:"category"`
	Message  *Untrusted   `json:"message"`
}

// NeedResult is one job that a job waited for.
type NeedResult struct {
	Ref   *Untrusted     `json:"ref"`
	RunOn []ci.JobStatus `json:"runOn"`
}

// UntrustedMap marks the outputs of a job, by "<step>.<key>".
type UntrustedMap struct {
	Untrusted bool           `json:"untrusted"`
	Value     map[string]any `json:"value"`
}

// StepResult is one step of a RunResult.
type StepResult struct {
	StepIndex       int           `json:"stepIndex"`
	StepName        *Untrusted    `json:"stepName"`
	Status          ci.StepStatus `json:"status"`
	ExitCode        *int64        `json:"exitCode"`
	DurationMs      *int64        `json:"durationMs"`
	StartedAt       Time          `json:"startedAt"`
	CompletedAt     Time          `json:"completedAt"`
	ErrorMessage    *Untrusted    `json:"errorMessage"`
	StepType        string        `json:"stepType"`
	CheckOutcome    *string       `json:"checkOutcome"`
	SecretsAccessed []string      `json:"secretsAccessed"`
}
