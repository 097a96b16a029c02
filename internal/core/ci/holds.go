package ci

// HoldType says what a hold waits for.
type HoldType string

// The types of holds, in the order in which a job meets them.
const (
	HoldSecurity    HoldType = "security"    // somebody who vouches for a contributor that is not trusted enough
	HoldConcurrency HoldType = "concurrency" // a free slot
	HoldReviewer    HoldType = "reviewer"    // named people
	HoldTimer       HoldType = "timer"       // a time
)

// HoldTypes lists every type, in that order.
var HoldTypes = []HoldType{HoldSecurity, HoldConcurrency, HoldReviewer, HoldTimer}

// HoldStatus is the state of a hold. A decided hold never changes again.
type HoldStatus string

// The states of a hold.
const (
	HoldPending  HoldStatus = "pending"
	HoldApproved HoldStatus = "approved" // by people
	HoldRejected HoldStatus = "rejected" // by people, by the end of its run, or by a newer job in its queue
	HoldExpired  HoldStatus = "expired"
	HoldReleased HoldStatus = "released" // by a timer or a free slot
)

// HoldStatuses lists every state.
var HoldStatuses = []HoldStatus{HoldPending, HoldApproved, HoldRejected, HoldExpired, HoldReleased}

// Terminal tells whether the hold is decided.
func (s HoldStatus) Terminal() bool { return s != HoldPending }

// LetsGo tells whether what was held may go on.
func (s HoldStatus) LetsGo() bool { return s == HoldApproved || s == HoldReleased }

// HoldScope says what is held.
type HoldScope string

// The scopes of a hold.
const (
	HoldWorkflow HoldScope = "workflow"
	HoldJob      HoldScope = "job"
	HoldStep     HoldScope = "step"
)

// QueueType says whose business a hold is. Who decides one kind has no say in the other.
type QueueType string

// The queues of holds.
const (
	QueueContext  QueueType = "context"  // those who answer for a deployment target
	QueueSecurity QueueType = "security" // those who answer for what strangers may run
)

// HoldSource says who asked for a hold.
type HoldSource string

// The sources of a hold.
const (
	HoldFromContext HoldSource = "context"  // the rules of a context
	HoldFromAuthor  HoldSource = "explicit" // the workflow itself
)

// Tier is how far the contributor behind an event is trusted. The empty tier is no statement, as for a push or a
// schedule.
type Tier string

// The tiers, least trusted first.
const (
	TierUnknown Tier = "unknown"
	TierKnown   Tier = "known"
	TierTrusted Tier = "trusted"
)

// AtLeast tells whether t is as trusted as least or more. No least asks for nothing; one that is not a tier asks for the
// highest, and what is not a tier is trusted as little as the unknown one.
func (t Tier) AtLeast(least Tier) bool {
	switch least {
	case "", TierUnknown:
		return true
	case TierKnown:
		return t == TierKnown || t == TierTrusted
	}
	return t == TierTrusted
}

// Reasons of gates and of holds.
const (
	ReasonContextNotFound    = "context_not_found" // a name that means no context
	ReasonContextDisabled    = "context_disabled"
	ReasonBranchRestricted   = "branch_restricted"
	ReasonTriggerFiltered    = "trigger_filtered"
	ReasonRepoUnmatched      = "repo_unmatched"
	ReasonContextTrust       = "context_trust"       // the contributor is trusted too little
	ReasonContextConcurrency = "context_concurrency" // as many jobs as may are running
	ReasonCancelPending      = "cancel_pending"      // the same, and the next job that comes takes this one's place
	ReasonApproval           = "approval_required"   // people have to agree
	ReasonWaitTimer          = "wait_timer"
	ReasonHoldRejected       = "hold_rejected"   // somebody said no
	ReasonHoldExpired        = "hold_expired"    // nobody decided in time
	ReasonHoldSuperseded     = "hold_superseded" // a newer job took its place
)
