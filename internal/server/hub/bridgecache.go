package hub

import (
	"context"
	"errors"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
)

// cacheFrame is a frame about a cache: whose it is, what answers it when there is no cache for it, and how it is asked.
type cacheFrame struct {
	jobID string
	none  wire.Message // an Ack: the frame has no other answer
	do    func(ctx context.Context, cache Cache, job engine.Owned) (wire.Message, error)
}

// cache takes a frame about a cache. Whether the job is the agent's is decided in the order of the frames; the cache is
// asked beside the reader, since it may be far away.
func (c *conn) cache(ctx context.Context, m wire.Message) error {
	f := cacheFrameOf(m)
	job, ok, err := c.owns(ctx, f.jobID, nil)
	if err != nil && !errors.Is(err, engine.ErrNotOwner) {
		return err
	}
	if !ok || c.hub.Cache == nil {
		c.conclude(f.none)
		return err
	}
	c.aside(job.JobID, func(ctx context.Context) {
		answer, err := f.do(ctx, c.hub.Cache, job)
		if err != nil {
			c.hub.Log.Warn("cache not available", "agent", c.name(), "run", job.RunID, "job", job.JobID, "type", m.MessageType(), "err", err)
			answer = f.none
		}
		c.concludeOr(answer, err)
	})
	return nil
}

func cacheFrameOf(m wire.Message) cacheFrame {
	switch m := m.(type) {
	case wire.CacheUploadRequest:
		return cacheFrame{m.JobID, wire.CacheUploadResponse{RequestID: m.MessageID}, func(ctx context.Context, cache Cache, job engine.Owned) (wire.Message, error) {
			answer, err := cache.BuildUpload(ctx, job, m)
			answer.RequestID = m.MessageID
			return answer, err
		}}
	case wire.CacheUploadComplete:
		ack := wire.Ack{MessageID: m.MessageID}
		return cacheFrame{m.JobID, ack, func(ctx context.Context, cache Cache, job engine.Owned) (wire.Message, error) {
			return ack, cache.BuildUploaded(ctx, job, m)
		}}
	case wire.UserCacheRestoreRequest:
		return cacheFrame{m.JobID, wire.UserCacheRestoreResponse{RequestID: m.MessageID}, func(ctx context.Context, cache Cache, job engine.Owned) (wire.Message, error) {
			answer, err := cache.Restore(ctx, job, m)
			answer.RequestID = m.MessageID
			return answer, err
		}}
	case wire.UserCacheSaveRequest:
		return cacheFrame{m.JobID, wire.UserCacheSaveResponse{RequestID: m.MessageID, Skip: true}, func(ctx context.Context, cache Cache, job engine.Owned) (wire.Message, error) {
			answer, err := cache.Save(ctx, job, m)
			answer.RequestID = m.MessageID
			return answer, err
		}}
	case wire.UserCacheSaveComplete:
		ack := wire.Ack{MessageID: m.MessageID}
		return cacheFrame{m.JobID, ack, func(ctx context.Context, cache Cache, job engine.Owned) (wire.Message, error) {
			return ack, cache.Saved(ctx, job, m)
		}}
	}
	panic("not a frame about a cache: " + m.MessageType()) // bridge names exactly these
}
