//go:build unix

package runner

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
)

func attestToken(t *testing.T) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"iss": "https://ci.example.test", "repository": "acme/api", "ref": "refs/heads/main", "sha": "9fceb0",
		"workflow_ref": "ci@9fceb0", "kici_run_id": "r1", "kici_job_id": "j1", "orchestrator_id": nil})
	must(t, err)
	return "e30." + base64.RawURLEncoding.EncodeToString(raw) + ".c2ln"
}

func TestProvenanceIsAttestedAndStored(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		store := newCacheServer(t)
		token := attestToken(t)
		j := prepare(t, host, workflow(`step('attest', async (ctx) => {
  await ctx.$`+"`mkdir -p dist && printf content > dist/app.tgz`"+`;
  return { file: await ctx.attestProvenance({ subject: { name: 'app.tgz', path: 'dist/app.tgz' } }),
    both: await ctx.attestProvenance({ subject: { name: 'x', path: 'a', digest: {} } }).catch((e) => e.message),
    upper: await ctx.attestProvenance({ subject: { name: 'x', digest: 'ABC' } }).catch((e) => e.message),
    none: await ctx.attestProvenance({ subject: { name: 'x', path: 'nowhere' } }).catch((e) => e.message),
    refused: await ctx.attestProvenance({ subject: { name: 'x', digest: { sha256: '`+strings.Repeat("0", 64)+`' } } }).catch((e) => e.message) };
})`))
		j.answer = func(r Request) any {
			switch {
			case r.Type == TypeAPIRequest:
				if string(r.Params) != `{"jobId":"j1","audience":"kici-provenance"}` {
					t.Errorf("token asked for with %s", r.Params)
				}
				return Response{Type: TypeAPIResponse, RequestID: r.RequestID, Result: json.RawMessage(fmt.Sprintf(`{"token":%q,"expiresIn":600,"jti":"x"}`, token))}
			case r.Op == "requestUploadUrl" && strings.HasPrefix(r.SubjectDigest, "0000"):
				return Response{Type: TypeProvenanceResponse, RequestID: r.RequestID}
			case r.Op == "requestUploadUrl":
				return Response{Type: TypeProvenanceResponse, RequestID: r.RequestID, UploadURL: store.URL + "/bundle"}
			case r.Op != "complete" || r.SubjectName != "app.tgz" || r.MediaType != bundleMediaType:
				t.Errorf("request %+v", r)
			}
			return Response{Type: TypeProvenanceResponse, RequestID: r.RequestID}
		}
		j.execute(nil)
		j.wait().succeeded()
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte("content")))
		equalJSON(t, j.Complete.Outputs["attest"], fmt.Sprintf(`{"file":{"storageKey":"provenance/r1/j1/%s.kici.json","subjectDigest":"%s","bundleMediaType":"%s"},
			"both":"the subject of attestProvenance needs either a path or a digest",
			"upper":"the digest of attestProvenance must be a SHA-256 in lower-case hexadecimal: {sha256: …}",
			"none":"digest subject: open %s/nowhere: no such file or directory",
			"refused":"attest provenance: the server has no place for it"}`, digest, digest, bundleMediaType, j.dir))
		verifyBundle(t, store.blobs["/bundle"], digest)
	})
}

// verifyBundle checks a bundle as whoever trusts the server's token would.
func verifyBundle(t *testing.T, raw []byte, digest string) {
	t.Helper()
	var b struct {
		MediaType    string
		DSSEEnvelope struct {
			PayloadType string
			Payload     []byte
			Signatures  []struct {
				KeyID string
				Sig   []byte
			}
		}
		VerificationMaterial struct {
			PublicKey     map[string]string
			IdentityToken string
		}
	}
	must(t, json.Unmarshal(raw, &b))
	equalJSON(t, json.RawMessage(b.DSSEEnvelope.Payload), `{"_type":"https://in-toto.io/Statement/v1","predicateType":"https://slsa.dev/provenance/v1",
		"subject":[{"name":"app.tgz","digest":{"sha256":"`+digest+`"}}],"predicate":{
			"buildDefinition":{"buildType":"https://kici.dev/buildtypes/workflow/v1","externalParameters":{"workflow":{"repository":"acme/api","ref":"refs/heads/main","path":"ci@9fceb0"}},
				"internalParameters":{"commit":"9fceb0","runId":"r1","jobId":"j1"}},
			"runDetails":{"builder":{"id":"https://ci.example.test/orchestrator/unknown"},"metadata":{"invocationId":"r1"}}}}`)
	jwk := b.VerificationMaterial.PublicKey
	thumbprint := sha256.Sum256(fmt.Appendf(nil, `{"crv":"P-256","kty":"EC","x":%q,"y":%q}`, jwk["x"], jwk["y"]))
	if id := base64.RawURLEncoding.EncodeToString(thumbprint[:]); b.DSSEEnvelope.Signatures[0].KeyID != id || jwk["kid"] != id {
		t.Errorf("key ids %s and %s, want %s", b.DSSEEnvelope.Signatures[0].KeyID, jwk["kid"], id)
	}
	point := []byte{4}
	for _, name := range []string{"x", "y"} {
		coordinate, err := base64.RawURLEncoding.DecodeString(jwk[name])
		must(t, err)
		point = append(point, coordinate...)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	must(t, err)
	payload, signature := b.DSSEEnvelope.Payload, b.DSSEEnvelope.Signatures[0].Sig
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 28 application/vnd.in-toto+json %d %s", len(payload), payload))
	if len(signature) != 64 || !ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
		t.Error("the signature does not fit")
	}
	if b.MediaType != bundleMediaType || b.VerificationMaterial.IdentityToken == "" {
		t.Errorf("bundle %s", raw)
	}
}

func TestTokensThatAreNoJWTAreNotAttested(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "a.b", "a.!.c", "a." + base64.RawURLEncoding.EncodeToString([]byte("[]")) + ".c"} {
		if _, err := (&privateDirs{}).attest(attestSpec{Token: token, Name: "x", Digest: "0"}); err == nil {
			t.Errorf("token %q was attested with", token)
		}
	}
}
