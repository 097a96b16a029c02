package author_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/cli"
	"kici/internal/core/attest"
)

// published is an issuer that publishes its key, and a bundle that a job made with a token of it, of an hour ago.
func published(t *testing.T) (issuer *httptest.Server, bundle string) {
	t.Helper()
	key, err := attest.NewKey()
	must(t, err)
	public, err := key.PublicJWK()
	must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /base/.well-known/jwks.json", func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(map[string]any{"keys": []any{public}}); err != nil {
			t.Error(err)
		}
	})
	mux.Handle("GET /moved/.well-known/jwks.json", http.RedirectHandler("/base/.well-known/jwks.json", http.StatusFound))
	issuer = httptest.NewServer(mux)
	t.Cleanup(issuer.Close)
	at := time.Now().Unix() - 3600
	token, err := key.SignToken(map[string]any{"iss": issuer.URL + "/base", "aud": attest.Audience, "iat": at, "exp": at + 600, "repository": "acme/app\x1b[2J",
		"ref": "main", "sha": "9f", "workflow_ref": "ci@9f", "kici_run_id": "r", "kici_job_id": "j"})
	must(t, err)
	raw, err := attest.Make(token, attest.Subject{Name: "app", Digest: strings.Repeat("ab", 32)})
	must(t, err)
	bundle = filepath.Join(t.TempDir(), "app.kici.json")
	must(t, os.WriteFile(bundle, raw, 0o600))
	return issuer, bundle
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestKeysAreReadFromTheIssuer(t *testing.T) {
	server, bundle := published(t)
	issuer := server.URL + "/base"
	large := filepath.Join(t.TempDir(), "large")
	must(t, os.WriteFile(large, make([]byte, attest.MaxBundle+1), 0o600))
	for name, tt := range map[string]struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		"good":             {[]string{bundle, "--issuer", issuer}, 0, "verified\nWHAT", ""},
		"its digest":       {[]string{bundle, "--issuer", issuer, "--digest", "sha256:" + strings.Repeat("ab", 32)}, 0, "commit     | 9f", ""},
		"another digest":   {[]string{bundle, "--issuer", issuer, "--digest", "sha256:" + strings.Repeat("ac", 32)}, 1, "not verified: subject_digest_mismatch\n", ""},
		"strict":           {[]string{bundle, "--issuer", issuer, "--strict"}, 1, "not verified: identity_token_invalid, build_context_uncheckable\n", ""},
		"another audience": {[]string{bundle, "--issuer", issuer, "--audience", "x"}, 1, "not verified: identity_token_invalid", ""},
		"json":             {[]string{bundle, "--issuer", issuer, "--strict", "--json"}, 1, `"verified": false`, ""},
		"sent elsewhere":   {[]string{bundle, "--issuer", server.URL + "/moved"}, 1, "", "answers HTTP 302"},
		"no keys there":    {[]string{bundle, "--issuer", server.URL}, 1, "", "answers HTTP 404"},
		"two subjects":     {[]string{bundle, "--issuer", issuer, "--digest", "x:y", "--file", bundle}, 2, "", "give one of them"},
		"no such file":     {[]string{bundle, "--issuer", issuer, "--file", "nowhere"}, 1, "", "nowhere"},
		"too large":        {[]string{large, "--issuer", issuer}, 1, "", "it is larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := cli.Run(t.Context(), append([]string{"kici", "verify-attestation"}, tt.args...), cli.Process{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
			if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("code %d\n%s%s", code, &stdout, &stderr)
			}
			if strings.Contains(stdout.String(), "\x1b") {
				t.Errorf("a control character reached the terminal: %q", &stdout)
			}
		})
	}
}
