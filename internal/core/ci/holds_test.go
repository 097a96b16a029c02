package ci

import "testing"

func TestHoldStatuses(t *testing.T) {
	letsGo := map[HoldStatus]bool{HoldPending: false, HoldApproved: true, HoldRejected: false, HoldExpired: false, HoldReleased: true}
	for _, s := range HoldStatuses {
		if want, known := letsGo[s]; !known || s.LetsGo() != want {
			t.Errorf("hold status %s: lets go = %v", s, s.LetsGo())
		}
		if s.LetsGo() && !s.Terminal() {
			t.Errorf("hold status %s lets go without being decided", s)
		}
	}
	if HoldPending.Terminal() || !HoldExpired.Terminal() {
		t.Error("only a pending hold is undecided")
	}
}

func TestTiersAreOrdered(t *testing.T) {
	tests := []struct {
		tier, least Tier
		want        bool
	}{
		{TierTrusted, TierTrusted, true}, {TierKnown, TierTrusted, false}, {TierUnknown, TierTrusted, false},
		{TierTrusted, TierKnown, true}, {TierKnown, TierKnown, true}, {TierUnknown, TierKnown, false},
		{TierUnknown, "", true}, {TierUnknown, TierUnknown, true}, {"", TierKnown, false}, {"guest", TierKnown, false},
		{TierKnown, "maintainer", false}, // a minimum that nobody knows lets only the highest through
	}
	for _, tt := range tests {
		if got := tt.tier.AtLeast(tt.least); got != tt.want {
			t.Errorf("%q at least %q = %v", tt.tier, tt.least, got)
		}
	}
}
