package adminwire

import (
	"encoding/json"

	"kici/internal/core/ci"
)

// HeldRun is a gate on a run, a job or a step that a person, a time or a slot releases.
type HeldRun struct {
	ID            string          `json:"id"`
	RunID         string          `json:"runId"`
	WorkflowName  string          `json:"workflowName"`
	JobID         *string         `json:"jobId"` // null for a hold on the whole workflow
	JobName       *string         `json:"jobName"`
	HoldScope     ci.HoldScope    `json:"holdScope"`
	StepIndex     *int            `json:"stepIndex"`
	StepName      *string         `json:"stepName"`
	HoldType      ci.HoldType     `json:"holdType"`
	QueueType     ci.QueueType    `json:"queueType"`
	TriggerSource ci.HoldSource   `json:"triggerSource"`
	ContextName   *string         `json:"contextName"`
	Status        ci.HoldStatus   `json:"status"`
	Reason        ci.Reason       `json:"reason"`
	Clauses       []Clause        `json:"clauses"` // all must be satisfied; of none, one approval is enough
	Approvals     []Approval      `json:"approvals"`
	Payload       json.RawMessage `json:"payload"` // what a step shows those who decide
	CreatedAt     Time            `json:"createdAt"`
	ExpiresAt     Time            `json:"expiresAt"` // of a timer: when it lets go
	ResolvedAt    Time            `json:"resolvedAt"`
	ResolvedBy    *string         `json:"resolvedBy"`
}

// Clause names who has to approve: a team or a user.
type Clause struct {
	Team string `json:"team,omitempty"`
	User string `json:"user,omitempty"`
}

// Approval is an answer that somebody has given to a hold.
type Approval struct {
	ApproverID string   `json:"approverId"`
	Decision   string   `json:"decision"` // approve or reject
	Satisfied  []Clause `json:"clausesSatisfied"`
	Comment    *string  `json:"comment"`
	CreatedAt  Time     `json:"createdAt"`
}

// HeldRunList is holds, the oldest first.
type HeldRunList struct {
	HeldRuns []HeldRun `json:"heldRuns"`
}

// HoldAnswer is an answer to a hold.
type HoldAnswer struct {
	HoldID   string `json:"holdId"`
	Decision string `json:"decision"` // approve or reject
	// As says for whom the caller answers: a user, or "team:<name>" for a team. Without it the token answers for itself,
	// which satisfies no clause.
	As      string `json:"as,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// HoldDecided is what an answer to a hold did: released, rejected, or pending while others have to approve too.
type HoldDecided struct {
	Status           string   `json:"status"`
	RemainingClauses []Clause `json:"remainingClauses,omitempty"`
}

// Rerun is the run that was made of an ended one.
type Rerun struct {
	RunID       string `json:"runId"`
	ParentRunID string `json:"parentRunId"`
}
