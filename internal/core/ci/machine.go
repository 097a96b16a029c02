package ci

import (
	"fmt"
	"maps"
	"slices"
)

// State is a state of the abstract machine that tools check an order of events against. Rows of runs and jobs have more
// ways than it knows; what may become of them is decided by the engine.
type State string

// Signal is an event of the abstract machine.
type Signal string

// table holds every transition of the abstract machine. A state without signals is terminal.
var table = map[State]map[Signal]State{
	"pending": {"ENQUEUE": "queued", "CANCEL": "cancelled", "SKIP": "skipped", "HOLD": "held", "WAIT": "waiting"},
	"queued":  {"START": "running", "FAIL": "failed", "CANCEL": "cancelled"},
	"running": {
		"SUCCEED": "success", "FAIL": "failed", "CANCEL": "cancelled", "CANCEL_GRACEFUL": "cancelling",
		"RECOVER": "recovering",
	},
	"recovering": {"START": "running", "FAIL": "failed", "CANCEL": "cancelled"},
	"cancelling": {"CANCEL_FORCE": "cancelled", "COMPLETE": "cancelled", "FAIL": "failed"},
	"held":       {"APPROVE": "queued", "REJECT": "cancelled", "EXPIRE": "cancelled", "CANCEL": "cancelled"},
	"waiting":    {"TIMER_DONE": "queued", "CANCEL": "cancelled"},
	"success":    {},
	"failed":     {},
	"cancelled":  {},
	"skipped":    {},
}

// TransitionError says that a state does not take a signal.
type TransitionError struct {
	State  State
	Signal Signal
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("Invalid transition: cannot apply event '%s' in state '%s'", e.Signal, e.State)
}

// Transition gives the state that follows. The error is a *TransitionError.
func Transition(state State, signal Signal) (State, error) {
	next, ok := table[state][signal]
	if !ok {
		return "", &TransitionError{state, signal}
	}
	return next, nil
}

// ValidEvents lists the signals that the state takes, sorted; none for a terminal or unknown state.
func ValidEvents(state State) []Signal { return slices.Sorted(maps.Keys(table[state])) }

// Terminal tells whether no signal leads out of the state. An unknown state is none.
func (s State) Terminal() bool {
	signals, known := table[s]
	return known && len(signals) == 0
}
