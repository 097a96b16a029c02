package contexts

import (
	"cmp"
	"fmt"
	"slices"

	"kici/internal/core/ci"
)

// Waiting is a pending hold as the sweep sees it. Times are milliseconds.
type Waiting struct {
	ID        string
	Type      ci.HoldType
	Group     string // the context whose slots it waits for; ci.HoldConcurrency only
	CreatedAt int64
	ExpiresAt int64
}

// Sweep decides about pending holds: which are released because their time is up or a slot is free, and which expire.
// free is how many slots a group has, its limit less the jobs that occupy them; the oldest holds get them. Releasing goes
// before expiring, since a timer ends when it expires, and a job whose slot has come need not fail for being late.
func Sweep(pending []Waiting, free map[string]int64, now int64) (released, expired []string) {
	oldest := slices.Clone(pending)
	slices.SortFunc(oldest, func(a, b Waiting) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	given := map[string]int64{}
	for _, h := range oldest {
		switch {
		case h.Type == ci.HoldTimer && now >= h.ExpiresAt:
			released = append(released, h.ID)
		case h.Type == ci.HoldConcurrency && given[h.Group] < free[h.Group]:
			given[h.Group]++
			released = append(released, h.ID)
		case now > h.ExpiresAt:
			expired = append(expired, h.ID)
		}
	}
	return released, expired
}

// Expired is the reason of what ends because nobody decided about its hold in time.
func Expired(scope ci.HoldScope) ci.Reason {
	return ci.NewReason(ci.ReasonHoldExpired, fmt.Sprintf("Approval expired for %s hold", scope), nil)
}

// Superseded is the reason of a job that waited for a slot of the group when a newer one came, and whose context lets only
// the newest wait.
func Superseded(group string) ci.Reason {
	return ci.NewReason(ci.ReasonHoldSuperseded, fmt.Sprintf("cancel-pending: a newer job waits for context '%s'", group),
		map[string]any{"context": group})
}
