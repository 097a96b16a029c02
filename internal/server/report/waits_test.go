package report

import (
	"encoding/json"
	"strings"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// A day is one of UTC.
func TestATimeOfDayIsToldAloneOnItsDayOnly(t *testing.T) {
	const midnight = 1_767_312_000_000 // 2026-01-02T00:00:00Z
	for _, tt := range []struct {
		now, at int64
		want    string
	}{
		{midnight, 0, ""},
		{midnight, midnight, " since 00:00:00Z"},
		{midnight, midnight - 1, " since 2026-01-01T23:59:59Z"},
		{midnight - 1, midnight - 1, " since 23:59:59Z"},
		{midnight - 1, midnight, " since 2026-01-02T00:00:00Z"},
		{midnight, midnight - 366*24*60*60*1000, " since 2025-01-01T00:00:00Z"},
	} {
		if got := clock(tt.now).tell(" since ", adminwire.At(tt.at)); got != tt.want {
			t.Errorf("at %d of %d: %q, want %q", tt.now, tt.at, got, tt.want)
		}
	}
}

// A time that nobody wrote is no midnight: an agent may come back with a job whose start it never told.
func TestATimeThatIsMissingIsNotTold(t *testing.T) {
	agent := "a-1"
	for _, tt := range []struct {
		name string
		w    waiting
		want string
	}{
		{"running", waiting{started: true}, "with agent a-1"},
		{"running, given out", waiting{started: true, claimed: 61_000}, "with agent a-1 since 00:01:01Z"},
		{"running, told", waiting{started: true, claimed: 61_000, startedAt: 62_000}, "with agent a-1 since 00:01:02Z"},
		{"stalled", waiting{started: true, progress: 3, progressAt: 1000, lastSign: 1000 + stalledAfter.Milliseconds()},
			"with agent a-1; the agent is alive, and nothing has come of the job since 00:00:01Z"},
		{"alive, and counts nothing", waiting{started: true, progress: 3, lastSign: stalledAfter.Milliseconds()}, "with agent a-1"},
		{"recovering", waiting{entry: adminwire.QueueEntry{Status: ci.QueueRecovering}}, "agent a-1 lost its connection; waiting for it"},
		{"starting", waiting{}, "agent a-1 has taken it and has not started it yet"},
	} {
		if tt.w.entry.AgentID = &agent; tt.w.entry.Status == "" {
			tt.w.entry.Status = ci.QueueDispatched
		}
		got := fleetView{clock: 1}.reason(tt.w)
		raw, err := json.Marshal(got)
		if err != nil || got.Message != tt.want || strings.Contains(string(raw), "T00:00:00") {
			t.Errorf("%s: %s, %v, want %q", tt.name, raw, err, tt.want)
		}
	}
}
