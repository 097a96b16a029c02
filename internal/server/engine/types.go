// Package engine is the only writer of runs, jobs and steps. Every change is one transaction: it loads the slice that a
// command needs, lets the life cycle decide, and stores what was decided together with its effects.
package engine

import (
	"encoding/json"
	"errors"

	"kici/internal/core/ci"
	"kici/internal/decide/plan"
)

// ErrNotOwner says that an agent spoke of a job that is not its own: never given to it, or long over.
var ErrNotOwner = errors.New("this job is not owned by this agent")

// Registration is everything that is known about a run when it is made. The run id is derived from the delivery, so
// registering twice is harmless: the second call changes nothing.
type Registration struct {
	RunID          string
	OrgID          string
	RoutingKey     string // the source's
	Provider       string // local, generic, github
	Repo           string // repository identifier
	Ref            string // branch that the event presents
	SHA            string
	CloneURL       string          // what agents clone
	CheckoutRef    string          // short branch or tag name to clone, "" for the default branch
	DeliveryID     string          //
	RequestID      string          // trace id of the delivery
	TriggerEvent   string          // for people: "push", "pull_request:opened"
	Decision       json.RawMessage // the decision trace
	Event          json.RawMessage // the envelope; kept once a run and given to every job
	CommitMessage  string          // first line
	Sender         string
	TriggeredBy    string // who asked for it, where a person did
	ParentRunID    string // the run that this one repeats
	OriginalRunID  string // the first of a chain of repetitions
	CheckMode      string // "", apply, check or check-fail-on-drift
	TrustTier      ci.Tier
	ChainDepth     int    // of the event that started the run, 0 when none did
	LockFileSource string // head or base
	Plan           plan.Plan
}

// Owned is a job as its agent may speak of it. What the hub does with a frame about it:
// a current owner's frame is applied; a Past owner's is acknowledged and dropped, so that a replay after a long absence
// ends, and is no violation; any other agent gets ErrNotOwner.
type Owned struct {
	RunID   string
	JobID   string
	JobName string
	// Past tells that the job was this agent's and no longer is: it was requeued, or it ended longer ago than late
	// messages are taken for.
	Past bool
}

// Ack is the answer to an agent's job.ack.
type Ack struct {
	// Fenced tells that the job is no longer this agent's: it must not start and is told to cancel.
	Fenced bool
	// Job is the agent's. It is empty where that is still to be asked: of one that is fenced off, or came from another node.
	Job Owned
}
