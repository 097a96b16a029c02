package wire

import (
	"encoding/json"
	"errors"

	"kici/internal/core/ci"
)

// JobDispatch gives a job to an agent. Secrets, keys and credentials stand only in its own members, never in JobConfig.
// Which of the optional members an agent needs to do its work is noted beside them.
type JobDispatch struct {
	MessageID   string          `json:"messageId"`
	RunID       string          `json:"runId"`
	JobID       string          `json:"jobId"`       // the job's identity in every later message
	RepoURL     string          `json:"repoUrl"`     // clone URL; "" only for a job without checkout
	Ref         string          `json:"ref"`         // short branch or tag to clone; "" = the default branch
	SHA         string          `json:"sha"`         // HEAD must start with it; "" or HEAD skips the check
	LockFileURL string          `json:"lockFileUrl"` // for people, may be ""
	JobConfig   json.RawMessage `json:"jobConfig" wire:"object"`
	Timestamp   int64           `json:"timestamp"`

	Token             string               `json:"token,omitempty" wire:"opt"` // older form of SourceAuth
	SourceAuth        *GitAuth             `json:"sourceAuth,omitempty" wire:"opt"`
	WorkflowAuth      *GitAuth             `json:"workflowAuth,omitempty" wire:"opt"` // absent: SourceAuth is used
	Secrets           map[string]string    `json:"secrets,omitempty" wire:"opt"`      // needed where steps read secrets
	NamespacedSecrets ci.NamespacedSecrets `json:"namespacedSecrets,omitempty" wire:"opt"`
	MaxLogSizeBytes   int64                `json:"maxLogSizeBytes,omitempty" wire:"opt,coerce"` // a step; 0 = the agent's own
	SourceTarURL      string               `json:"sourceTarUrl,omitempty" wire:"opt"`
	SourceTarHash     string               `json:"sourceTarHash,omitempty" wire:"opt"` // the workflow's content hash
	DepsURL           string               `json:"depsUrl,omitempty" wire:"opt"`
	DepsHash          string               `json:"depsHash,omitempty" wire:"opt"` // SHA-256 of the bytes, hex
	RequestID         string               `json:"requestId,omitempty" wire:"opt"`
	RunPublicKey      string               `json:"runPublicKey,omitempty" wire:"opt"` // X25519 SPKI DER, base64; needed for secret outputs
	// UpstreamJobOutputs holds an object per needed job, needed where the job reads them.
	UpstreamJobOutputs  map[string]json.RawMessage `json:"upstreamJobOutputs,omitempty" wire:"opt,object"`
	UpstreamJobStatuses map[string]ci.JobStatus    `json:"upstreamJobStatuses,omitempty" wire:"opt,enum=pending|queued|running|recovering|cancelling|success|failed|cancelled|skipped|timed_out_stale|drift_dropped|unroutable"`
	NpmRegistries       []NpmRegistry              `json:"npmRegistries,omitempty" wire:"opt"`
	InstallEnvSecrets   map[string]string          `json:"installEnvSecrets,omitempty" wire:"opt"`
	OrgID               string                     `json:"orgId,omitempty" wire:"opt"`
	RepoID              string                     `json:"repoId,omitempty" wire:"opt"`
	CacheRefScope       string                     `json:"cacheRefScope,omitempty" wire:"opt,enum=shared|isolated"` // "" = isolated
}

// MessageType is "job.dispatch".
func (JobDispatch) MessageType() string { return "job.dispatch" }

func (m JobDispatch) check() (field string, err error) {
	if m.Token == "" || m.SourceAuth == nil {
		return "", nil
	}
	if m.SourceAuth.Kind != GitBasic || m.SourceAuth.Secret != m.Token {
		return "sourceAuth", errors.New("disagrees with token")
	}
	return "", nil
}

// The kinds of GitAuth, and its host key policies.
const (
	GitBasic     = "basic"
	GitSSH       = "ssh"
	SSHAcceptNew = "accept-new"
	SSHPinned    = "pinned"
)

// GitAuth is a credential for cloning.
type GitAuth struct {
	Kind             string `json:"kind" wire:"enum=basic|ssh"`
	Secret           string `json:"secret"` // password or token; private key in PEM for ssh
	User             string `json:"user,omitempty" wire:"opt"`
	SSHHostKeyPolicy string `json:"sshHostKeyPolicy,omitempty" wire:"opt,enum=accept-new|pinned"`
	SSHKnownHostsPem string `json:"sshKnownHostsPem,omitempty" wire:"opt"` // required for ssh with pinned host keys
}

func (a GitAuth) check() (field string, err error) {
	if a.Kind == GitSSH && a.SSHHostKeyPolicy == SSHPinned && a.SSHKnownHostsPem == "" {
		return "sshKnownHostsPem", errors.New("is required for pinned host keys")
	}
	return "", nil
}

// NpmRegistry is a registry that the dependency installation of a job may use.
type NpmRegistry struct {
	URL        string `json:"url" wire:"url"`
	Scope      string `json:"scope,omitempty" wire:"opt"`
	AlwaysAuth bool   `json:"alwaysAuth"`
	Token      string `json:"token" wire:"min=1"`
}

// JobCancel asks the agent to end a job. It answers with a terminal job.status; a job it does not know it ignores.
type JobCancel struct {
	MessageID string `json:"messageId"`
	RunID     string `json:"runId"`
	JobID     string `json:"jobId"`
	Reason    string `json:"reason"`
	Force     bool   `json:"force,omitempty" wire:"opt"`         // no grace, no hooks
	GraceMs   int64  `json:"graceMs,omitempty" wire:"opt,min=0"` // 0 = the agent's own grace
}

// MessageType is "job.cancel".
func (JobCancel) MessageType() string { return "job.cancel" }
