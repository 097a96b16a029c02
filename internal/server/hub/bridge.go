package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
)

// What agents read when they ask for something that this server does not offer.
const (
	noApprovals = "Approvals not available on this orchestrator"
	noEvents    = "Event routing not available"
)

var errNotOwner = engine.ErrNotOwner.Error()

func newID() string { return uuid.NewString() }

// bridge answers the requests of jobs. What this server does not offer is answered at once in the form that the agent can
// act on: no cache, no approval, no event. A concurrency group that nobody keeps holds up nothing.
func (c *conn) bridge(ctx context.Context, m wire.Message) error {
	switch m := m.(type) {
	case wire.ConcurrencyReport:
		return c.concurrency(ctx, m)
	case wire.ApprovalRequest:
		return c.approval(ctx, m)
	case wire.CacheUploadRequest, wire.CacheUploadComplete, wire.UserCacheRestoreRequest, wire.UserCacheSaveRequest, wire.UserCacheSaveComplete:
		return c.cache(ctx, m)
	case wire.ArtifactUploadRequest:
		return c.artifact(ctx, m.JobID, func(text string) wire.Message {
			return wire.ArtifactUploadResponse{RequestID: m.MessageID, Error: text}
		},
			func(ctx context.Context, job engine.Owned) (wire.Message, error) {
				answer, err := c.hub.Cache.BeginArtifact(ctx, job, m)
				answer.RequestID = m.MessageID
				return answer, err
			})
	case wire.ArtifactCommitRequest:
		return c.artifact(ctx, m.JobID, func(text string) wire.Message {
			return wire.ArtifactCommitResponse{RequestID: m.MessageID, Error: text}
		},
			func(ctx context.Context, job engine.Owned) (wire.Message, error) {
				return wire.ArtifactCommitResponse{RequestID: m.MessageID}, c.hub.Cache.CommitArtifact(ctx, job, m)
			})
	case wire.ProvenanceUploadRequest:
		return c.beginBundle(ctx, m)
	case wire.ProvenanceUploadComplete:
		return c.completeBundle(ctx, m)
	case wire.EventEmit:
		return c.event(ctx, m)
	case wire.APIRequest:
		return c.apiRequest(ctx, m)
	}
	return fmt.Errorf("no handler for %s", m.MessageType())
}

// owns finds the job that a request is about. When it is not the agent's now, the request is answered with refused,
// unless that is nil. A job that once was the agent's is no violation.
func (c *conn) owns(ctx context.Context, jobID string, refused wire.Message) (o engine.Owned, ok bool, err error) {
	o, err = c.ownership(ctx, jobID)
	if err != nil && !errors.Is(err, engine.ErrNotOwner) {
		return o, false, err
	}
	if err == nil && !o.Past {
		return o, true, nil
	}
	if refused != nil {
		c.answer(refused)
	}
	return o, false, err
}

// concurrency asks whether a job may go on in its group. An agent that cannot be told to wait loses the job instead.
func (c *conn) concurrency(ctx context.Context, m wire.ConcurrencyReport) error {
	refused := wire.ConcurrencyAck{RequestID: m.MessageID, Action: wire.ConcurrencyCancel, Reason: errNotOwner}
	_, ok, err := c.owns(ctx, m.JobID, refused)
	if err != nil {
		return err
	}
	if !ok {
		c.acknowledge(m.MessageID)
		return nil
	}
	ack, err := c.place(ctx, m)
	if err != nil {
		return err
	}
	ack.RequestID = m.MessageID
	c.answer(ack)
	c.acknowledge(m.MessageID)
	return nil
}

// place asks for a place in the group. An agent that cannot be told to wait may lose its job by that, and once it has, the job can
// be given out again at any moment. So the agent counts as occupied with ending it before that is decided.
func (c *conn) place(ctx context.Context, m wire.ConcurrencyReport) (wire.ConcurrencyAck, error) {
	if c.hub.Concurrency == nil {
		return wire.ConcurrencyAck{Action: wire.ConcurrencyProceed}, nil
	}
	patient := c.agent.Load().newer
	if !patient {
		c.occupy(m.JobID, true)
	}
	ack, err := c.hub.Concurrency.Report(ctx, c.name(), patient, m)
	switch {
	case patient || err != nil && !errors.Is(err, engine.ErrNotOwner): // the connection ends with such an error
	case err == nil && ack.Action == wire.ConcurrencyWait:
		ack.Action = wire.ConcurrencyCancel
	default:
		c.hub.release(c, m.JobID)
	}
	return ack, err
}

// occupy notes that an agent still has to end a job that is not its own any more. It is offered nothing until then: least of all
// the same job, which the end of the old attempt would end. deaf tells that it said all it had to say of the job.
func (c *conn) occupy(jobID string, deaf bool) {
	jobID = strings.Clone(jobID) // what is kept must not hold the whole frame
	delete(c.owned, jobID)
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if c.withdrawn == nil {
		c.withdrawn = map[string]bool{}
	}
	c.withdrawn[jobID] = deaf
}

// approval asks people. The answer follows from the outbox when they have not decided yet.
func (c *conn) approval(ctx context.Context, m wire.ApprovalRequest) error {
	rejected := wire.ApprovalResolved{RequestID: m.MessageID, RunID: m.RunID, JobID: m.JobID, StepIndex: m.StepIndex,
		Outcome: wire.ApprovalRejected, Reason: errNotOwner}
	_, ok, err := c.owns(ctx, m.JobID, rejected)
	if err != nil {
		return err
	}
	rejected.Reason = noApprovals
	answer := &rejected
	if ok && c.hub.Approvals != nil {
		if answer, err = c.hub.Approvals.Request(ctx, c.name(), m); err != nil {
			return err
		}
	}
	if ok && answer != nil {
		c.answer(*answer)
	}
	c.acknowledge(m.MessageID)
	return nil
}

// event stores what a job tells others, beside the reader and before whatever the agent says next of the job's end.
func (c *conn) event(ctx context.Context, m wire.EventEmit) error {
	job, ok, err := c.owns(ctx, m.JobID, wire.EventEmitResponse{RequestID: m.RequestID, Error: errNotOwner})
	if err != nil || !ok {
		return err
	}
	if c.hub.Events == nil {
		c.answer(wire.EventEmitResponse{RequestID: m.RequestID, Error: noEvents})
		return nil
	}
	c.aside(job.JobID, func(ctx context.Context) {
		answer, err := c.hub.Events.Emit(ctx, job, m)
		if err != nil {
			c.hub.Log.Warn("event not stored", "agent", c.name(), "run", job.RunID, "job", job.JobID, "err", err)
			answer = wire.EventEmitResponse{Error: apiTrouble}
		}
		answer.RequestID = m.RequestID
		c.answer(answer)
	})
	return nil
}
