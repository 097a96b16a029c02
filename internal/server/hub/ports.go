package hub

import (
	"context"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
)

// Cache keeps build caches, what jobs cache for themselves, and artifacts. Whose cache it is follows from the job, never from the
// frame. Calls about one job follow each other in the order in which its agent sent the frames, beside the reading of its
// connection, and those that tell of an upload have returned before the end of the job is applied. An error is answered
// as no cache: a job must not fail because its cache does.
type Cache interface {
	// BuildUpload answers where a build cache goes; an empty URL says that there is no place.
	BuildUpload(ctx context.Context, job engine.Owned, m wire.CacheUploadRequest) (wire.CacheUploadResponse, error)
	BuildUploaded(ctx context.Context, job engine.Owned, m wire.CacheUploadComplete) error
	// Restore finds an entry of the user cache, and Save the place of a new one. RequestID is filled in by the hub.
	Restore(ctx context.Context, job engine.Owned, m wire.UserCacheRestoreRequest) (wire.UserCacheRestoreResponse, error)
	Save(ctx context.Context, job engine.Owned, m wire.UserCacheSaveRequest) (wire.UserCacheSaveResponse, error)
	Saved(ctx context.Context, job engine.Owned, m wire.UserCacheSaveComplete) error
	// BeginArtifact finds the place of an artifact, and CommitArtifact keeps what was put there. A *cache.Refusal is for the
	// job to read: unlike a cache, an artifact that is not kept is the step's to know.
	BeginArtifact(ctx context.Context, job engine.Owned, m wire.ArtifactUploadRequest) (wire.ArtifactUploadResponse, error)
	CommitArtifact(ctx context.Context, job engine.Owned, m wire.ArtifactCommitRequest) error
}

// Concurrency keeps the groups of which only so many runs go on at a time.
type Concurrency interface {
	// Report decides whether the job may go on in the group that its agent names. It has committed when it returns, and a
	// report that comes again (same run and group) is answered again. The agent owns the job.
	//
	// patient tells that the agent understands being told to wait. Then the answer may be ConcurrencyWait, and the later
	// proceed or cancel goes through the outbox as a Frame with the report's message id as RequestID.
	//
	// An agent that is not patient cannot be told to wait. When Report answers ConcurrencyWait for it all the same, it has
	// taken the job away from the agent in the same transaction, to be given out again once its turn has come. The hub
	// then tells the agent to cancel with the answer's reason, drops everything that the agent still says of that
	// delivery, and offers it no work before it has ended it.
	Report(ctx context.Context, agentID string, patient bool, m wire.ConcurrencyReport) (wire.ConcurrencyAck, error)
}

// Approvals asks people whether a step may go on.
type Approvals interface {
	// Request stores the question, or finds it by its message id when it comes again. It has committed when it returns.
	// A nil answer says that nobody has decided yet: the answer goes through the outbox as a Frame later.
	Request(ctx context.Context, agentID string, m wire.ApprovalRequest) (*wire.ApprovalResolved, error)
}

// Events takes what jobs tell other workflows.
type Events interface {
	// Emit stores the event and has committed when it returns. Who tells it follows from the job, never from the frame. An
	// answer with an Error is for the job to read. RequestID is filled in by the hub.
	Emit(ctx context.Context, job engine.Owned, m wire.EventEmit) (wire.EventEmitResponse, error)
}

// Pool is a scaler as jobs may see it through the agent API.
type Pool struct {
	Name      string     `json:"name"`
	Type      string     `json:"type"` // the backend
	LabelSets [][]string `json:"labelSets"`
	Source    string     `json:"source"` // "local", or the node that has it
}
