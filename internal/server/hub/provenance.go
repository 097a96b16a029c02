package hub

import (
	"context"
	"errors"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
)

// Provenance keeps the bundles that jobs make. It never fails a job.
type Provenance interface {
	// BeginUpload gives the link to put a bundle by, "" when there is no place for it.
	BeginUpload(ctx context.Context, job engine.Owned, digest string) (link string, err error)
	// CompleteUpload judges and keeps what was put. One that comes again, since its acknowledgement was lost, changes nothing.
	CompleteUpload(ctx context.Context, job engine.Owned, m wire.ProvenanceUploadComplete) error
}

// beginBundle answers where a bundle goes. Why there is no place stands in the log: the answer has no room for it.
func (c *conn) beginBundle(ctx context.Context, m wire.ProvenanceUploadRequest) error {
	answer := wire.ProvenanceUploadResponse{RequestID: m.MessageID}
	return c.bundle(ctx, m.JobID, answer, func(ctx context.Context, job engine.Owned) (wire.Message, error) {
		link, err := c.hub.Provenance.BeginUpload(ctx, job, m.SubjectDigest)
		if err == nil {
			answer.UploadURL = link
		}
		return answer, err
	})
}

// completeBundle keeps what was put, and acknowledges that: whatever became of it, it need not be said again.
func (c *conn) completeBundle(ctx context.Context, m wire.ProvenanceUploadComplete) error {
	return c.bundle(ctx, m.JobID, wire.Ack{MessageID: m.MessageID}, func(ctx context.Context, job engine.Owned) (wire.Message, error) {
		return wire.Ack{MessageID: m.MessageID}, c.hub.Provenance.CompleteUpload(ctx, job, m)
	})
}

// bundle takes a frame about a bundle, in the order of the job's frames and beside the reader. none is the answer when
// nothing comes of it.
func (c *conn) bundle(ctx context.Context, jobID string, none wire.Message, do func(context.Context, engine.Owned) (wire.Message, error)) error {
	job, ok, err := c.owns(ctx, jobID, nil)
	if err != nil && !errors.Is(err, engine.ErrNotOwner) {
		return err
	}
	if !ok || c.hub.Provenance == nil {
		c.conclude(none)
		return err
	}
	c.aside(job.JobID, func(ctx context.Context) {
		answer, err := c.stillOwned(ctx, job, do)
		if err != nil {
			c.hub.Log.Warn("attestation not kept", "agent", c.name(), "run", job.RunID, "job", job.JobID, "err", err)
			answer = none
		}
		c.concludeOr(answer, err)
	})
	return nil
}

// concludeOr sends an answer, unless the trouble is one that passes and the agent says the same again on its next
// connection: an acknowledgement would have it forget that something is stored, which nobody has noted. A server that ends
// leaves everything to the next one.
func (c *conn) concludeOr(answer wire.Message, err error) {
	if _, ack := answer.(wire.Ack); ack && passes(err) || c.hub.ctx.Err() != nil {
		return
	}
	c.conclude(answer)
}

// conclude sends an answer, and an acknowledgement only to an agent that knows what it is.
func (c *conn) conclude(answer wire.Message) {
	if ack, ok := answer.(wire.Ack); ok {
		c.acknowledge(ack.MessageID)
		return
	}
	c.answer(answer)
}
