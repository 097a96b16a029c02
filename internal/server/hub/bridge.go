package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
)

// What agents read when they ask for something that this server does not offer.
const (
	noApprovals = "Approvals not available on this orchestrator"
	noEvents    = "Event routing not available"
)

func newID() string { return uuid.NewString() }

// bridge answers the requests of jobs. None of what they ask for is offered by this server, and each is told so at once
// in the form that the agent can act on: no cache, no approval, no event. A concurrency group that nobody keeps holds up
// nothing.
func (c *conn) bridge(ctx context.Context, m wire.Message) error {
	switch m := m.(type) {
	case wire.ConcurrencyReport:
		ack := wire.ConcurrencyAck{RequestID: m.MessageID, Action: wire.ConcurrencyProceed}
		refused := wire.ConcurrencyAck{RequestID: m.MessageID, Action: wire.ConcurrencyCancel, Reason: engine.ErrNotOwner.Error()}
		return c.ask(ctx, m.JobID, m.MessageID, ack, refused)
	case wire.ApprovalRequest:
		resolved := wire.ApprovalResolved{
			RequestID: m.MessageID, RunID: m.RunID, JobID: m.JobID, StepIndex: m.StepIndex,
			Outcome: wire.ApprovalRejected, Reason: noApprovals,
		}
		refused := resolved
		refused.Reason = engine.ErrNotOwner.Error()
		return c.ask(ctx, m.JobID, m.MessageID, resolved, refused)
	case wire.CacheUploadRequest:
		none := wire.CacheUploadResponse{RequestID: m.MessageID}
		return c.ask(ctx, m.JobID, "", none, none)
	case wire.UserCacheRestoreRequest:
		miss := wire.UserCacheRestoreResponse{RequestID: m.MessageID}
		return c.ask(ctx, m.JobID, "", miss, miss)
	case wire.UserCacheSaveRequest:
		skip := wire.UserCacheSaveResponse{RequestID: m.MessageID, Skip: true}
		return c.ask(ctx, m.JobID, "", skip, skip)
	case wire.ProvenanceUploadRequest:
		none := wire.ProvenanceUploadResponse{RequestID: m.MessageID}
		return c.ask(ctx, m.JobID, "", none, none)
	case wire.EventEmit:
		return c.ask(ctx, m.JobID, "", wire.EventEmitResponse{RequestID: m.RequestID, Error: noEvents},
			wire.EventEmitResponse{RequestID: m.RequestID, Error: engine.ErrNotOwner.Error()})
	case wire.APIRequest:
		return c.apiRequest(ctx, m)
	case wire.CacheUploadComplete:
		return c.ask(ctx, m.JobID, "", nil, nil)
	case wire.UserCacheSaveComplete:
		return c.ask(ctx, m.JobID, "", nil, nil)
	case wire.ProvenanceUploadComplete:
		return c.ask(ctx, m.JobID, "", nil, nil)
	}
	return fmt.Errorf("no handler for %s", m.MessageType())
}

// ask answers a request about a job that is the agent's, and refuses one about any other; nil answers nothing.
func (c *conn) ask(ctx context.Context, jobID, messageID string, answer, refused wire.Message) error {
	o, err := c.ownership(ctx, jobID)
	if err != nil && !errors.Is(err, engine.ErrNotOwner) {
		return err
	}
	if err != nil || o.Past {
		answer = refused
	}
	if answer != nil {
		c.answer(answer)
	}
	if err == nil && messageID != "" {
		c.acknowledge(messageID)
	}
	return err
}

// apiRequest answers a call of the agent API, of which this server has no method.
func (c *conn) apiRequest(ctx context.Context, m wire.APIRequest) error {
	answer := wire.APIResponse{RequestID: m.RequestID, Error: fmt.Sprintf("Unknown API method '%s'", m.Method)}
	var params struct {
		JobID string `json:"jobId"`
	}
	if json.Unmarshal(m.Params, &params) != nil || params.JobID == "" {
		c.answer(answer)
		return nil
	}
	return c.ask(ctx, params.JobID, "", answer, wire.APIResponse{RequestID: m.RequestID, Error: engine.ErrNotOwner.Error()})
}
