package ci

import "encoding/json"

// Reason says, to people and to programs, why something waits or ended. Whoever decides writes it; readers never guess.
type Reason struct {
	Code    string          `json:"code"`              // stable, snake_case
	Message string          `json:"message"`           // a sentence for people
	Details json.RawMessage `json:"details,omitempty"` // an object, per code
}

// Reasons of waits and ends that more than one room names.
const (
	ReasonNeeds           = "needs"             // waits for jobs that it needs
	ReasonWave            = "wave"              // waits for a place in its fan-out
	ReasonInit            = "init"              // waits for an agent to compute a part of it
	ReasonHold            = "hold"              // waits for a person or a time
	ReasonConcurrency     = "concurrency"       // waits for a place in its run's concurrency group
	ReasonQueued          = "queued"            // an agent fits; all that fit are busy
	ReasonNoAgent         = "no_agent"          // no connected agent fits the selector
	ReasonDraining        = "draining"          // the server accepts no new work
	ReasonReboot          = "host_reboot"       // the host of its agent reboots, as a job on it asked for
	ReasonAwaitingAck     = "awaiting_ack"      // sent to an agent that has not answered yet
	ReasonRecovering      = "recovering"        // its agent is gone and may come back
	ReasonRequeued        = "requeued"          // offered again after a lost or refused dispatch
	ReasonDeferred        = "dispatch_deferred" // given out, but what its agent needs could not be read just then
	ReasonUpstreamUnmet   = "upstream_unmet"    // a needed job ended otherwise than asked for
	ReasonFailFast        = "fail_fast"         // a sibling of the fan-out failed
	ReasonStepFailed      = "step_failed"       // a step of the job failed
	ReasonJobFailed       = "job_failed"        // the agent reported the job as failed
	ReasonJobTimeout      = "job_timeout"       // the job passed its own limit
	ReasonWorkflowTimeout = "workflow_timeout"  // the run passed its limit
	ReasonQueueTimeout    = "queue_timeout"     // never given to an agent within the queue's limit
	ReasonUnroutable      = "unroutable"        // the same, and no agent ever fitted
	ReasonAgentLost       = "agent_lost"        // the agent did not come back within the recovery window
	ReasonAttempts        = "attempts_exceeded" // refused or unanswered too often
	ReasonStale           = "stale"             // running without a sign of life
	ReasonCancelled       = "cancelled"         // somebody asked for it
	ReasonSuperseded      = "superseded"        // a newer run took its place in the concurrency group
	ReasonInitFailure     = "init_failure"      // it never could start; see InitFailure
	ReasonNeedless        = "needless"          // what it would have done is done
	ReasonDriftDropped    = "drift_dropped"     // its generator no longer makes it
	ReasonFailedJobs      = "failed_jobs"       // a run: jobs of it failed
)

// NewReason is a reason whose details are v, which must marshal to a JSON object; nil leaves them out.
func NewReason(code, message string, v any) Reason {
	r := Reason{Code: code, Message: message}
	if v != nil {
		if raw, err := json.Marshal(v); err == nil { // a value that cannot be marshalled costs the details, not the reason
			r.Details = raw
		}
	}
	return r
}

// InitScope tells whether a failure before any step concerned the whole run or one job.
type InitScope string

// The scopes of an init failure.
const (
	ScopeRun InitScope = "run"
	ScopeJob InitScope = "job"
)

// The categories of an init failure.
const (
	InitSecretResolution  = "secret_resolution"
	InitInstallSecrets    = "install_secrets"
	InitLockResolution    = "lock_resolution"
	InitBuildCoordination = "build_coordination"
	InitEnvironmentRules  = "environment_rules"
	InitDynamicEval       = "dynamic_eval"
	InitNoAgent           = "no_agent"
	InitMatrixExpansion   = "matrix_expansion"
)

// InitFailure says why a run or job ended before any of its steps executed.
type InitFailure struct {
	Scope    InitScope `json:"scope"`
	Category string    `json:"category"`
	Message  string    `json:"message"`           // at most MaxText characters
	JobName  string    `json:"jobName,omitempty"` // for ScopeJob
}

// FailureCategory sorts an ended run for programs that read results. It is empty for a run that neither failed nor was
// cancelled; the first rule that holds wins.
func FailureCategory(status RunStatus, init *InitFailure, timedOut, stepExitedNonZero bool) string {
	switch {
	case status != RunFailed && status != RunCancelled:
		return ""
	case init != nil && init.Category == InitNoAgent:
		return "infra"
	case init != nil:
		return "init_failure"
	case timedOut:
		return "timed_out"
	case status == RunCancelled:
		return "cancelled"
	case stepExitedNonZero:
		return "step_failed"
	}
	return "unknown"
}
