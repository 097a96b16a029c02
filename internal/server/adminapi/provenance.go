package adminapi

import (
	"context"
	"errors"
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/server/auth"
	"kici/internal/server/provenance"
)

// Provenance keeps signing keys, and the bundles of jobs.
type Provenance interface {
	SigningKeys(ctx context.Context) ([]provenance.SigningKey, error)
	RotateSigningKey(ctx context.Context, by auth.Entry) (provenance.SigningKey, error)
	RevokeSigningKey(ctx context.Context, id, reason string, by auth.Entry) (revoked bool, err error)
	Attestations(ctx context.Context, runID string) ([]provenance.Attestation, error)
	AttestationLink(ctx context.Context, runID, jobID, digest string) (a provenance.Attestation, link string, err error)
	Reverify(ctx context.Context, all bool) (provenance.Judged, error)
}

func (a *API) provenanceRoutes() []route {
	return []route{
		{"GET " + base + "/signing-keys", auth.RunRead, true, a.listSigningKeys},
		{"POST " + base + "/signing-keys/rotate", auth.KeyRotate, true, a.rotateSigningKey},
		{"POST " + base + "/signing-keys/{kid}/revoke", auth.KeyRotate, true, a.revokeSigningKey},
		{"GET " + base + "/runs/{run}/attestations", auth.RunRead, false, a.listAttestations},
		{"GET " + base + "/runs/{run}/attestations/{job}/{digest}", auth.RunRead, false, a.linkAttestation},
		{"POST " + base + "/attestations/reverify", auth.AttestationRetry, true, a.reverify},
	}
}

var errNoProvenance = refuse(http.StatusServiceUnavailable, "Provenance not configured on this orchestrator")

// proof is what keeps provenance, or why there is nothing.
func (a *API) proof() (Provenance, error) {
	if a.Provenance == nil {
		return nil, errNoProvenance
	}
	return a.Provenance, nil
}

func (a *API) listSigningKeys(r *http.Request) (answer, error) {
	room, err := a.proof()
	if err != nil {
		return answer{}, err
	}
	list, err := room.SigningKeys(r.Context())
	if err != nil {
		return answer{}, err
	}
	out := adminwire.SigningKeyList{SigningKeys: make([]adminwire.SigningKey, len(list))}
	for i, k := range list {
		out.SigningKeys[i] = signingKeyOf(k)
	}
	return ok(out)
}

// rotateSigningKey is noted by the room, in the transaction of the change.
func (a *API) rotateSigningKey(r *http.Request) (answer, error) {
	room, err := a.proof()
	if err != nil {
		return answer{}, err
	}
	k, err := room.RotateSigningKey(r.Context(), entry(r, "", "", ""))
	switch {
	case errors.Is(err, provenance.ErrNotConfigured):
		return answer{}, refuse(http.StatusServiceUnavailable, "Provenance signing is not configured")
	case errors.Is(err, provenance.ErrRaced):
		return answer{}, refuse(http.StatusConflict, provenance.ErrRaced.Error())
	case err != nil:
		return answer{}, err
	}
	noted(r)
	return created(adminwire.OneSigningKey{SigningKey: signingKeyOf(k)})
}

// revokeSigningKey wants a reason: whoever asks later why old bundles fail finds it beside the key.
func (a *API) revokeSigningKey(r *http.Request) (answer, error) {
	var in adminwire.RevokeSigningKey
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	if in.Reason == "" {
		return answer{}, invalid(problem("reason", "required", "the reason of a revocation is required"))
	}
	room, err := a.proof()
	if err != nil {
		return answer{}, err
	}
	revoked, err := room.RevokeSigningKey(r.Context(), r.PathValue("kid"), in.Reason, entry(r, "", "", ""))
	if errors.Is(err, provenance.ErrUnknownKey) {
		return answer{}, gone("Signing key not found")
	}
	if err != nil {
		return answer{}, err
	}
	if revoked {
		noted(r)
	}
	return ok(map[string]bool{"revoked": revoked})
}

func signingKeyOf(k provenance.SigningKey) adminwire.SigningKey {
	return adminwire.SigningKey{ID: k.ID, Algorithm: "ES256", Status: k.Status, RevocationReason: orNull(k.Reason), ActivatedAt: adminwire.At(k.CreatedAt),
		RetiredAt: adminwire.At(k.RetiredAt), RevokedAt: adminwire.At(k.RevokedAt)}
}

// listAttestations gives all attestations of a run at once: each of its jobs has a bounded number.
func (a *API) listAttestations(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	room, err := a.proof()
	if err != nil {
		return answer{}, err
	}
	list, err := room.Attestations(r.Context(), run.RunID)
	if err != nil {
		return answer{}, err
	}
	out := adminwire.AttestationList{Attestations: make([]adminwire.Attestation, len(list))}
	for i, one := range list {
		out.Attestations[i] = attestationOf(one)
	}
	return ok(out)
}

// linkAttestation answers with a link to the bundle, which need not come through this server.
func (a *API) linkAttestation(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	room, err := a.proof()
	if err != nil {
		return answer{}, err
	}
	one, link, err := room.AttestationLink(r.Context(), run.RunID, r.PathValue("job"), r.PathValue("digest"))
	if errors.Is(err, provenance.ErrNotFound) {
		return answer{}, gone("Attestation not found")
	}
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.AttestationLink{Attestation: attestationOf(one), DownloadURL: link})
}

// reverify judges stored bundles anew, by the keys as they are now.
func (a *API) reverify(r *http.Request) (answer, error) {
	var in adminwire.Reverify
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	room, err := a.proof()
	if err != nil {
		return answer{}, err
	}
	done, err := room.Reverify(r.Context(), in.All)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.Reverified{Verified: done.Verified, Failed: done.Failed, Unverifiable: done.Unverifiable})
}

func attestationOf(a provenance.Attestation) adminwire.Attestation {
	return adminwire.Attestation{JobID: a.JobID, SubjectName: a.Subject, SubjectDigest: a.Digest, StorageKey: a.Key, MediaType: a.MediaType,
		SizeBytes: a.Size, VerifyStatus: a.Status, VerifyReason: orNull(a.Reason), CreatedAt: adminwire.At(a.CreatedAt), VerifiedAt: adminwire.At(a.VerifiedAt)}
}
