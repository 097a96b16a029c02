package contexts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// DefaultApprovalExpiry is how long an approval that the workflow asks for may take when nobody says otherwise.
const DefaultApprovalExpiry = 24 * time.Hour

// Request is a job, or a workflow, that wants to go on.
type Request struct {
	Bound    []Bound
	Dispatch Dispatch
	// Occupying is how many jobs hold a slot of the group: those of the organisation, in runs of that context, that are
	// dispatched and have not ended, with those that this pass let go before.
	Occupying int64
	Approval  *lockfile.Approval // what the workflow itself asks for
	// Satisfied are the holds that let this job go already, oldest first. What people and timers released stays
	// released. A slot does not: it counts while nothing else was waited for since, or those who wait for people would
	// all keep the slot that they once saw free.
	Satisfied []ci.HoldType
	Expiry    Expiry
}

// Expiry is how long the organisation lets holds be open, where neither context nor workflow says; 0 leaves it to the
// defaults.
type Expiry struct {
	Security time.Duration // 0: as the contexts'
	Approval time.Duration // 0: DefaultApprovalExpiry
}

// Hold is one gate that a job waits at.
type Hold struct {
	Type    ci.HoldType
	Queue   ci.QueueType
	Source  ci.HoldSource
	Clauses []lockfile.Clause // people who must all agree; none: any one who may
	Reason  ci.Reason
	// ExpiresIn counts from now. A timer is released then; every other hold expires.
	ExpiresIn time.Duration
	// ReplacesOlder says that the pending concurrency holds of the group are rejected in favour of this one, for the
	// reason that Superseded gives.
	ReplacesOlder bool
}

// Verdict is what the gates say: neither rejections nor holds let the job go.
type Verdict struct {
	Rejections []Rejection
	// Holds are all gates that are in the way now, in order. Only the first is to be opened. When it lets go, the gates
	// are asked again with its type among the satisfied ones; the others are there to tell people what comes next.
	Holds []Hold
}

// Passed tells whether the job may go on.
func (v Verdict) Passed() bool { return len(v.Rejections) == 0 && len(v.Holds) == 0 }

// InitFailure is why the job of that name ends without a step, nil unless a context rejects it.
func (v Verdict) InitFailure(job string) *ci.InitFailure {
	if len(v.Rejections) == 0 {
		return nil
	}
	return &ci.InitFailure{
		Scope: ci.ScopeJob, Category: ci.InitEnvironmentRules, Message: ci.CutText(messages(v.Rejections)), JobName: ci.CutName(job),
	}
}

// Protect asks the gates of all contexts of a job, and then what the workflow itself asks for: may it ever run there, is
// its contributor trusted enough, is there a free slot, do the reviewers agree, has the timer run out. A rejection comes
// before any hold, so that nobody is asked about a job that can never run.
func Protect(r Request) Verdict {
	if rejections := Rejections(r.Bound, r.Dispatch); len(rejections) > 0 {
		return Verdict{Rejections: rejections}
	}
	p := Aggregate(r.Bound)
	var v Verdict
	for _, gate := range []func(Request, Protection) *Hold{trustGate, slotGate, reviewGate, timerGate} {
		if h := gate(r, p); h != nil && !r.satisfied(h.Type) {
			v.Holds = append(v.Holds, *h)
		}
	}
	return v
}

func (r Request) satisfied(t ci.HoldType) bool {
	if t == ci.HoldConcurrency {
		return len(r.Satisfied) > 0 && r.Satisfied[len(r.Satisfied)-1] == t
	}
	return slices.Contains(r.Satisfied, t)
}

// trustGate is passed by a run whose contributor nobody made a statement about.
func trustGate(r Request, p Protection) *Hold {
	tier := r.Dispatch.Tier
	if tier == "" || tier.AtLeast(p.MinimumTrust) {
		return nil
	}
	return &Hold{
		Type: ci.HoldSecurity, Queue: ci.QueueSecurity, Source: ci.HoldFromContext,
		ExpiresIn: cmp.Or(r.Expiry.Security, seconds(p.HoldExpirySeconds)),
		Reason: ci.NewReason(ci.ReasonContextTrust,
			fmt.Sprintf("Requires a contributor of trust '%s', and this one's is '%s'", p.MinimumTrust, tier),
			map[string]any{"minimumTrust": p.MinimumTrust, "trust": tier, "contexts": names(r.Bound)}),
	}
}

func slotGate(r Request, p Protection) *Hold {
	if p.ConcurrencyLimit == nil || r.Occupying < *p.ConcurrencyLimit {
		return nil
	}
	code, message := ci.ReasonContextConcurrency, fmt.Sprintf("Concurrency limit reached (%d/%d)", r.Occupying, *p.ConcurrencyLimit)
	replaces := p.ConcurrencyStrategy == CancelPending
	if replaces {
		code, message = ci.ReasonCancelPending, "cancel-pending: "+message+"; the next job takes this one's place"
	}
	return &Hold{
		Type: ci.HoldConcurrency, Queue: ci.QueueContext, Source: ci.HoldFromContext, ReplacesOlder: replaces,
		ExpiresIn: units(p.ConcurrencyTimeoutMs, time.Millisecond),
		Reason: ci.NewReason(code, message, map[string]any{
			"occupying": r.Occupying, "limit": *p.ConcurrencyLimit, "strategy": p.ConcurrencyStrategy, "contexts": names(r.Bound),
		}),
	}
}

// reviewGate makes one hold of the contexts' reviewers and of the approval that the workflow asks for: it is the same
// people's attention. The shorter of the two times counts.
func reviewGate(r Request, p Protection) *Hold {
	guarded := len(p.RequiredReviewers) > 0 || p.ReviewersUnreadable
	if !guarded && r.Approval == nil {
		return nil
	}
	h := Hold{Type: ci.HoldReviewer, Queue: ci.QueueContext, Source: ci.HoldFromAuthor, Clauses: []lockfile.Clause{}}
	if guarded {
		h.Source, h.ExpiresIn = ci.HoldFromContext, seconds(p.HoldExpirySeconds)
	}
	for _, user := range p.RequiredReviewers {
		h.Clauses = append(h.Clauses, lockfile.Clause{User: user})
	}
	var asked string
	if r.Approval != nil {
		h.Clauses = union(h.Clauses, r.Approval.Clauses)
		asked = r.Approval.Reason
		if expiry := r.approvalExpiry(); !guarded || expiry < h.ExpiresIn {
			h.ExpiresIn = expiry
		}
	}
	h.Reason = ci.NewReason(ci.ReasonApproval, ci.CutText(approvalMessage(h.Clauses, asked, p.ReviewersUnreadable)),
		map[string]any{"clauses": h.Clauses, "contexts": names(r.Bound)})
	return &h
}

func (r Request) approvalExpiry() time.Duration {
	if r.Approval.TimeoutSeconds > 0 {
		return time.Duration(min(r.Approval.TimeoutSeconds, maxSeconds) * float64(time.Second))
	}
	return cmp.Or(r.Expiry.Approval, DefaultApprovalExpiry)
}

// union keeps the order and drops repetitions.
func union(a, b []lockfile.Clause) []lockfile.Clause {
	all := slices.Clone(a)
	for _, c := range b {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

func approvalMessage(clauses []lockfile.Clause, asked string, unreadable bool) string {
	message := "Requires approval from: " + describe(clauses)
	if asked != "" {
		message += " (" + asked + ")"
	}
	if unreadable {
		message += "; the list of reviewers of a context cannot be read"
	}
	return message
}

// describe names the people that clauses ask for.
func describe(clauses []lockfile.Clause) string {
	if len(clauses) == 0 {
		return "anyone who may approve"
	}
	texts := make([]string, len(clauses))
	for i, c := range clauses {
		if texts[i] = c.User; c.Team != "" {
			texts[i] = "team " + c.Team
		}
	}
	return strings.Join(texts, ", ")
}

func timerGate(r Request, p Protection) *Hold {
	if p.WaitTimerSeconds == nil {
		return nil
	}
	return &Hold{
		Type: ci.HoldTimer, Queue: ci.QueueContext, Source: ci.HoldFromContext, ExpiresIn: seconds(*p.WaitTimerSeconds),
		Reason: ci.NewReason(ci.ReasonWaitTimer, fmt.Sprintf("Wait timer: %ds", *p.WaitTimerSeconds),
			map[string]any{"seconds": *p.WaitTimerSeconds, "contexts": names(r.Bound)}),
	}
}
