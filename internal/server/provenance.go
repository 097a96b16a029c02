package server

import (
	"context"
	"net/http"

	"kici/internal/server/engine"
	"kici/internal/server/hub"
	"kici/internal/server/ingest"
	"kici/internal/server/provenance"
)

// openProvenance builds what issues identity tokens and judges bundles. It asks the engine, which is built later, only once
// agents ask it.
func (s *Server) openProvenance() {
	s.proof = provenance.New(provenance.Deps{DB: s.db, Keys: s.keys, Jobs: jobIdentities{s}, Uploads: s.cache, Blobs: s.storage.blobs,
		People: s.storage.people, Access: s.tokens, Clock: s.clock, Log: s.log, Issuer: s.settings.ProvenanceIssuer, NodeID: s.node.id,
		Client: func(r *http.Request) string { return ingest.ClientIP(r, s.settings.TrustedProxies) }})
}

// identities is what issues tokens, nil on a server that issues none: jobs are told then that there is no such call.
func (s *Server) identities() hub.Identities {
	if !s.proof.Enabled() {
		return nil
	}
	return s.proof
}

type jobIdentities struct{ s *Server }

// JobIdentity implements provenance.Jobs.
func (j jobIdentities) JobIdentity(ctx context.Context, jobID string) (engine.JobIdentity, bool, error) {
	return j.s.engine.JobIdentity(ctx, jobID)
}
