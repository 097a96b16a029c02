package job

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"kici/internal/agent/host"
	"kici/internal/agent/workspace"
	"kici/internal/core/wire"
)

// prepare puts source and dependencies into the workspace and checks the source against the lock file. Its progress
// goes to the log of the job itself.
func (j *Job) prepare(ws *workspace.Workspace) error {
	ctx := j.ctx
	if limit := j.conf.timeout(); limit > 0 { // the time of a job includes its preparation
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &timeoutError{limit})
		defer cancel()
	}
	err := j.fetchSource(ctx, ws)
	if err == nil {
		err = j.checkSource(ws)
	}
	if err == nil && (j.conf.kind() != build || j.conf.BuildDepsNeeded) {
		err = j.fetchDependencies(ctx, ws)
	}
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	if err != nil {
		j.say("%v", err)
	}
	return err
}

// say writes a line to the log of the job, which moves on with it.
func (j *Job) say(format string, args ...any) {
	j.progress.Add(1)
	j.logs.Add(j.logIndex(wire.JobLevel), "[kici] "+fmt.Sprintf(format, args...))
}

func (j *Job) fetchSource(ctx context.Context, ws *workspace.Workspace) error {
	started := time.Now()
	switch {
	case j.conf.FullRepo || !j.conf.checkout():
		j.say("No checkout")
	case j.conf.IsGlobalWorkflow:
		workflowAuth, sourceAuth := j.d.WorkflowAuth, j.sourceAuth()
		if workflowAuth == nil {
			workflowAuth = sourceAuth
		}
		if sourceAuth == nil {
			sourceAuth = workflowAuth
		}
		err := j.clone(ctx, ws, workspace.CloneSpec{URL: j.conf.WorkflowRepoURL, Ref: j.conf.WorkflowRef, SHA: j.conf.WorkflowSHA,
			Auth: credential(workflowAuth), Dir: "workflow"})
		if err == nil {
			err = j.clone(ctx, ws, workspace.CloneSpec{URL: j.d.RepoURL, Ref: j.d.Ref, SHA: j.d.SHA, Auth: credential(sourceAuth), Dir: "source"})
		}
		if err != nil {
			return err
		}
	default:
		err := j.clone(ctx, ws, workspace.CloneSpec{URL: j.d.RepoURL, Ref: j.d.Ref, SHA: j.d.SHA, Auth: credential(j.sourceAuth())})
		if err != nil {
			return err
		}
	}
	j.shop.Metrics.Cloned(time.Since(started))
	return j.addSource(ctx, ws)
}

func (j *Job) clone(ctx context.Context, ws *workspace.Workspace, spec workspace.CloneSpec) error {
	started := time.Now()
	if j.conf.kind() == build {
		j.event("agent.clone.start", 0, nil)
	}
	err := ws.Clone(ctx, spec)
	if err == nil {
		if j.conf.kind() == build {
			j.event("agent.clone.end", time.Since(started), nil)
		}
		j.say("Source of %s at %s in %d ms", orDefault(spec.Ref, "the default branch"), orDefault(spec.SHA, "its tip"), time.Since(started).Milliseconds())
	}
	return err
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// addSource lays the files of a test run and the cached workflow folder over the clone.
func (j *Job) addSource(ctx context.Context, ws *workspace.Workspace) error {
	if j.conf.TarballURL != "" && j.conf.CLIPublicKey != "" && j.conf.OrchestratorKey != "" {
		overlay := workspace.Overlay{URL: j.shop.reach(j.conf.TarballURL), PublicKey: j.conf.CLIPublicKey, PrivateKey: j.conf.OrchestratorKey}
		if err := ws.ApplyOverlay(ctx, j.shop.Client, j.root(), overlay); err != nil {
			return err
		}
		j.say("Applied the working tree of the test run")
	}
	if j.d.SourceTarURL == "" {
		return nil
	}
	if err := ws.Restore(ctx, j.shop.Client, j.root(), workspace.Archive{URL: j.shop.reach(j.d.SourceTarURL)}); err != nil {
		return fmt.Errorf("restore the workflow source: %w", err)
	}
	return nil
}

// root is the repository that holds the workflow, relative to the workspace.
func (j *Job) root() string {
	if j.conf.IsGlobalWorkflow {
		return "workflow"
	}
	return ""
}

func (j *Job) checkSource(ws *workspace.Workspace) error {
	return workspace.DriftGate(filepath.Join(ws.Dir(), j.root()), j.conf.sourceFile(), j.conf.ContentHash, j.conf.ResolvedHashFiles)
}

// fetchDependencies restores the dependencies of the workflow folder from a tarball, or installs them.
func (j *Job) fetchDependencies(ctx context.Context, ws *workspace.Workspace) error {
	if !ws.HasPackage(j.root()) {
		return nil
	}
	if j.d.DepsURL != "" {
		err := ws.RestoreDependencies(ctx, j.shop.Client, j.root(), workspace.Archive{URL: j.shop.reach(j.d.DepsURL), Hash: j.d.DepsHash})
		var mismatch *workspace.HashError
		switch {
		case err == nil:
			j.say("Dependencies restored")
			return nil
		case errors.As(err, &mismatch) || ctx.Err() != nil:
			return err
		}
		j.say("Dependencies could not be restored, installing them: %v", err)
	}
	install := workspace.Install{JobID: j.d.JobID, Secrets: j.d.InstallEnvSecrets, Log: func(line string) { j.say("%s", line) }}
	for _, r := range j.d.NpmRegistries {
		install.Registries = append(install.Registries, workspace.Registry{URL: r.URL, Scope: r.Scope, AlwaysAuth: r.AlwaysAuth, Token: r.Token})
	}
	for _, kv := range j.runnerEnvironment(host.Box{WorkDir: ws.Dir()}) {
		if !strings.HasPrefix(kv, "NODE_ENV=") {
			install.Env = append(install.Env, kv)
		}
	}
	wrap, err := j.shop.Place.InstallWrap()
	if err != nil {
		return err
	}
	install.Wrap = wrap
	return ws.InstallDependencies(ctx, j.root(), install)
}

// sourceAuth is the credential for the job's repository; older servers give a bare token.
func (j *Job) sourceAuth() *wire.GitAuth {
	if j.d.SourceAuth != nil || j.d.Token == "" {
		return j.d.SourceAuth
	}
	return &wire.GitAuth{Kind: wire.GitBasic, Secret: j.d.Token}
}

func credential(a *wire.GitAuth) *workspace.Auth {
	if a == nil {
		return nil
	}
	return &workspace.Auth{Kind: a.Kind, User: a.User, Secret: a.Secret, HostKeyPolicy: a.SSHHostKeyPolicy, KnownHosts: a.SSHKnownHostsPem}
}
