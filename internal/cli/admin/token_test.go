package admin

import (
	"testing"
	"time"
)

func TestExpiryIsNeverMisread(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"30d": "2026-01-31T00:00:00Z", "12h": "2026-01-01T12:00:00Z", "45m": "2026-01-01T00:45:00Z", "2027-01-01T00:00:00Z": "2027-01-01T00:00:00Z",
		"30": "", "30s": "", "d": "", "-3d": "", "0d": "", "1h30": "", "-5m": "", "tomorrow": "", "2020-01-01T00:00:00Z": "", "99999999d": "",
	} {
		got, err := expiry(text, now)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: %v, want an error", text, got)
		case want != "" && (err != nil || got.Format(time.RFC3339) != want):
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
