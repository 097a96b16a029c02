package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/logs"
	"kici/internal/server/store"
)

// An error of which nobody can tell whether it passes counts as poison once the same frame has failed so often and for so
// long: an outage is over by then, or the server's own checks have it.
const (
	poisonTries = 5
	poisonAfter = 15 * time.Minute
	maxFailing  = 4096 // frames that are remembered; beyond it all are forgotten, which costs time only
)

// attempts is how often a frame has come and could not be applied.
type attempts struct {
	since time.Time
	tries int
}

// about names what a frame is about. Frames without a message id are not sent again, whatever becomes of them.
type about struct{ runID, jobID, messageID string }

// aboutOf is for the frames that an agent keeps until they are acknowledged; ok is false for all others.
func aboutOf(m wire.Message) (a about, ok bool) {
	switch m := m.(type) {
	case wire.JobAck:
		return about{m.RunID, m.JobID, m.MessageID}, true
	case wire.JobStatus:
		return about{m.RunID, m.JobID, m.MessageID}, true
	case wire.StepStatus:
		return about{m.RunID, m.JobID, m.MessageID}, true
	case wire.LogChunk:
		return about{m.RunID, m.JobID, m.MessageID}, true
	case wire.ConcurrencyReport:
		return about{m.RunID, m.JobID, m.MessageID}, true
	case wire.ApprovalRequest:
		return about{m.RunID, m.JobID, m.MessageID}, true
	}
	return a, false
}

// poisoned takes a frame that will never be applied: sent again and again, it would keep all that comes after it from
// arriving. Its job ends with that as the reason, the agent is told to let go of it, and the frame is acknowledged. It
// reports false for a frame that is to be sent again.
func (c *conn) poisoned(ctx context.Context, m wire.Message, cause error) bool {
	a, ok := aboutOf(m)
	if !ok || !c.hub.hopeless(c.name()+" "+a.messageID, cause) {
		return false
	}
	c.hub.Log.Error("frame can never be applied, its job fails", "agent", c.name(), "type", m.MessageType(), "run", a.runID, "job", a.jobID, "err", cause)
	// What the database said may quote values, so people read it in the server's log only.
	data, err := json.Marshal(map[string]string{"error": fmt.Sprintf("The server cannot keep a %s frame of this job; its log says why", m.MessageType())})
	if err == nil {
		err = c.hub.Engine.JobReported(ctx, c.name(), wire.JobStatus{MessageID: newID(), RunID: a.runID, JobID: a.jobID,
			State: ci.JobFailed, Timestamp: c.hub.Clock.Millis(), Data: data})
	}
	if err != nil {
		if !refusedByStore(err) {
			return false // the frame comes again, and with it another try
		}
		c.hub.Log.Error("job cannot be failed either, it is left to the check for stale jobs", "run", a.runID, "job", a.jobID, "err", err)
	}
	delete(c.owned, a.jobID)
	c.cancelStray(a.runID, a.jobID)
	c.hub.freed(c, a.jobID)
	if _, isAck := m.(wire.JobAck); !isAck { // it would be the permission to start
		c.acknowledge(a.messageID)
	}
	return true
}

// hopeless tells whether a frame is not worth another try, by its error or by how often it has come.
func (h *Hub) hopeless(frame string, err error) bool {
	switch {
	case refusedByStore(err):
		return true
	case passes(err):
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.failing) >= maxFailing || h.failing == nil {
		h.failing = map[string]attempts{}
	}
	now := h.Clock()
	f, known := h.failing[frame]
	if !known {
		f.since = now
	}
	f.tries++
	h.failing[frame] = f
	if f.tries < poisonTries || now.Sub(f.since) < poisonAfter {
		return false
	}
	delete(h.failing, frame)
	return true
}

// refusedByStore tells that the content of a frame is the trouble.
func refusedByStore(err error) bool {
	if store.IsRefused(err) {
		return true
	}
	var value *json.UnsupportedValueError
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var marshal *json.MarshalerError
	return errors.As(err, &value) || errors.As(err, &syntax) || errors.As(err, &kind) || errors.As(err, &marshal)
}

// passes tells that the trouble is known to be the server's, so that it may last: no time, no room, no database.
func passes(err error) bool {
	var network net.Error
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) ||
		store.IsFull(err) || store.IsUnavailable(err) || errors.Is(err, logs.ErrFull) || errors.Is(err, fs.ErrPermission)
}
