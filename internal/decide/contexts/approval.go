package contexts

import (
	"fmt"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// Answer is what somebody says to a hold.
type Answer string

// The answers.
const (
	Approve Answer = "approve"
	Reject  Answer = "reject"
)

// Vote is an answer that was recorded.
type Vote struct {
	UserID    string
	Answer    Answer
	Satisfied []lockfile.Clause // what the answer satisfied then; teams may have changed since
}

// Actor is who answers.
type Actor struct {
	ID    string
	Name  string // for people; two may have the same, so it satisfies nothing
	Teams []string
	// MayDecide says that the actor has the right that the queue of the hold asks for: to write contexts, or to vouch for
	// strangers.
	MayDecide bool
}

// Open is a hold as those who decide it see it.
type Open struct {
	Status            ci.HoldStatus
	Queue             ci.QueueType
	Clauses           []lockfile.Clause // all must be satisfied; none: one approval is enough
	Votes             []Vote
	Triggerer         string // user id of who started the run; "" when nobody did
	AllowSelfApproval bool
}

// Result is what an answer does.
type Result string

// The results of an answer. Only the first three are recorded.
const (
	Released   Result = "released"   // the hold becomes approved and what it held goes on
	Rejected   Result = "rejected"   // the hold becomes rejected
	Pending    Result = "pending"    // others have to approve too
	Ineligible Result = "ineligible" // not for this actor to say
	NotFound   Result = "not-found"  // decided already, or another queue's
)

// Decision is the result with what to record.
type Decision struct {
	Result    Result
	Satisfied []lockfile.Clause // by this approval
	Remaining []lockfile.Clause // of Pending: what is still to be satisfied, in order
	Reason    ci.Reason         // of Rejected, Ineligible and NotFound
}

// Decide says what an answer to a hold that came in through a queue does. Whoever stores it does so only while the hold is
// still pending and has these votes.
func Decide(h Open, through ci.QueueType, by Actor, answer Answer) Decision {
	switch {
	case h.Status != ci.HoldPending:
		return notFound(fmt.Sprintf("the hold is decided already: %s", h.Status))
	case through != h.Queue:
		return notFound(fmt.Sprintf("the hold belongs to the %s queue", h.Queue))
	case by.ID == "":
		return ineligible("nobody knows who answers")
	case answer == Approve:
		return h.approve(by)
	case answer == Reject:
		return h.reject(by)
	}
	return ineligible(fmt.Sprintf("decision must be %s or %s, not %q", Approve, Reject, answer))
}

func notFound(why string) Decision {
	return Decision{Result: NotFound, Reason: ci.NewReason("hold_not_found", why, nil)}
}

func ineligible(why string) Decision {
	return Decision{Result: Ineligible, Reason: ci.NewReason("ineligible", why, nil)}
}

// approve takes an approval of whoever satisfies something that nobody has satisfied yet. Without clauses, and for what
// strangers may run, the right to decide is needed.
func (h Open) approve(by Actor) Decision {
	open := h.unsatisfied()
	satisfied, remaining := by.split(open)
	switch {
	case by.ID == h.Triggerer && !h.AllowSelfApproval:
		return ineligible("whoever started a run may not approve it")
	case !by.MayDecide && (h.Queue == ci.QueueSecurity || len(h.Clauses) == 0):
		return ineligible("the right to approve is missing")
	case len(h.Clauses) > 0 && len(satisfied) == 0:
		return ineligible("approval is still required from: " + describe(open))
	case len(remaining) > 0:
		return Decision{Result: Pending, Satisfied: satisfied, Remaining: remaining}
	}
	return Decision{Result: Released, Satisfied: satisfied}
}

// reject takes a rejection of whoever a clause names, satisfied or not: who has approved may think again. The right to
// decide is enough, too, since stopping is the safe answer; for the same reason one may reject a run of one's own.
func (h Open) reject(by Actor) Decision {
	named, _ := by.split(h.Clauses)
	if !by.MayDecide && (h.Queue == ci.QueueSecurity || len(named) == 0) {
		return ineligible("the right to reject is missing")
	}
	who := by.Name
	if who == "" {
		who = by.ID
	}
	return Decision{Result: Rejected, Reason: ci.NewReason(ci.ReasonHoldRejected, "Rejected by "+ci.CutName(who), map[string]any{"user": by.ID})}
}

// unsatisfied are the clauses that no approval has satisfied, in order.
func (h Open) unsatisfied() []lockfile.Clause {
	return slices.DeleteFunc(slices.Clone(h.Clauses), func(c lockfile.Clause) bool {
		return slices.ContainsFunc(h.Votes, func(v Vote) bool { return v.Answer == Approve && slices.Contains(v.Satisfied, c) })
	})
}

// split parts clauses into those that the actor satisfies and the others.
func (a Actor) split(clauses []lockfile.Clause) (satisfied, remaining []lockfile.Clause) {
	for _, c := range clauses {
		if c.User != "" && c.User == a.ID || c.Team != "" && slices.Contains(a.Teams, c.Team) {
			satisfied = append(satisfied, c)
		} else {
			remaining = append(remaining, c)
		}
	}
	return satisfied, remaining
}
