package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/engine"
)

// unusableError says that no frame can be made of a job, now or later. The message is for people and holds no secret.
type unusableError struct {
	category string
	message  string
	cause    error
}

func (e *unusableError) Error() string { return e.message }
func (e *unusableError) Unwrap() error { return e.cause }

// Permanent marks an error of resolving secrets as one that the next try would meet again. Its text is shown to people,
// so it must hold no secret.
func Permanent(err error) error {
	return &unusableError{category: ci.InitSecretResolution, message: fmt.Sprintf("Secret resolution failed: %v", err), cause: err}
}

// NotInstallable is Permanent for a secret without which the dependencies of a job cannot be installed.
func NotInstallable(err error) error {
	return &unusableError{category: ci.InitInstallSecrets, message: fmt.Sprintf("Install secrets cannot be resolved: %v", err), cause: err}
}

// frame builds the dispatch of a job: what is stored with it, and what is resolved only now, its secrets and what the
// jobs that it needs have left.
func (d *Dispatcher) frame(ctx context.Context, jobID string, of material, a Agent) (wire.JobDispatch, error) {
	in, err := d.engine.Complete(ctx, of.stored)
	if err != nil {
		return wire.JobDispatch{}, err
	}
	grant, err := d.secrets.ForJob(ctx, in, of.known, a.ID)
	if err != nil {
		return wire.JobDispatch{}, fmt.Errorf("secrets of job %s: %w", jobID, err)
	}
	if err := in.SetVariables(grant.Variables); err != nil {
		return wire.JobDispatch{}, err
	}
	outputs, err := lifecycle.UpstreamOutputs(in.Bases, in.Upstreams)
	if err != nil {
		return wire.JobDispatch{}, fmt.Errorf("upstream outputs of job %s: %w", jobID, err)
	}
	packed := d.packed(ctx, in, a)
	return wire.JobDispatch{
		MessageID: uuid.NewString(), RunID: in.RunID, JobID: jobID,
		RepoURL: in.CloneURL, Ref: in.Ref, SHA: in.SHA,
		JobConfig: in.Config, Timestamp: d.clock.Millis(), RequestID: in.RequestID,
		Secrets: grant.Secrets, NamespacedSecrets: grant.Namespaced, RunPublicKey: grant.RunPublicKey, MaxLogSizeBytes: d.settings.MaxLogBytes,
		NpmRegistries: grant.Registries, InstallEnvSecrets: grant.InstallEnv,
		UpstreamJobOutputs:  outputs,
		UpstreamJobStatuses: lifecycle.UpstreamStatuses(in.Upstreams, a.KnowsUnroutable),
		OrgID:               in.OrgID, RepoID: in.Repo, CacheRefScope: in.CacheScope,
		SourceTarURL: packed.SourceURL, SourceTarHash: packed.SourceHash, DepsURL: packed.DepsURL, DepsHash: packed.DepsHash,
	}, nil
}

// tooLarge explains a dispatch that no agent would read, by what makes it large.
func tooLarge(frame wire.JobDispatch, cause error) *unusableError {
	outputs, most, name := 0, -1, ""
	for _, of := range slices.Sorted(maps.Keys(frame.UpstreamJobOutputs)) {
		size := len(frame.UpstreamJobOutputs[of])
		outputs += size
		if size > most {
			most, name = size, of
		}
	}
	message := fmt.Sprintf("The job does not fit into the %d bytes that its agent can be sent: its configuration with the event has %d",
		wire.MaxFrame, len(frame.JobConfig))
	if outputs > 0 {
		message += fmt.Sprintf(", the outputs of the jobs that it needs have %d, most of them from %s with %d", outputs, name, most)
	}
	return &unusableError{category: ci.InitEnvironmentRules, message: message, cause: cause}
}

// packed finds what a build has packed for the job. Trouble with that costs the agent the time to get it by itself.
func (d *Dispatcher) packed(ctx context.Context, in engine.Input, a Agent) Packed {
	if d.builds == nil {
		return Packed{}
	}
	packed, err := d.builds.Packed(ctx, in, a.Platform, a.Arch)
	if err != nil {
		d.log.Warn("packed source and dependencies not found, the agent gets them by itself", "job", in.JobID, "err", err)
		return Packed{}
	}
	return packed
}
