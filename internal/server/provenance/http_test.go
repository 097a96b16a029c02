package provenance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/attest"
	"kici/internal/server/store/storetest"
	"kici/internal/vectors"
)

func TestWhereKeysArePublished(t *testing.T) {
	each(t, func(r *rig) {
		documents := func(discovery, set int) {
			r.t.Helper()
			for path, want := range map[string]int{"/.well-known/openid-configuration": discovery, attest.KeySetPath: set} {
				status, answer, header := r.ask("GET", r.web.URL+path, "")
				caching := "no-store"
				if want == 200 {
					caching = "public, max-age=300"
				}
				if status != want || header.Get("Cache-Control") != caching || want != 200 && !strings.HasPrefix(answer, `{"error":"`) {
					r.t.Errorf("%s: %d %s, %s", path, status, answer, header.Get("Cache-Control"))
				}
				if head, _, _ := r.ask("HEAD", r.web.URL+path, ""); head != want {
					r.t.Errorf("HEAD %s: %d, want %d", path, head, want)
				}
			}
		}
		documents(200, 503) // no key yet
		r.mint("j1")
		documents(200, 200)
		r.revoke(withStatus(r, Active), "x")
		documents(200, 503)
		r.Issuer = ""
		documents(503, 503)
	})
}

func withStatus(r *rig, status string) string {
	for id, s := range statuses(r) {
		if s == status {
			return id
		}
	}
	return ""
}

func TestTheDocumentFollowsFromTheIssuer(t *testing.T) {
	raw, err := json.Marshal(discover("https://ci.test/base//"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"issuer":"https://ci.test/base//","jwks_uri":"https://ci.test/base/.well-known/jwks.json","id_token_signing_alg_values_supported":["ES256"],` +
		`"response_types_supported":["id_token"],"subject_types_supported":["public"],"claims_supported":["iss","sub","aud","iat","nbf","exp","jti",` +
		`"kici_run_id","kici_job_id","repository","ref","sha","workflow_ref","orchestrator_id","org_id","source_origin","provider"]}`
	if string(raw) != want {
		t.Errorf("%s", raw)
	}
}

// A verifier would take an empty set for the revocation of every key.
func TestADatabaseThatFailsPublishesNoEmptySet(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	bundle := string(r.bundle("j1"))
	r.must(r.write(t.Context(), "DROP TABLE orchestrator_signing_keys"))
	for _, ask := range [][3]string{{"GET", attest.KeySetPath, ""}, {"POST", "/api/v1/verify-attestation", bundle}} {
		if status, answer, _ := r.ask(ask[0], r.web.URL+ask[1], ask[2]); status != 503 || !strings.Contains(answer, "error") {
			t.Errorf("%s: %d %s", ask[1], status, answer)
		}
	}
}

func TestABundleIsVerifiedOnline(t *testing.T) {
	each(t, func(r *rig) {
		raw := r.bundle("j1")
		ask := func(more string) attest.Verdict {
			r.t.Helper()
			return r.verify(fmt.Sprintf(`{"bundle":%s%s}`, raw, more))
		}
		good := `,"digest":{"alg":"sha256","hex":"` + digest + `"}`
		for more, want := range map[string]attest.Verdict{
			"":                                      {Verified: true, Checks: attest.Checks{Digest: attest.Skipped}},
			good:                                    {Verified: true, Checks: attest.Checks{Digest: attest.Pass}},
			`,"digest":{"alg":"sha256","hex":"00"}`: {Checks: attest.Checks{Digest: attest.Fail}},
			`,"audience":"kici-provenance","time":"now"`: {Verified: true, Checks: attest.Checks{Digest: attest.Skipped}},
			`,"audience":"sigstore"`:                     {Checks: attest.Checks{Digest: attest.Skipped}},
			`,"audience":7`:                              {Checks: attest.Checks{Digest: attest.Skipped}},
			`,"time":"later"`:                            {Checks: attest.Checks{Digest: attest.Skipped}},
			`,"digest":{"algorithm":"sha256","hex":"` + digest + `"}`: {Checks: attest.Checks{Digest: attest.Skipped}},
		} {
			if v := ask(more); v.Verified != want.Verified || v.Checks.Digest != want.Checks.Digest {
				r.t.Errorf("with %s: %+v", more, v)
			}
		}
		r.now += 600_000
		if ask("").Verified || !ask(`,"time":"issued"`).Verified {
			r.t.Error("the end of the token decides where it must not, or the other way round")
		}
		for body, want := range map[string]string{"": attest.BundleInvalid, "{": attest.BundleInvalid, "{}": attest.ModeUnsupported, "[]": attest.ModeUnsupported} {
			if v := r.verify(body); v.Verified || len(v.Failures) != 1 || v.Failures[0] != want {
				r.t.Errorf("%q: %+v", body, v)
			}
		}
		if status, _, _ := r.ask("POST", r.web.URL+"/api/v1/verify-attestation", strings.Repeat(" ", attest.MaxBundle+1)); status != http.StatusRequestEntityTooLarge {
			r.t.Errorf("a large body: %d", status)
		}
		r.Issuer = ""
		if status, answer, _ := r.ask("POST", r.web.URL+"/api/v1/verify-attestation", "{}"); status != 503 || answer != `{"error":"Provenance signing is not configured"}` {
			r.t.Errorf("%d %s", status, answer)
		}
	})
}

func TestOneAddressDoesNotVerifyWithoutEnd(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	for range visitBurst {
		r.verify("{}")
	}
	status, _, header := r.ask("POST", r.web.URL+"/api/v1/verify-attestation", "{}")
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("status %d", status)
	}
	r.now += 1000
	r.verify("{}")
}

// vector is a case of provenance.json that the server's own settings can take.
type vector struct {
	Name             string          `json:"name"`
	Now              int64           `json:"now"`
	ExpectedIssuer   string          `json:"expectedIssuer"`
	ExpectedAudience string          `json:"expectedAudience"`
	ExpectedDigest   *attest.Digest  `json:"expectedDigest"`
	Bundle           json.RawMessage `json:"bundle"`
	Keys             struct {
		Keys []json.RawMessage `json:"keys"`
	} `json:"jwks"`
	Expected attest.Verdict `json:"expected"`
}

// publishable tells whether the server could publish the case's keys and be asked its question: it has P-256 keys under their own
// ids only, and always demands an audience.
func (v vector) publishable() bool {
	return v.ExpectedAudience != "" && !slices.ContainsFunc(v.Keys.Keys, func(key json.RawMessage) bool {
		published, err := attest.Publish(key)
		var named struct{ Kid string }
		return err != nil || json.Unmarshal(key, &named) != nil || named.Kid != published.ID
	})
}

// The same verdicts come over HTTP, with the published keys in the table. Other cases are those of the function alone.
func TestVectorsOverHTTP(t *testing.T) {
	asked := 0
	for _, v := range vectors.LoadAs[vector](t, "provenance.json") {
		if !v.publishable() {
			continue
		}
		asked++
		t.Run(v.Name, func(t *testing.T) {
			r := newRig(t, storetest.SQLite(t))
			r.Issuer, r.now = v.ExpectedIssuer, v.Now*1000
			for i, key := range v.Keys.Keys {
				published, err := attest.Publish(key)
				r.must(err)
				r.must(r.write(t.Context(), insertKey, published.ID, string(key), "x", 1, i))
				r.must(r.write(t.Context(), `UPDATE orchestrator_signing_keys SET status = 'retired'`))
			}
			body, err := json.Marshal(map[string]any{"bundle": v.Bundle, "audience": v.ExpectedAudience, "digest": v.ExpectedDigest})
			r.must(err)
			got := r.verify(string(body))
			got.Claims, got.Statement = nil, nil
			if d := cmp.Diff(v.Expected, got); d != "" {
				t.Error(d)
			}
		})
	}
	if asked < 45 {
		t.Errorf("only %d cases were asked", asked)
	}
}

func FuzzVerifyRoute(f *testing.F) {
	for _, v := range vectors.LoadAs[vector](f, "provenance.json") {
		f.Add([]byte(v.Bundle))
	}
	f.Add([]byte(`{"bundle":{},"audience":"a","time":"issued","digest":{"alg":"sha256","hex":"00"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, ok := readQuestion(body)
		v := attest.Unreadable()
		if ok {
			q.Issuer, q.Keys = issuer, []byte(`{"keys":[]}`)
			v = attest.Verify(q)
		}
		w := httptest.NewRecorder()
		answer(w, 200, v)
		var back attest.Verdict
		if err := json.Unmarshal(w.Body.Bytes(), &back); err != nil || back.Verified || len(back.Failures) == 0 || back.Mode == "" {
			t.Fatalf("answer %s: %v", w.Body, err)
		}
	})
}
