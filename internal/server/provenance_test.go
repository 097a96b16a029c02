package server_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/core/attest"
	"kici/internal/core/wire"
	"kici/internal/server"
	"kici/internal/server/servertest"
)

const proofIssuer = "https://ci.example.test/kici"

// ask sends a call of the agent API and gives its answer.
func askAPI(t *testing.T, p *servertest.Peer, method, params string) wire.APIResponse {
	t.Helper()
	p.Send(wire.APIRequest{RequestID: "ask", Method: method, Params: json.RawMessage(params)})
	answer, ok := p.Next().(wire.APIResponse)
	if !ok {
		t.Fatalf("no answer to %s", method)
	}
	return answer
}

// TestAJobAttestsWhatItMade goes the whole way on the wire, on both stores: token, bundle, link, verdict, the public
// routes, and the end of the run.
func TestAJobAttestsWhatItMade(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	for _, bucket := range []bool{false, true} {
		servertest.Each(t, func(s *server.Settings) {
			s.ProvenanceIssuer, s.BasePath = proofIssuer, "/kici"
			if bucket {
				useBucket(t, s)
			}
		}, func(t *testing.T, h *servertest.Home) {
			s := h.Start(t)
			p, job := dispatched(t, h)
			answer := askAPI(t, p, "oidc.token.request", `{"jobId":"`+job+`","audience":"kici-provenance","runId":"forged"}`)
			var token struct {
				Token     string
				ExpiresIn int
				JTI       string
			}
			if err := json.Unmarshal(answer.Result, &token); err != nil || token.ExpiresIn != 600 || token.JTI == "" {
				t.Fatalf("answer %+v", answer)
			}
			bundle, err := attest.Make(token.Token, attest.Subject{Name: "app.tgz", Digest: digest})
			if err != nil {
				t.Fatal(err)
			}
			p.Send(wire.ProvenanceUploadRequest{MessageID: "place", JobID: job, SubjectDigest: digest})
			place, ok := p.Next().(wire.ProvenanceUploadResponse)
			if !ok || place.UploadURL == "" {
				t.Fatalf("answer %+v", place)
			}
			if status, answer := transfer(t, "PUT", place.UploadURL, string(bundle)); status != 200 {
				t.Fatalf("put %d %s", status, answer)
			}
			p.Send(wire.ProvenanceUploadComplete{MessageID: "done", JobID: job, SubjectName: "app.tgz", SubjectDigest: digest, MediaType: attest.MediaType})
			servertest.Await(t, "the verdict", func() bool {
				return h.Count(t, "SELECT count(*) FROM attestations WHERE verify_status = 'verified' AND job_id = $1", job) == 1
			}, nil)
			if status, verdict := transfer(t, "POST", s.URL()+"/api/v1/verify-attestation", string(bundle)); status != 200 || !strings.HasPrefix(verdict, `{"verified":true,"mode":"kici"`) {
				t.Errorf("verdict %d %s", status, verdict)
			}
			if status, doc := transfer(t, "GET", s.URL()+"/.well-known/openid-configuration", ""); status != 200 || !strings.Contains(doc, `"jwks_uri":"https://ci.example.test/kici/.well-known/jwks.json"`) {
				t.Errorf("document %d %s", status, doc)
			}
			if status, set := transfer(t, "GET", s.URL()+"/.well-known/jwks.json", ""); status != 200 || !strings.Contains(set, `"kty":"EC"`) {
				t.Errorf("keys %d %s", status, set)
			}
			s.Stop()
			mustNotHold(t, h.Settings.DataDir, token.Token)
		})
	}
}

// mustNotHold looks for a token in everything that the server keeps but bundles, whose part it is.
func mustNotHold(t *testing.T, dir, token string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/blobs/") {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(token)) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAServerWithoutAnIssuerIssuesNothing(t *testing.T) {
	h := servertest.New(t, nil)
	s := h.Start(t)
	p, job := dispatched(t, h)
	if answer := askAPI(t, p, "oidc.token.request", `{"jobId":"`+job+`","audience":"a"}`); answer.Error != "Unknown API method 'oidc.token.request'" {
		t.Errorf("answer %+v", answer)
	}
	for _, path := range []string{"/.well-known/openid-configuration", "/.well-known/jwks.json"} {
		if status, answer := transfer(t, "GET", s.URL()+path, ""); status != 503 || answer != `{"error":"Provenance signing is not configured"}` {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}

func TestAnIssuerIsAURL(t *testing.T) {
	for issuer, good := range map[string]bool{"https://ci.test": true, "http://10.0.0.1:4000/kici/": true, "ci.test": false, "https://": false,
		"https://u:p@ci.test": false, "https://ci.test?x": false, "https://ci.test#x": false, "ftp://ci.test": false} {
		c := server.Config{ProvenanceIssuer: issuer}
		found := false
		for _, p := range c.Check() {
			found = found || p.Setting == "provenanceSigningIssuer"
		}
		if found == good {
			t.Errorf("%s: refused %v", issuer, found)
		}
	}
	c, report, err := server.LoadConfig("", []string{"KICI_ORCHESTRATOR_PROVENANCE_ISSUER=https://ci.test"}, nil)
	if err != nil || c.ProvenanceIssuer != "https://ci.test" || len(report.Warnings) != 0 {
		t.Errorf("%q, %+v, %v", c.ProvenanceIssuer, report, err)
	}
}
