package server

import (
	"context"
	"errors"
	"maps"

	"kici/internal/kit/seal"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/secrets"
)

// jobSecrets grants a job the secrets of its organisation's flat scope and the secret outputs of the jobs that it needs.
// What would fail again at the next try ends the job; a store that does not answer does not.
type jobSecrets struct{ store *secrets.Store }

// ForJob resolves at the moment of dispatch.
func (s jobSecrets) ForJob(ctx context.Context, in engine.Input) (dispatch.Grant, error) {
	grant, err := s.grant(ctx, in)
	if errors.Is(err, seal.ErrUnreadable) || errors.Is(err, secrets.ErrReserved) {
		return dispatch.Grant{}, dispatch.Permanent(err)
	}
	return grant, err
}

func (s jobSecrets) grant(ctx context.Context, in engine.Input) (g dispatch.Grant, err error) {
	declared, err := s.store.ResolveFor(ctx, secrets.Job{RunID: in.RunID, JobID: in.JobID}, in.OrgID, []string{secrets.DefaultScope})
	if err != nil {
		return g, err
	}
	outputs, err := s.store.OutputsOf(ctx, in.RunID, in.UpstreamIDs)
	if err != nil {
		return g, err
	}
	maps.Copy(outputs, declared) // an output never takes the place of a secret that somebody set
	g.Secrets = outputs
	g.RunPublicKey, err = s.store.RunPublicKey(ctx, in.RunID)
	return g, err
}
