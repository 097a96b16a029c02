package client

import (
	"bytes"
	"context"

	"kici/internal/core/adminwire"
)

const signingKeysPath = "/api/v1/admin/signing-keys"

// SigningKeys lists the keys that sign identity tokens, the newest first.
func (c *Client) SigningKeys(ctx context.Context) ([]adminwire.SigningKey, error) {
	var out adminwire.SigningKeyList
	return out.SigningKeys, c.call(ctx, "GET", signingKeysPath, nil, nil, &out)
}

// RotateSigningKey makes a new signing key the active one.
func (c *Client) RotateSigningKey(ctx context.Context) (adminwire.SigningKey, error) {
	var out adminwire.OneSigningKey
	err := c.call(ctx, "POST", signingKeysPath+"/rotate", nil, nil, &out)
	return out.SigningKey, err
}

// RevokeSigningKey takes a key back for good, and tells whether this call did.
func (c *Client) RevokeSigningKey(ctx context.Context, id, reason string) (revoked bool, err error) {
	var out struct{ Revoked bool }
	err = c.call(ctx, "POST", at(signingKeysPath+"/", id, "/revoke"), nil, adminwire.RevokeSigningKey{Reason: reason}, &out)
	return out.Revoked, err
}

// Attestations lists what the jobs of a run attested.
func (c *Client) Attestations(ctx context.Context, runID string) ([]adminwire.Attestation, error) {
	var out adminwire.AttestationList
	err := c.call(ctx, "GET", at(runsPath+"/", runID, "/attestations"), nil, nil, &out)
	return out.Attestations, err
}

// Bundle reads the bundle of an attestation.
func (c *Client) Bundle(ctx context.Context, runID, jobID, digest string) ([]byte, error) {
	var link adminwire.AttestationLink
	if err := c.call(ctx, "GET", at(runsPath+"/", runID, "/attestations/", jobID, "/", digest), nil, nil, &link); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := c.Download(ctx, adminwire.ArtifactLink{Artifact: adminwire.Artifact{SizeBytes: link.SizeBytes}, DownloadURL: link.DownloadURL}, &out)
	return out.Bytes(), err
}

// Reverify has stored bundles judged anew: those that could not be judged, or all.
func (c *Client) Reverify(ctx context.Context, all bool) (adminwire.Reverified, error) {
	var out adminwire.Reverified
	return out, c.call(ctx, "POST", "/api/v1/admin/attestations/reverify", nil, adminwire.Reverify{All: all}, &out)
}
