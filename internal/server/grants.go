package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	decide "kici/internal/decide/contexts"
	"kici/internal/kit/seal"
	"kici/internal/server/contexts"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/orgs"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// jobSecrets grants a job what its contexts bring, the secrets of its organisation's flat scope and the secret outputs of
// the jobs that it needs. What would fail again at the next try ends the job; a store that does not answer does not.
type jobSecrets struct {
	db       *store.DB
	store    *secrets.Store
	runs     *engine.Engine
	contexts *contexts.Store
	counters *counters
}

// Ask implements dispatch.Secrets.
func (s jobSecrets) Ask(jobID string, known *dispatch.Known) store.Ask {
	return secrets.AskForJob(jobID, &known.RunPublicKey, &known.Flat)
}

// ForJob resolves at the moment of dispatch.
func (s jobSecrets) ForJob(ctx context.Context, in engine.Input, known dispatch.Known, agentID string) (dispatch.Grant, error) {
	grant, err := s.grant(ctx, in, known, agentID)
	if unusable(err) {
		return dispatch.Grant{}, dispatch.Permanent(err)
	}
	if err != nil {
		return dispatch.Grant{}, err
	}
	grant.Registries, grant.InstallEnv, err = s.install(ctx, in)
	return grant, err
}

func unusable(err error) bool {
	return errors.Is(err, seal.ErrUnreadable) || errors.Is(err, secrets.ErrReserved) || errors.Is(err, contexts.ErrUnusable)
}

// grant merges, of least weight first: secret outputs, which never take the place of a secret that somebody set, the flat
// scope, and the contexts in their order.
func (s jobSecrets) grant(ctx context.Context, in engine.Input, known dispatch.Known, agentID string) (g dispatch.Grant, err error) {
	if in.Kind != ci.KindStandard {
		return g, nil // it computes what other jobs are made of, and gets no other secret to do so
	}
	job := secrets.Job{RunID: in.RunID, JobID: in.JobID}
	merged, err := s.resolve(ctx, in, job, agentID)
	if err != nil {
		return g, err
	}
	g.Variables, g.Namespaced = merged.Variables, merged.Namespaced
	if g.Secrets, err = s.store.OutputsOf(ctx, in.RunID, in.UpstreamIDs); err != nil {
		return g, err
	}
	if known.Flat && !decide.Withheld(in.Tier) {
		flat, err := s.store.ResolveFor(ctx, job, in.OrgID, []string{secrets.DefaultScope})
		if err != nil {
			return g, err
		}
		maps.Copy(g.Secrets, flat)
	}
	maps.Copy(g.Secrets, merged.Secrets)
	if g.RunPublicKey = known.RunPublicKey; g.RunPublicKey == "" {
		g.RunPublicKey, err = s.runs.RunPublicKey(ctx, in.RunID)
	}
	return g, err
}

// install is what installing the dependencies of the job's workflow needs. A job that only starts an agent installs none.
func (s jobSecrets) install(ctx context.Context, in engine.Input) (registries []wire.NpmRegistry, env map[string]string, err error) {
	org, err := s.organisation(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	need, err := in.Workflow.Install(in.Tier, org.AllowHTTPRegistries)
	if err != nil {
		return nil, nil, dispatch.NotInstallable(err)
	}
	if len(need.Secrets) == 0 || in.Kind == ci.KindBringup {
		return nil, nil, nil
	}
	values, err := s.installValues(ctx, in, need)
	if err != nil {
		return nil, nil, err
	}
	env = map[string]string{}
	for i, value := range values {
		if i < len(in.Workflow.Registries) { // their tokens come first
			r := in.Workflow.Registries[i]
			s.counters.registryUsed(in.Kind, in.RoutingKey, r.Scope)
			registries = append(registries, wire.NpmRegistry{URL: r.URL, Scope: r.Scope, AlwaysAuth: r.AlwaysAuth != nil && *r.AlwaysAuth, Token: value})
			continue
		}
		env[need.Secrets[i].Ref.Secret] = value
	}
	return registries, env, nil
}

// organisation are the settings of the job's, where they matter.
func (s jobSecrets) organisation(ctx context.Context, in engine.Input) (orgs.Settings, error) {
	if len(in.Workflow.Registries) == 0 {
		return orgs.Settings{}, nil
	}
	return orgs.Read(ctx, s.db.Read(), in.OrgID)
}

// installValues are the values that the job needs to install, in the order of the workflow.
func (s jobSecrets) installValues(ctx context.Context, in engine.Input, need decide.Install) ([]string, error) {
	began := time.Now()
	merged, err := s.contexts.Resolve(ctx, contexts.Request{OrgID: in.OrgID, Job: secrets.Job{RunID: in.RunID, JobID: in.JobID},
		Names: need.Contexts(), RoutingKey: in.RoutingKey, Tier: in.Tier})
	if unusable(err) {
		return nil, dispatch.NotInstallable(err)
	}
	if err != nil {
		return nil, err
	}
	s.counters.installResolved(need.Contexts(), time.Since(began))
	byContext := map[string]map[string]string{}
	for _, c := range merged.Namespaced {
		byContext[c.Context] = c.Secrets
	}
	values, err := need.Values(byContext)
	if err != nil {
		return nil, dispatch.NotInstallable(err)
	}
	return values, nil
}

func (s jobSecrets) resolve(ctx context.Context, in engine.Input, job secrets.Job, agentID string) (decide.Merged, error) {
	if len(in.Contexts) == 0 {
		return decide.Merged{}, nil
	}
	host, err := hostOf(in, agentID)
	if err != nil {
		return decide.Merged{}, err
	}
	return s.contexts.Resolve(ctx, contexts.Request{OrgID: in.OrgID, Job: job, Names: in.Contexts, RoutingKey: in.RoutingKey,
		Tier: in.Tier, Host: host})
}

// hostOf is what the plan says of the host that a fan-out gave the job, nil for other jobs. The agent does not choose it.
func hostOf(in engine.Input, agentID string) (*decide.Host, error) {
	var config struct {
		Host  string
		Agent *struct{ Labels []string }
	}
	if err := json.Unmarshal(in.Config, &config); err != nil {
		return nil, fmt.Errorf("read host of job %s: %w", in.JobID, err)
	}
	if config.Agent == nil {
		return nil, nil
	}
	return &decide.Host{AgentID: agentID, Name: config.Host, Labels: config.Agent.Labels}, nil
}
