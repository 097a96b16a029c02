package runner

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Constants of provenance bundles, of in-toto (https://in-toto.io), SLSA (https://slsa.dev) and of ours.
const (
	bundleMediaType = "application/vnd.kici.provenance.bundle+json;version=0.1"
	payloadType     = "application/vnd.in-toto+json"
	statementType   = "https://in-toto.io/Statement/v1"
	predicateType   = "https://slsa.dev/provenance/v1"
	buildType       = "https://kici.dev/buildtypes/workflow/v1"
)

// digestSpec names the file of a subject.
type digestSpec struct {
	Root string `json:"root"`
	Path string `json:"path"` // relative to root, or absolute
}

// digestFile is the SHA-256 of a file, hexadecimal.
func digestFile(ctx context.Context, s digestSpec) (string, error) {
	path := s.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Root, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("digest subject: %w", err)
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.Close() }) // a large file must not outlive its job
	defer stop()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("digest subject: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// attestSpec is what a bundle is made of: the subject, and the server's token for the job, whose claims the statement
// repeats.
type attestSpec struct {
	Token  string `json:"token"`
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256, hexadecimal
}

// claims are those of the token that go into the statement. The token is the server's own; whoever verifies the bundle
// checks its signature.
type claims struct {
	Issuer       string `json:"iss"`
	Repository   string `json:"repository"`
	Ref          string `json:"ref"`
	SHA          string `json:"sha"`
	Workflow     string `json:"workflow_ref"`
	Run          string `json:"kici_run_id"`
	Job          string `json:"kici_job_id"`
	Orchestrator string `json:"orchestrator_id"`
}

// attest writes a bundle to a private file: the statement, signed with a key that is used this once and forgotten, beside
// the token that says who signed.
func (d *privateDirs) attest(s attestSpec) (any, error) {
	about, err := readClaims(s.Token)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(statement(s, about))
	if err != nil {
		return nil, fmt.Errorf("make statement: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of attestation: %w", err)
	}
	public, id, err := publicKey(key)
	if err != nil {
		return nil, err
	}
	signature, err := sign(key, payload)
	if err != nil {
		return nil, err
	}
	bundle, err := json.Marshal(map[string]any{
		"mediaType": bundleMediaType,
		"dsseEnvelope": map[string]any{"payloadType": payloadType, "payload": base64.StdEncoding.EncodeToString(payload),
			"signatures": []any{map[string]string{"keyid": id, "sig": base64.StdEncoding.EncodeToString(signature)}}},
		"verificationMaterial": map[string]any{"publicKey": public, "identityToken": s.Token},
	})
	if err != nil {
		return nil, fmt.Errorf("make bundle: %w", err)
	}
	dir, err := d.make()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "bundle.json")
	if err := os.WriteFile(file, bundle, 0o600); err != nil {
		return nil, fmt.Errorf("write bundle: %w", err)
	}
	return map[string]string{"file": file, "mediaType": bundleMediaType}, nil
}

func readClaims(token string) (c claims, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, errors.New("the server's token is no JWT")
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		return c, errors.New("the claims of the server's token cannot be read")
	}
	if c.Orchestrator == "" {
		c.Orchestrator = "unknown"
	}
	return c, nil
}

func statement(s attestSpec, c claims) map[string]any {
	return map[string]any{
		"_type":         statementType,
		"predicateType": predicateType,
		"subject":       []any{map[string]any{"name": s.Name, "digest": map[string]string{"sha256": s.Digest}}},
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          buildType,
				"externalParameters": map[string]any{"workflow": map[string]string{"repository": c.Repository, "ref": c.Ref, "path": c.Workflow}},
				"internalParameters": map[string]string{"commit": c.SHA, "runId": c.Run, "jobId": c.Job},
			},
			"runDetails": map[string]any{
				"builder":  map[string]string{"id": c.Issuer + "/orchestrator/" + c.Orchestrator},
				"metadata": map[string]string{"invocationId": c.Run},
			},
		},
	}
}

// publicKey gives the key as a JWK, and its thumbprint (RFC 7638).
func publicKey(key *ecdsa.PrivateKey) (jwk map[string]string, thumbprint string, err error) {
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return nil, "", fmt.Errorf("encode key of attestation: %w", err)
	}
	x, y := base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:])
	sum := sha256.Sum256([]byte(`{"crv":"P-256","kty":"EC","x":"` + x + `","y":"` + y + `"}`))
	thumbprint = base64.RawURLEncoding.EncodeToString(sum[:])
	return map[string]string{"kty": "EC", "crv": "P-256", "x": x, "y": y, "alg": "ES256", "kid": thumbprint}, thumbprint, nil
}

// sign gives r and s, 32 bytes each, over the payload as DSSE wants it signed (github.com/secure-systems-lab/dsse).
func sign(key *ecdsa.PrivateKey, payload []byte) ([]byte, error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return nil, fmt.Errorf("sign statement: %w", err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signature, nil
}
