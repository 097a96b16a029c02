package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"kici/internal/core/ci"
	decide "kici/internal/decide/contexts"
	"kici/internal/kit/seal"
	"kici/internal/server/contexts"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/secrets"
)

// jobSecrets grants a job what its contexts bring, the secrets of its organisation's flat scope and the secret outputs of
// the jobs that it needs. What would fail again at the next try ends the job; a store that does not answer does not.
type jobSecrets struct {
	store    *secrets.Store
	contexts *contexts.Store
}

// ForJob resolves at the moment of dispatch.
func (s jobSecrets) ForJob(ctx context.Context, in engine.Input, agentID string) (dispatch.Grant, error) {
	grant, err := s.grant(ctx, in, agentID)
	if errors.Is(err, seal.ErrUnreadable) || errors.Is(err, secrets.ErrReserved) || errors.Is(err, contexts.ErrUnusable) {
		return dispatch.Grant{}, dispatch.Permanent(err)
	}
	return grant, err
}

// grant merges, of least weight first: secret outputs, which never take the place of a secret that somebody set, the flat
// scope, and the contexts in their order.
func (s jobSecrets) grant(ctx context.Context, in engine.Input, agentID string) (g dispatch.Grant, err error) {
	if in.Kind != ci.KindStandard {
		return g, nil // it computes what other jobs are made of, and gets no secret to do so
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
	if !decide.Withheld(in.Tier) {
		flat, err := s.store.ResolveFor(ctx, job, in.OrgID, []string{secrets.DefaultScope})
		if err != nil {
			return g, err
		}
		maps.Copy(g.Secrets, flat)
	}
	maps.Copy(g.Secrets, merged.Secrets)
	g.RunPublicKey, err = s.store.RunPublicKey(ctx, in.RunID)
	return g, err
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
