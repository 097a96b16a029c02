package ci

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"kici/internal/vectors"
)

func TestTerminalStatuses(t *testing.T) {
	for _, s := range JobStatuses {
		want := s != JobPending && s != JobQueued && s != JobRunning && s != JobRecovering && s != JobCancelling
		if s.Terminal() != want {
			t.Errorf("job status %s: terminal = %v, want %v", s, s.Terminal(), want)
		}
		if s.FailsRun() && !s.Terminal() {
			t.Errorf("job status %s fails a run without being terminal", s)
		}
	}
	for _, s := range RunStatuses {
		want := s == RunSuccess || s == RunFailed || s == RunCancelled
		if s.Terminal() != want {
			t.Errorf("run status %s: terminal = %v, want %v", s, s.Terminal(), want)
		}
	}
}

func TestCutTextCutsOnRunes(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"short stays", "abc", "abc"},
		{"NUL is replaced", "a\x00b", "a\uFFFDb"},
		{"bad UTF-8 is replaced", "a\xffb", "a\uFFFDb"},
		{"cut between characters", strings.Repeat("é", MaxText+5), strings.Repeat("é", MaxText)},
	}
	for _, tt := range tests {
		if got := CutText(tt.in); got != tt.want {
			t.Errorf("%s: got %.20q (%d bytes)", tt.name, got, len(got))
		}
	}
}

func TestFailureCategoryTakesTheFirstRule(t *testing.T) {
	tests := []struct {
		name     string
		status   RunStatus
		init     *InitFailure
		timedOut bool
		nonZero  bool
		want     string
	}{
		{"success has none", RunSuccess, &InitFailure{Category: InitNoAgent}, true, true, ""},
		{"no agent is infrastructure", RunFailed, &InitFailure{Category: InitNoAgent}, true, true, "infra"},
		{"init failure", RunFailed, &InitFailure{Category: InitLockResolution}, true, true, "init_failure"},
		{"timed out beats cancelled", RunCancelled, nil, true, false, "timed_out"},
		{"cancelled", RunCancelled, nil, false, true, "cancelled"},
		{"a step exited non-zero", RunFailed, nil, false, true, "step_failed"},
		{"otherwise unknown", RunFailed, nil, false, false, "unknown"},
	}
	for _, tt := range tests {
		if got := FailureCategory(tt.status, tt.init, tt.timedOut, tt.nonZero); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestVectorsTriggerEvent(t *testing.T) {
	for _, c := range vectors.LoadKind(t, "triggers.json", "triggerEvent") {
		var in struct{ Args [2]string }
		var want string
		if err := errors.Join(json.Unmarshal(c.Input, &in), json.Unmarshal(c.Expected, &want)); err != nil {
			t.Fatal(err)
		}
		if got := (Event{Type: in.Args[0], Action: in.Args[1]}).Display(); got != want {
			t.Errorf("%s: %q, want %q", c.Name, got, want)
		}
	}
}
