package adminwire

import "kici/internal/core/ci"

// Explanation says of one run what everything in it waits for, and why everything in it ended.
type Explanation struct {
	RunID        string       `json:"runId"`
	WorkflowName string       `json:"workflowName"`
	Status       ci.RunStatus `json:"status"`
	Reason       *ci.Reason   `json:"reason"`
	CancelledBy  *string      `json:"cancelledBy"` // who asked for the end of the run
	// CancelledByName is what people call the token that CancelledBy tells by its id, "" where it is none that is known.
	CancelledByName string         `json:"cancelledByName,omitempty"`
	Jobs            []ExplainedJob `json:"jobs"`
}

// ExplainedJob is why one job is where it is.
type ExplainedJob struct {
	JobID   string       `json:"jobId"`
	JobName string       `json:"jobName"`
	Status  ci.JobStatus `json:"status"`
	Reason  ci.Reason    `json:"reason"`
	Since   Time         `json:"since"` // when it came to where it is, where that is stored
	Until   Time         `json:"until"` // when the wait ends by itself, null for never
	// Holds are the open gates on the job, one of its steps, or the workflow that it begins.
	Holds []HeldRun `json:"holds,omitempty"`
	// Steps are the steps that did not end well, of a job that has ended.
	Steps []ExplainedStep `json:"steps,omitempty"`
	// Agents tells, for a job in the queue, what stands between it and the agents, nearest first, at most MaxCandidates.
	Agents []Candidate `json:"agents,omitempty"`
}

// MaxCandidates bounds the agents that are compared with one job. How many there are stands in the reason's details.
const MaxCandidates = 20

// ExplainedStep is a step that failed or was not run to its end.
type ExplainedStep struct {
	StepIndex    int           `json:"stepIndex"`
	StepName     string        `json:"stepName"`
	Status       ci.StepStatus `json:"status"`
	ExitCode     *int64        `json:"exitCode"`
	ErrorMessage *string       `json:"errorMessage"`
}

// Candidate is an agent as a waiting job sees it.
type Candidate struct {
	AgentID   string     `json:"agentId"`
	Fits      bool       `json:"fits"`
	Missing   []string   `json:"missing"`            // in words; empty when it fits
	Running   []string   `json:"running"`            // jobs that fill it, by id
	Busy      []Occupant `json:"busy"`               // the same jobs with their names
	Slots     int        `json:"slots"`              // how many jobs it takes at a time
	AwaySince Time       `json:"awaySince"`          // not connected since then; null for a connected one
	Draining  bool       `json:"draining,omitempty"` // its node gives out no jobs now
	Node      string     `json:"node,omitempty"`     // then, its id
	// RebootUntil is when its host is to be back from a reboot; it gets no jobs until then. Absent without one.
	RebootUntil Time `json:"rebootUntil,omitzero"`
}

// Full tells whether the agent has no room for another job.
func (c Candidate) Full() bool { return len(c.Busy) >= c.Slots }

// Occupant is a job that takes one of an agent's places.
type Occupant struct {
	JobID        string `json:"jobId"`
	JobName      string `json:"jobName"`
	RunID        string `json:"runId"`
	WorkflowName string `json:"workflowName"`
	Since        Time   `json:"since"` // given to the agent
}
