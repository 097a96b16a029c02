package report

import (
	"encoding/json"
	"strings"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/fleet"
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

// An agent that is away is known to be only once it has been silent for long enough. Before, who asks sees since when.
func TestAnAgentThatIsNotHeardOfIsTold(t *testing.T) {
	const now = 1_000_000 // 00:16:40Z
	agent := "a-1"
	fast := fleet.Agent{ID: agent, Features: []string{wire.FeatureFastBeat}}
	seen := func(a fleet.Agent, at int64) fleet.Agent { a.LastSeenAt = at; return a }
	running := func(sign int64) waiting { return waiting{started: true, startedAt: 60_000, lastSign: sign} }
	const told, silent = "with agent a-1 since 00:01:00Z", "with agent a-1 since 00:01:00Z; nothing has been heard of the agent since "
	for _, tt := range []struct {
		name  string
		agent fleet.Agent
		w     waiting
		want  string
	}{
		{"fast, two beats", fast, running(now - 20_000), told},
		{"fast, longer", fast, running(now - 20_001), silent + "00:16:19Z"},
		{"slow, two beats", fleet.Agent{ID: agent}, running(now - 120_000), told},
		{"slow, longer", fleet.Agent{ID: agent}, running(now - 120_001), silent + "00:14:39Z"},
		{"heard of otherwise", seen(fast, now-5000), running(now - 90_000), told},
		{"heard of otherwise, and not since", seen(fast, now-30_000), running(now - 90_000), silent + "00:16:10Z"},
		{"never a sign", fast, waiting{started: true, startedAt: 60_000}, silent + "00:01:00Z"},
		{"forgotten", fleet.Agent{ID: "a-2"}, running(now - 120_001), silent + "00:14:39Z"},
		{"stalled, and then silent", fast, waiting{started: true, startedAt: 60_000, progress: 3, progressAt: 61_000, lastSign: now - 60_000}, silent + "00:15:40Z"},
		{"a clock that is behind", fast, running(now + 60_000), told},
		{"taken, within two touches", seen(fast, now-120_000), waiting{claimed: now - 200_000}, "agent a-1 has taken it and has not started it yet"},
		{"taken", seen(fast, now-120_001), waiting{claimed: now - 200_000},
			"agent a-1 has taken it and has not started it yet; nothing has been heard of the agent since 00:14:39Z"},
		{"just taken", seen(fast, now-300_000), waiting{claimed: now - 1000}, "agent a-1 has taken it and has not started it yet"},
	} {
		tt.w.entry.AgentID, tt.w.entry.Status = &agent, ci.QueueDispatched
		v := fleetView{clock: now, agents: map[string]fleet.Agent{tt.agent.ID: tt.agent}}
		if got := v.reason(tt.w); got.Message != tt.want || (got.Code == reasonSilent) != strings.Contains(tt.want, "nothing has been heard") {
			t.Errorf("%s: %s %q, want %q", tt.name, got.Code, got.Message, tt.want)
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
