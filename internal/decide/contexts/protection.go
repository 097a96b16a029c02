package contexts

import (
	"math"
	"slices"
	"time"

	"kici/internal/core/ci"
)

// Protection is what the contexts of a job demand together: of each rule the strictest.
type Protection struct {
	MinimumTrust         ci.Tier  // "": none
	RequiredReviewers    []string // sorted by bytes; never nil
	ReviewersUnreadable  bool     // some context's list cannot be read
	WaitTimerSeconds     *int64   // nil: none
	HoldExpirySeconds    int64
	ConcurrencyLimit     *int64 // nil: none
	ConcurrencyTimeoutMs int64  // of those that have a limit
	ConcurrencyStrategy  Strategy
}

// Aggregate makes one protection of several contexts. One more context never makes it weaker; the strategy is that of
// the first, since none is stricter than the other. Names without a context are left out: Rejections refuses them.
func Aggregate(bound []Bound) Protection {
	p := Protection{RequiredReviewers: []string{}, ConcurrencyStrategy: Queue, ConcurrencyTimeoutMs: DefaultConcurrencyTimeoutMs}
	var expiry, timeout *int64
	first := true
	for _, b := range bound {
		c := b.Context
		if c == nil {
			continue
		}
		if first && c.ConcurrencyStrategy != "" {
			p.ConcurrencyStrategy = c.ConcurrencyStrategy
		}
		first = false
		p.add(c)
		expiry = least(expiry, positive(c.HoldExpirySeconds, FallbackHoldExpirySeconds))
		if c.ConcurrencyLimit != nil {
			timeout = least(timeout, positive(c.ConcurrencyTimeoutMs, DefaultConcurrencyTimeoutMs))
		}
	}
	slices.Sort(p.RequiredReviewers)
	p.RequiredReviewers = slices.Compact(p.RequiredReviewers)
	p.HoldExpirySeconds = valueOr(expiry, FallbackHoldExpirySeconds)
	p.ConcurrencyTimeoutMs = valueOr(timeout, DefaultConcurrencyTimeoutMs)
	return p
}

func (p *Protection) add(c *Context) {
	if !p.MinimumTrust.AtLeast(c.MinimumTrust) {
		p.MinimumTrust = c.MinimumTrust
	}
	p.RequiredReviewers = append(p.RequiredReviewers, c.RequiredReviewers...)
	p.ReviewersUnreadable = p.ReviewersUnreadable || c.ReviewersUnreadable
	if c.WaitTimerSeconds != nil && (p.WaitTimerSeconds == nil || *p.WaitTimerSeconds < *c.WaitTimerSeconds) {
		p.WaitTimerSeconds = c.WaitTimerSeconds
	}
	p.ConcurrencyLimit = least(p.ConcurrencyLimit, c.ConcurrencyLimit)
}

// least is the smaller number; nil is larger than any.
func least(a, b *int64) *int64 {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// positive is n, or the fallback for what is not set.
func positive(n, fallback int64) *int64 {
	if n <= 0 {
		n = fallback
	}
	return &n
}

func valueOr(n *int64, fallback int64) int64 {
	if n == nil {
		return fallback
	}
	return *n
}

// seconds is a duration of n seconds, the longest that there is when n is more, none when it is less than none.
func seconds(n int64) time.Duration { return units(n, time.Second) }

func units(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/int64(unit))) * unit
}
