package adminapi

import (
	"context"
	"fmt"
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/server/dispatch"
)

// Dispatcher gives out jobs on this node.
type Dispatcher interface {
	Drain(ctx context.Context, on bool) error
	Draining() bool
	Running(ctx context.Context) (int, error)
	Depth() dispatch.Depth
}

// showDrain tells whether the node that answers drains.
func (a *API) showDrain(r *http.Request) (answer, error) {
	if a.Dispatcher == nil {
		return notFound(r)
	}
	running, err := a.Dispatcher.Running(r.Context())
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.Drain{Draining: a.Dispatcher.Draining(), JobsRunning: running})
}

// changeDrain drains or resumes the node that answers. Doing so twice is doing it once.
func (a *API) changeDrain(r *http.Request) (answer, error) {
	if a.Dispatcher == nil {
		return notFound(r)
	}
	var in adminwire.DrainRequest
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	if in.Action != adminwire.DrainAction && in.Action != adminwire.ResumeAction {
		return answer{}, invalid(problem("action", "invalid_enum_value", fmt.Sprintf("must be %s or %s", adminwire.DrainAction, adminwire.ResumeAction)))
	}
	if err := a.Dispatcher.Drain(r.Context(), in.Action == adminwire.DrainAction); err != nil {
		return answer{}, err
	}
	a.note(r, "orchestrator."+in.Action, "node", "")
	return a.showDrain(r)
}

// depth is the queue as a whole, for its listing; nil on a node that does not know.
func (a *API) depth() *adminwire.QueueDepth {
	if a.Dispatcher == nil {
		return nil
	}
	d := a.Dispatcher.Depth()
	return &adminwire.QueueDepth{Pending: d.Pending, Dispatched: d.Dispatched, OldestAgeMs: d.OldestAge.Milliseconds(),
		Backpressure: d.Pressed, Draining: a.Dispatcher.Draining()}
}
