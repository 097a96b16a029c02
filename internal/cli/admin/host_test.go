package admin

import (
	"testing"

	"kici/internal/core/adminwire"
)

func TestAHostSaysWhetherItIsExpectedBack(t *testing.T) {
	for want, h := range map[string]adminwire.Host{
		"ready":       {Status: "ready"},
		"no agent":    {Status: "unreachable", Uninitialized: true},
		"unreachable": {Status: "unreachable"},
		"unreachable, reboots until 2026-01-01T00:15:00Z": {Status: "unreachable", RebootUntil: adminwire.At(1_767_226_500_000)},
	} {
		if got := hostStatus(h); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
