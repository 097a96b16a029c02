package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"kici/internal/server/live"
)

// Live lets somebody look at a run while it goes on. lastID is the id of the last message seen before, "" for none; caller is
// what the Authorization of the request said. The viewer is the caller's to close.
type Live interface {
	Watch(ctx context.Context, runID, lastID, caller string) (*live.Viewer, error)
}

// The times of a stream of events. Silence is broken, since proxies cut silent connections; a reader that takes too long
// for one message is cut off and may come back.
const (
	beatEvery = 15 * time.Second
	writeTime = 30 * time.Second
	holdsFor  = time.Second // how long a token is taken for good
)

// watchRun streams a run's messages as server-sent events until it has ended. Who comes back says with Last-Event-ID, or
// lastSeenSequence in the query, the id of the last event that it has seen.
func (a *API) watchRun(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	if a.Live == nil {
		return answer{}, refuse(http.StatusServiceUnavailable, "Live streams are not available on this instance")
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("lastSeenSequence")
	}
	v, err := a.Live.Watch(r.Context(), run.RunID, last, r.Header.Get("Authorization"))
	if err != nil {
		return answer{}, err
	}
	return ok(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer v.Close()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(a.live, cancel)()
		sendEvents(ctx, w, v, func() bool { return a.Tokens.Holds(r) })
	}))
}

// sendEvents writes what the viewer sees until there is no more, the reader is gone or may not see it any longer, or ctx ends.
// There is nobody to tell of an error: the reader sees that the stream ended without its end, and comes back.
func sendEvents(ctx context.Context, w http.ResponseWriter, v *live.Viewer, may func() bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that collects would hold events back
	w.WriteHeader(http.StatusOK)
	to := http.NewResponseController(w)
	defer func() { _ = to.SetWriteDeadline(time.Time{}) }() // the connection may serve another request
	if send(w, to, "retry: 1000\n\n") != nil {
		return
	}
	for asked := time.Now(); ; {
		text, err := nextEvent(ctx, v)
		if time.Since(asked) >= holdsFor {
			if asked = time.Now(); !may() {
				return
			}
		}
		if err != nil || send(w, to, text) != nil {
			return
		}
	}
}

// nextEvent is the next message as an event, or a comment when there is none for a while.
func nextEvent(ctx context.Context, v *live.Viewer) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	m, id, err := v.Next(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return ": still here\n\n", nil
	}
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(m)
	return fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, m.Type, raw), err
}

func send(w http.ResponseWriter, to *http.ResponseController, text string) error {
	if err := to.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	return to.Flush()
}
