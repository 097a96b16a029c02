package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"kici/internal/server/auth"
	"kici/internal/server/provenance"
	"kici/internal/server/store/storetest"
)

// fakeProvenance has one key and one attestation of run r1.
type fakeProvenance struct {
	by   auth.Entry
	fail error
	all  bool
}

func (f *fakeProvenance) SigningKeys(context.Context) ([]provenance.SigningKey, error) {
	return []provenance.SigningKey{{ID: "k1", Status: provenance.Revoked, Reason: "leaked", CreatedAt: startTime, RetiredAt: startTime, RevokedAt: startTime}}, f.fail
}

func (f *fakeProvenance) RotateSigningKey(_ context.Context, by auth.Entry) (provenance.SigningKey, error) {
	f.by = by
	return provenance.SigningKey{ID: "k2", Status: provenance.Active, CreatedAt: startTime}, f.fail
}

func (f *fakeProvenance) RevokeSigningKey(_ context.Context, id, reason string, by auth.Entry) (bool, error) {
	f.by = by
	return reason == "leaked", f.fail
}

func (f *fakeProvenance) Attestations(_ context.Context, runID string) ([]provenance.Attestation, error) {
	return []provenance.Attestation{{RunID: runID, JobID: "j", Subject: "app.tgz", Digest: "ab", Key: "provenance/k", MediaType: "m", Size: 7,
		Status: provenance.Failed, Reason: "identity_token_invalid", CreatedAt: startTime, VerifiedAt: startTime}}, f.fail
}

func (f *fakeProvenance) AttestationLink(ctx context.Context, runID, jobID, digest string) (a provenance.Attestation, link string, err error) {
	if jobID != "j" || digest != "ab" {
		return a, "", provenance.ErrNotFound
	}
	list, err := f.Attestations(ctx, runID)
	return list[0], "/blobs/k?sig=s", err
}

func (f *fakeProvenance) Reverify(_ context.Context, all bool) (provenance.Judged, error) {
	f.all = all
	return provenance.Judged{Verified: 1, Failed: 2, Unverifiable: 3}, f.fail
}

const oneAttestation = `"jobId":"j","subjectName":"app.tgz","subjectDigest":"ab","storageKey":"provenance/k","mediaType":"m","sizeBytes":7,"verifyStatus":"failed",` +
	`"verifyReason":"identity_token_invalid","createdAt":"2026-01-01T00:00:00.000Z","verifiedAt":"2026-01-01T00:00:00.000Z"`

func TestAttestationsOfARun(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	s.Register(t, "other", "generic:default:other")
	const path = "/api/v1/admin/runs/r1/attestations"
	s.API.Provenance = nil
	call(t, s, s.Auditor, "GET", path, nil).want(t, 503, "Provenance not configured")
	room := &fakeProvenance{}
	s.API.Provenance = room
	call(t, s, s.Scoped, "GET", path, nil).want(t, 200, `{"attestations":[{`+oneAttestation+`}]}`)
	call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/other/attestations", nil).want(t, 403, "Access denied")
	call(t, s, s.Auditor, "GET", "/api/v1/admin/runs/none/attestations", nil).want(t, 404, "Run none not found")
	call(t, s, s.Auditor, "GET", path+"/j/ab", nil).want(t, 200, `{`+oneAttestation+`,"downloadUrl":"/blobs/k?sig=s"}`)
	call(t, s, s.Auditor, "GET", path+"/j/ac", nil).want(t, 404, "Attestation not found")

	const reverify = "/api/v1/admin/attestations/reverify"
	call(t, s, s.Auditor, "POST", reverify, nil).want(t, 403, "attestation.retry")
	call(t, s, s.Scoped, "POST", reverify, nil).want(t, 403, "unscoped")
	call(t, s, s.Admin, "POST", reverify, `{"all":true}`).want(t, 200, `{"verified":1,"failed":2,"unverifiable":3}`)
	if !room.all {
		t.Error("not all were asked for")
	}
	call(t, s, s.Admin, "POST", reverify, `{"all":"yes"}`).want(t, 400, "all")
}

func TestSigningKeys(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	const path = "/api/v1/admin/signing-keys"
	s.API.Provenance = nil
	call(t, s, s.Owner, "POST", path+"/rotate", nil).want(t, 503, "Provenance not configured")
	room := &fakeProvenance{}
	s.API.Provenance = room
	const shown = `{"signingKeys":[{"kid":"k1","alg":"ES256","status":"revoked","revocationReason":"leaked","activatedAt":"2026-01-01T00:00:00.000Z",` +
		`"retiredAt":"2026-01-01T00:00:00.000Z","revokedAt":"2026-01-01T00:00:00.000Z"}]}`
	call(t, s, s.Auditor, "GET", path, nil).want(t, 200, shown)
	call(t, s, s.Admin, "POST", path+"/rotate", nil).want(t, 403, "does not have permission")
	call(t, s, s.Owner, "POST", path+"/rotate", nil).want(t, 201, `{"signingKey":{"kid":"k2","alg":"ES256","status":"active",`)
	if room.by.ActorID == "" || room.by.ActorType != auth.ActorAPIKey || room.by.RequestID == "" {
		t.Errorf("rotated by %+v", room.by)
	}
	call(t, s, s.Admin, "POST", path+"/k1/revoke", `{"reason":"leaked"}`).want(t, 403, "does not have permission")
	call(t, s, s.Owner, "POST", path+"/k1/revoke", `{}`).want(t, 400, "reason")
	call(t, s, s.Owner, "POST", path+"/k1/revoke", `{"reason":"leaked"}`).want(t, 200, `{"revoked":true}`)
	call(t, s, s.Owner, "POST", path+"/k1/revoke", `{"reason":"again"}`).want(t, 200, `{"revoked":false}`)
	for fail, want := range map[error]string{
		provenance.ErrNotConfigured: `503 {"error":"Provenance signing is not configured"}`, fmt.Errorf("x: %w", provenance.ErrRaced): `409 {"error":"somebody else`,
		errors.New("planted cause"): `500 {"error":"Internal server error"}`,
	} {
		room.fail = fail
		got := call(t, s, s.Owner, "POST", path+"/rotate", nil)
		if answer := fmt.Sprintf("%d %s", got.status, got.body); !strings.HasPrefix(answer, want) {
			t.Errorf("%v: %s", fail, answer)
		}
	}
	room.fail = provenance.ErrUnknownKey
	call(t, s, s.Owner, "POST", path+"/none/revoke", `{"reason":"leaked"}`).want(t, 404, "Signing key not found")
}
