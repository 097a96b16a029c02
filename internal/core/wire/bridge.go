package wire

import (
	"encoding/json"
	"errors"
)

// ConcurrencyReport asks whether a job may go on in its concurrency group, whose name the agent computed.
type ConcurrencyReport struct {
	MessageID string `json:"messageId"`
	RunID     string `json:"runId"`
	JobID     string `json:"jobId"`
	Group     string `json:"group"`
}

// MessageType is "job.concurrency.report".
func (ConcurrencyReport) MessageType() string { return "job.concurrency.report" }

// The answers to a ConcurrencyReport.
const (
	ConcurrencyProceed = "proceed"
	ConcurrencyWait    = "wait"
	ConcurrencyCancel  = "cancel"
)

// ConcurrencyAck answers a ConcurrencyReport; RequestID is the report's message id.
type ConcurrencyAck struct {
	RequestID string `json:"requestId"`
	Action    string `json:"action" wire:"enum=proceed|wait|cancel"`
	Reason    string `json:"reason,omitempty" wire:"opt"`
	RunID     string `json:"runId,omitempty" wire:"opt"`
	JobID     string `json:"jobId,omitempty" wire:"opt"`
}

// MessageType is "job.concurrency.ack".
func (ConcurrencyAck) MessageType() string { return "job.concurrency.ack" }

// ApprovalRequest asks people whether a step may go on. The clauses must all be met; none means anybody who may approve.
type ApprovalRequest struct {
	MessageID      string           `json:"messageId"`
	RunID          string           `json:"runId"`
	JobID          string           `json:"jobId"`
	StepIndex      int              `json:"stepIndex" wire:"int,min=0"`
	StepName       string           `json:"stepName"`
	Clauses        []Clause         `json:"clauses"`
	Reason         string           `json:"reason"`
	TimeoutSeconds int              `json:"timeoutSeconds,omitempty" wire:"opt,int,min=1"` // 0 = the organisation's own
	Payload        *ApprovalPayload `json:"payload,omitempty" wire:"opt"`
}

// MessageType is "step.approval-request".
func (ApprovalRequest) MessageType() string { return "step.approval-request" }

// Clause names who must approve: a team or a user, never both.
type Clause struct {
	Team string `json:"team,omitempty" wire:"opt,min=1"`
	User string `json:"user,omitempty" wire:"opt,min=1"`
}

// closed makes a further member of a clause an error: ignoring one could loosen what it asks for.
func (Clause) closed() {}

func (c Clause) check() (field string, err error) {
	if (c.Team == "") == (c.User == "") {
		return "team", errors.New("exactly one of team and user is required")
	}
	return "", nil
}

// ApprovalPayload is what approvers see.
type ApprovalPayload struct {
	SummaryMarkdown string          `json:"summaryMarkdown"`
	Drift           json.RawMessage `json:"drift,omitempty" wire:"opt"`
}

// The outcomes of an approval.
const (
	ApprovalApproved = "approved"
	ApprovalRejected = "rejected"
	ApprovalExpired  = "expired"
)

// ApprovalResolved answers an ApprovalRequest; RequestID is the request's message id.
type ApprovalResolved struct {
	RequestID string `json:"requestId"`
	RunID     string `json:"runId"`
	JobID     string `json:"jobId"`
	StepIndex int    `json:"stepIndex" wire:"int,min=0"`
	Outcome   string `json:"outcome" wire:"enum=approved|rejected|expired"`
	Reason    string `json:"reason,omitempty" wire:"opt"`
}

// MessageType is "step.approval-resolved".
func (ApprovalResolved) MessageType() string { return "step.approval-resolved" }

// The kinds of build caches.
const (
	CacheSource = "source"
	CacheDeps   = "deps"
)

// CacheUploadRequest asks where to put a build cache.
type CacheUploadRequest struct {
	MessageID    string `json:"messageId"`
	JobID        string `json:"jobId"`
	CacheType    string `json:"cacheType" wire:"enum=source|deps"`
	ContentHash  string `json:"contentHash,omitempty" wire:"opt"`  // for source
	LockfileHash string `json:"lockfileHash,omitempty" wire:"opt"` // for deps
	Platform     string `json:"platform"`
	Arch         string `json:"arch"`
}

// MessageType is "cache.upload.request".
func (CacheUploadRequest) MessageType() string { return "cache.upload.request" }

// CacheUploadResponse answers a CacheUploadRequest; an empty URL says that there is no place.
type CacheUploadResponse struct {
	RequestID string `json:"requestId"`
	UploadURL string `json:"uploadUrl"`
}

// MessageType is "cache.upload.response".
func (CacheUploadResponse) MessageType() string { return "cache.upload.response" }

// CacheUploadComplete says that the build cache has been put there.
type CacheUploadComplete struct {
	MessageID    string `json:"messageId"`
	JobID        string `json:"jobId"`
	CacheType    string `json:"cacheType" wire:"enum=source|deps"`
	ContentHash  string `json:"contentHash,omitempty" wire:"opt"`
	LockfileHash string `json:"lockfileHash,omitempty" wire:"opt"`
	Platform     string `json:"platform"`
	Arch         string `json:"arch"`
	DepsHash     string `json:"depsHash,omitempty" wire:"opt"` // SHA-256 of the bytes, hex
}

// MessageType is "cache.upload.complete".
func (CacheUploadComplete) MessageType() string { return "cache.upload.complete" }

// UserCacheRestoreRequest asks for an entry of the user cache: by key, else the newest with one of the prefixes in order.
type UserCacheRestoreRequest struct {
	MessageID   string   `json:"messageId"`
	JobID       string   `json:"jobId"`
	Key         string   `json:"key"`
	RestoreKeys []string `json:"restoreKeys,omitempty" wire:"opt"`
}

// MessageType is "cache.user.restore.request".
func (UserCacheRestoreRequest) MessageType() string { return "cache.user.restore.request" }

// UserCacheRestoreResponse answers a UserCacheRestoreRequest.
type UserCacheRestoreResponse struct {
	RequestID   string `json:"requestId"`
	Hit         bool   `json:"hit"`
	MatchedKey  string `json:"matchedKey,omitempty" wire:"opt"`
	DownloadURL string `json:"downloadUrl,omitempty" wire:"opt"`
	TarHash     string `json:"tarHash,omitempty" wire:"opt"`
}

// MessageType is "cache.user.restore.response".
func (UserCacheRestoreResponse) MessageType() string { return "cache.user.restore.response" }

// UserCacheSaveRequest asks where to put an entry of the user cache.
type UserCacheSaveRequest struct {
	MessageID string `json:"messageId"`
	JobID     string `json:"jobId"`
	Key       string `json:"key"`
}

// MessageType is "cache.user.save.request".
func (UserCacheSaveRequest) MessageType() string { return "cache.user.save.request" }

// UserCacheSaveResponse answers a UserCacheSaveRequest; Skip says that nothing is to be saved.
type UserCacheSaveResponse struct {
	RequestID string `json:"requestId"`
	Skip      bool   `json:"skip"`
	UploadURL string `json:"uploadUrl,omitempty" wire:"opt"`
}

// MessageType is "cache.user.save.response".
func (UserCacheSaveResponse) MessageType() string { return "cache.user.save.response" }

// UserCacheSaveComplete says that the entry has been put there.
type UserCacheSaveComplete struct {
	MessageID string `json:"messageId"`
	JobID     string `json:"jobId"`
	Key       string `json:"key"`
	TarHash   string `json:"tarHash"`
	SizeBytes int64  `json:"sizeBytes" wire:"int,min=0"`
}

// MessageType is "cache.user.save.complete".
func (UserCacheSaveComplete) MessageType() string { return "cache.user.save.complete" }

// ArtifactUploadRequest asks where to put an artifact (FeatureArtifacts).
type ArtifactUploadRequest struct {
	MessageID string `json:"messageId"`
	JobID     string `json:"jobId"`
	Name      string `json:"name"`
	SizeBytes *int64 `json:"sizeBytes,omitempty" wire:"opt,int,min=0"` // nil while it is not known
}

// MessageType is "artifact.upload.request".
func (ArtifactUploadRequest) MessageType() string { return "artifact.upload.request" }

// ArtifactUploadResponse answers an ArtifactUploadRequest, with a place or an error for the job to read.
type ArtifactUploadResponse struct {
	RequestID string `json:"requestId"`
	UploadID  string `json:"uploadId,omitempty" wire:"opt"`
	UploadURL string `json:"uploadUrl,omitempty" wire:"opt"`
	MaxBytes  int64  `json:"maxBytes,omitempty" wire:"opt,int,min=0"` // that may be put there
	Error     string `json:"error,omitempty" wire:"opt"`
}

// MessageType is "artifact.upload.response".
func (ArtifactUploadResponse) MessageType() string { return "artifact.upload.response" }

// ArtifactCommitRequest says that an artifact has been put there, all of it.
type ArtifactCommitRequest struct {
	MessageID string `json:"messageId"`
	JobID     string `json:"jobId"`
	UploadID  string `json:"uploadId"`
	SHA256    string `json:"sha256"` // of the bytes, hex
	SizeBytes int64  `json:"sizeBytes" wire:"int,min=0"`
}

// MessageType is "artifact.commit.request".
func (ArtifactCommitRequest) MessageType() string { return "artifact.commit.request" }

// ArtifactCommitResponse answers an ArtifactCommitRequest: the artifact is kept, unless there is an error, which is for
// the job to read.
type ArtifactCommitResponse struct {
	RequestID string `json:"requestId"`
	Error     string `json:"error,omitempty" wire:"opt"`
}

// MessageType is "artifact.commit.response".
func (ArtifactCommitResponse) MessageType() string { return "artifact.commit.response" }

// ProvenanceUploadRequest asks where to put a provenance bundle.
type ProvenanceUploadRequest struct {
	MessageID     string `json:"messageId"`
	JobID         string `json:"jobId"`
	SubjectDigest string `json:"subjectDigest"`
}

// MessageType is "provenance.upload.request".
func (ProvenanceUploadRequest) MessageType() string { return "provenance.upload.request" }

// ProvenanceUploadResponse answers a ProvenanceUploadRequest; an empty URL says that there is no place.
type ProvenanceUploadResponse struct {
	RequestID string `json:"requestId"`
	UploadURL string `json:"uploadUrl"`
}

// MessageType is "provenance.upload.response".
func (ProvenanceUploadResponse) MessageType() string { return "provenance.upload.response" }

// ProvenanceUploadComplete says that the bundle has been put there.
type ProvenanceUploadComplete struct {
	MessageID     string `json:"messageId"`
	JobID         string `json:"jobId"`
	SubjectName   string `json:"subjectName"`
	SubjectDigest string `json:"subjectDigest"`
	MediaType     string `json:"mediaType"`
}

// MessageType is "provenance.upload.complete".
func (ProvenanceUploadComplete) MessageType() string { return "provenance.upload.complete" }

// EventEmit emits an internal event on behalf of a job.
type EventEmit struct {
	JobID     string          `json:"jobId"`
	RequestID string          `json:"requestId"`
	EventName string          `json:"eventName"`
	Payload   json.RawMessage `json:"payload" wire:"object"`
	Target    *EventTarget    `json:"target,omitempty" wire:"opt"`
}

// MessageType is "event.emit".
func (EventEmit) MessageType() string { return "event.emit" }

// EventTarget limits who gets an event.
type EventTarget struct {
	Repos []string `json:"repos,omitempty" wire:"opt"`
}

// EventEmitResponse answers an EventEmit, with an id or an error.
type EventEmitResponse struct {
	RequestID  string `json:"requestId"`
	DeliveryID string `json:"deliveryId,omitempty" wire:"opt"`
	Error      string `json:"error,omitempty" wire:"opt"`
}

// MessageType is "event.emit.response".
func (EventEmitResponse) MessageType() string { return "event.emit.response" }

// APIRequest calls a method of the server for a job's code.
type APIRequest struct {
	RequestID string          `json:"requestId"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params,omitempty" wire:"opt,object"` // nil = {}
}

// MessageType is "agent.api.request".
func (APIRequest) MessageType() string { return "agent.api.request" }

// APIResponse answers an APIRequest, with a result (any JSON value, null too) or an error.
type APIResponse struct {
	RequestID string          `json:"requestId"`
	Result    json.RawMessage `json:"result,omitempty" wire:"opt"`
	Error     string          `json:"error,omitempty" wire:"opt"`
}

// MessageType is "agent.api.response".
func (APIResponse) MessageType() string { return "agent.api.response" }
