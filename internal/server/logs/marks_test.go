package logs

import (
	"errors"
	"testing"
	"time"

	"kici/internal/server/logs/retention"
)

func TestMarksGoWithTheirRuns(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		mustAppend(t, s, chunk("a", "1"))
		flush(t, s)
		if err := s.marks.Sweep(t.Context(), retention.Policy{RunMaxAge: 1, Run: states{}.of}); err != nil {
			t.Fatalf("without a mark: %v", err)
		}
		if gone, err := (keeper{s}).Remove(t.Context(), "r", true); err != nil || !gone {
			t.Fatal(err)
		}
		for _, step := range []struct {
			keep   retention.Policy
			marked bool
		}{
			{retention.Policy{Run: states{"r": retention.RunUnknown}.of}, true},
			{retention.Policy{RunMaxAge: time.Hour, Run: states{"r": retention.RunUnknown}.of}, true},
			{retention.Policy{RunMaxAge: 1, Run: states{"r": retention.RunEnded}.of}, true},
			{retention.Policy{RunMaxAge: 1, Run: states{"r": retention.RunUnknown}.of}, false},
		} {
			if err := s.marks.Sweep(t.Context(), step.keep); err != nil {
				t.Fatal(err)
			}
			if _, _, _, err := s.Lines(t.Context(), buildLog, 0, 1); errors.Is(err, ErrExpired) != step.marked {
				t.Errorf("runs kept for %s: %v, marked: want %t", step.keep.RunMaxAge, err, step.marked)
			}
		}
	})
}

func TestLogsOfAForgottenRunLeaveNoMark(t *testing.T) {
	eachWhole(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		writeRun(t, s, "r", 48*time.Hour)
		if err := sweepOnce(t, s, retention.Policy{RunMaxAge: 24 * time.Hour, Run: states{"r": retention.RunUnknown}.of}); err != nil {
			t.Fatal(err)
		}
		if _, total, _, err := s.Lines(t.Context(), Path("r", "build", 0), 0, 1); err != nil || total != 0 {
			t.Errorf("%d lines, %v", total, err)
		}
	})
}
