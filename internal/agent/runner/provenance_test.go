//go:build unix

package runner

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kici/internal/core/attest"
)

// attestToken is a token as a server issues it, and the set of keys by which that server is known.
func attestToken(t *testing.T) (token string, keys []byte) {
	t.Helper()
	key, err := attest.NewKey()
	must(t, err)
	token, err = key.SignToken(map[string]any{"iss": "https://ci.example.test", "aud": attest.Audience, "iat": 1000, "exp": 1600,
		"repository": "acme/api", "ref": "refs/heads/main", "sha": "9fceb0",
		"workflow_ref": "ci@9fceb0", "kici_run_id": "r1", "kici_job_id": "j1", "orchestrator_id": nil})
	must(t, err)
	public, err := key.PublicJWK()
	must(t, err)
	return token, fmt.Appendf(nil, `{"keys":[%s]}`, public)
}

func TestProvenanceIsAttestedAndStored(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		store := newCacheServer(t)
		token, keys := attestToken(t)
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
			case r.Op != "complete" || r.SubjectName != "app.tgz" || r.MediaType != attest.MediaType:
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
			"refused":"attest provenance: the server has no place for it"}`, digest, digest, attest.MediaType, j.dir))
		verdict := attest.Verify(attest.Request{Bundle: store.blobs["/bundle"], Keys: keys, Issuer: "https://ci.example.test", Audience: attest.Audience,
			Digest: &attest.Digest{Algorithm: "sha256", Hex: digest}, Now: 1100})
		if !verdict.Verified {
			t.Errorf("verdict %+v", verdict)
		}
		equalJSON(t, verdict.Statement, `{"_type":"https://in-toto.io/Statement/v1","predicateType":"https://slsa.dev/provenance/v1",
		"subject":[{"name":"app.tgz","digest":{"sha256":"`+digest+`"}}],"predicate":{
			"buildDefinition":{"buildType":"https://kici.dev/buildtypes/workflow/v1","externalParameters":{"workflow":{"repository":"acme/api","ref":"refs/heads/main","path":"ci@9fceb0"}},
				"internalParameters":{"commit":"9fceb0","runId":"r1","jobId":"j1"}},
			"runDetails":{"builder":{"id":"https://ci.example.test/orchestrator/unknown"},"metadata":{"invocationId":"r1"}}}}`)
	})
}

func TestTokensThatAreNoJWTAreNotAttested(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "a.b", "a.!.c", "a." + base64.RawURLEncoding.EncodeToString([]byte("[]")) + ".c"} {
		if _, err := (&privateDirs{}).attest(attestSpec{Token: token, Name: "x", Digest: "0"}); err == nil {
			t.Errorf("token %q was attested with", token)
		}
	}
}
