package ci

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/vectors"
)

func TestVectorsStateMachine(t *testing.T) {
	for _, c := range vectors.LoadSuite(t, "state-machine.json") {
		t.Run(c.ID, func(t *testing.T) {
			var in struct {
				State  State
				Event  Signal
				Status string
			}
			if err := json.Unmarshal(c.Input, &in); err != nil {
				t.Fatal(err)
			}
			if c.Fn != "transition" && c.Error != "" {
				t.Fatalf("%s cannot fail with %s", c.Fn, c.Error)
			}
			switch c.Fn {
			case "transition":
				transitionVector(t, c, in.State, in.Event)
			case "isTerminal":
				expect(t, c, in.State.Terminal())
			case "validEvents":
				expect(t, c, append([]Signal{}, ValidEvents(in.State)...))
			case "isTerminalRunStatus":
				expect(t, c, RunStatus(in.Status).Terminal())
			case "isTerminalJobStatus":
				expect(t, c, JobStatus(in.Status).Terminal())
			default:
				t.Fatalf("unknown function %q", c.Fn)
			}
		})
	}
}

func transitionVector(t *testing.T, c vectors.SuiteCase, state State, signal Signal) {
	next, err := Transition(state, signal)
	if c.Error == "" {
		if err != nil {
			t.Fatal(err)
		}
		expect(t, c, next)
		return
	}
	var refused *TransitionError
	if c.Error != "invalid_transition" || !errors.As(err, &refused) || next != "" {
		t.Errorf("%q, %v; want error %s", next, err, c.Error)
	}
}

func expect[T any](t *testing.T, c vectors.SuiteCase, got T) {
	t.Helper()
	var want T
	if err := json.Unmarshal(c.Expected, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTransitionErrorNamesBoth(t *testing.T) {
	_, err := Transition("success", "START")
	if want := "Invalid transition: cannot apply event 'START' in state 'success'"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Every state that a transition leads to is one of the table, or a tool that follows events would end in a state without
// rules.
func TestTransitionsStayWithinTheTable(t *testing.T) {
	for state, signals := range table {
		for signal, next := range signals {
			if _, known := table[next]; !known {
				t.Errorf("%s on %s leads to %s, which is no state", state, signal, next)
			}
		}
	}
	if State("no such").Terminal() || len(ValidEvents("no such")) != 0 {
		t.Error("an unknown state has rules")
	}
}
