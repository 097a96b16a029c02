package attest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/vectors"
)

// vector is a case of provenance.json.
type vector struct {
	Name             string          `json:"name"`
	Note             string          `json:"note"`
	Now              int64           `json:"now"`
	ExpectedIssuer   string          `json:"expectedIssuer"`
	ExpectedAudience string          `json:"expectedAudience"`
	ExpectedDigest   *Digest         `json:"expectedDigest"`
	Keys             json.RawMessage `json:"jwks"`
	Bundle           json.RawMessage `json:"bundle"`
	Expected         Verdict         `json:"expected"`
	Origin           string          `json:"origin"`
}

func (v vector) request() Request {
	return Request{Bundle: v.Bundle, Keys: v.Keys, Issuer: v.ExpectedIssuer, Audience: v.ExpectedAudience, Digest: v.ExpectedDigest, Now: v.Now}
}

func TestVectors(t *testing.T) {
	for _, v := range vectors.LoadAs[vector](t, "provenance.json") {
		t.Run(v.Name, func(t *testing.T) {
			got := Verify(v.request())
			if (got.Claims != nil) != (got.Checks.Token == Pass) || (got.Statement != nil) != (got.Checks.Schema == Pass) {
				t.Errorf("claims %s and statement %s do not go with %+v", got.Claims, got.Statement, got.Checks)
			}
			got.Claims, got.Statement = nil, nil
			if d := cmp.Diff(v.Expected, got); d != "" {
				t.Error(v.Note, d)
			}
		})
	}
}

// issuer is a server in the small: its key, and the set that publishes it.
type issuer struct {
	key Key
	set []byte
}

func newIssuer(t testing.TB) issuer {
	t.Helper()
	key, err := NewKey()
	must(t, err)
	jwk, err := key.PublicJWK()
	must(t, err)
	published, err := Publish(jwk)
	must(t, err)
	set, err := json.Marshal(map[string]any{"keys": []any{published}})
	must(t, err)
	return issuer{key, set}
}

const hash = "0202020202020202020202020202020202020202020202020202020202020202"

// bundle makes a bundle whose token holds from 1000 to 1600, with some claims changed; a nil change removes a claim.
func (i issuer) bundle(t testing.TB, change map[string]any) []byte {
	t.Helper()
	claims := map[string]any{"iss": "https://ci.test", "aud": Audience, "iat": 1000, "nbf": 1000, "exp": 1600, "kici_run_id": "r", "kici_job_id": "j",
		"repository": "acme/api", "ref": "main", "sha": "9f", "workflow_ref": "ci@9f", "orchestrator_id": "node"}
	for k, v := range change {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	token, err := i.key.SignToken(claims)
	must(t, err)
	raw, err := Make(token, Subject{Name: "app.tgz", Digest: hash})
	must(t, err)
	return raw
}

func (i issuer) request(raw []byte) Request {
	return Request{Bundle: raw, Keys: i.set, Issuer: "https://ci.test", Audience: Audience, Digest: &Digest{"sha256", hash}, Now: 1100}
}

func TestWhatIsMadeIsVerified(t *testing.T) {
	i := newIssuer(t)
	v := Verify(i.request(i.bundle(t, nil)))
	if !v.Verified || len(v.Failures) != 0 {
		t.Fatalf("verdict %+v", v)
	}
	if d := cmp.Diff(Build{Repository: "acme/api", Ref: "main", SHA: "9f", Workflow: "ci@9f", Run: "r", Job: "j"}, v.Build()); d != "" {
		t.Error(d)
	}
	if got := v.Attests("r", "j", hash); got != "" {
		t.Errorf("the job's own bundle: %s", got)
	}
	for want, about := range map[string][3]string{
		ContextMismatch: {"r", "other", hash}, SubjectMismatch: {"r", "j", strings.Repeat("0", 64)},
	} {
		if got := v.Attests(about[0], about[1], about[2]); got != want {
			t.Errorf("about %v: %q, want %s", about, got, want)
		}
	}
}

func TestAnOldBundleIsJudgedByTheTimeOfItsToken(t *testing.T) {
	i := newIssuer(t)
	r := i.request(i.bundle(t, nil))
	r.Now = 1_000_000
	if v := Verify(r); v.Verified || v.Checks.Token != Fail {
		t.Errorf("years later: %+v", v)
	}
	if r.AtIssue = true; !Verify(r).Verified {
		t.Errorf("as of its issue: %+v", Verify(r))
	}
	r.Keys = newIssuer(t).set
	if Verify(r).Verified {
		t.Error("a key that is not published is believed")
	}
	r = i.request(i.bundle(t, map[string]any{"iat": nil}))
	if r.AtIssue = true; Verify(r).Verified {
		t.Error("a token without a time of issue is believed as of that")
	}
}

func TestTimesThatAreNoNumbersEndAToken(t *testing.T) {
	i := newIssuer(t)
	for _, change := range []map[string]any{{"exp": "1600"}, {"exp": nil}, {"nbf": "0"}, {"iat": true}, {"nbf": 1101}, {"exp": 1100}} {
		if v := Verify(i.request(i.bundle(t, change))); v.Checks.Token != Fail {
			t.Errorf("%v: %+v", change, v)
		}
	}
	if v := Verify(i.request(i.bundle(t, map[string]any{"exp": 1100.5, "nbf": nil, "iat": nil}))); !v.Verified {
		t.Errorf("%+v", v)
	}
}

func TestOnlyOneKeyThatMayVerifyIsBelieved(t *testing.T) {
	i := newIssuer(t)
	r := i.request(i.bundle(t, nil))
	key := func(change map[string]any) map[string]any {
		var set struct{ Keys []map[string]any }
		must(t, json.Unmarshal(i.set, &set))
		for k, v := range change {
			if set.Keys[0][k] = v; v == nil {
				delete(set.Keys[0], k)
			}
		}
		return set.Keys[0]
	}
	for name, tt := range map[string]struct {
		keys []any
		want bool
	}{
		"plain":           {[]any{key(nil)}, true},
		"no use, no alg":  {[]any{key(map[string]any{"use": nil, "alg": nil})}, true},
		"verifies":        {[]any{key(map[string]any{"key_ops": []string{"verify"}})}, true},
		"beside others":   {[]any{7, nil, map[string]any{}, key(map[string]any{"kid": "x"}), key(nil)}, true},
		"twice":           {[]any{key(nil), key(nil)}, false},
		"for encryption":  {[]any{key(map[string]any{"use": "enc"})}, false},
		"other algorithm": {[]any{key(map[string]any{"alg": "ES384"})}, false},
		"signs":           {[]any{key(map[string]any{"key_ops": []string{"sign"}})}, false},
		"private":         {[]any{key(map[string]any{"d": "AAAA"})}, false},
		"off the curve":   {[]any{key(map[string]any{"x": key(nil)["y"]})}, false},
		"another kid":     {[]any{key(map[string]any{"kid": "x"})}, false},
		"without a kid":   {[]any{key(map[string]any{"kid": nil})}, false},
		"none":            {nil, false},
	} {
		var err error
		r.Keys, err = json.Marshal(map[string]any{"keys": tt.keys})
		must(t, err)
		if v := Verify(r); v.Verified != tt.want {
			t.Errorf("%s: %+v", name, v.Checks)
		}
	}
}

func TestATokenHasNoLineEnds(t *testing.T) {
	i := newIssuer(t)
	raw := i.bundle(t, nil)
	spoilt := bytes.Replace(raw, []byte(`"identityToken":"ey`), []byte(`"identityToken":"e\ny`), 1)
	if v := Verify(i.request(spoilt)); v.Checks.Token != Fail || bytes.Equal(raw, spoilt) {
		t.Errorf("%+v", v.Checks)
	}
}

func TestTimesOfABuildAreThoseOfTheirStandard(t *testing.T) {
	for text, want := range map[string]bool{`"2025-10-09T08:53:20Z"`: true, `"2025-10-09T08:53:20.123+02:00"`: true, `"2025-10-09T08:53:20,1Z"`: false,
		`"2025-10-09"`: false, `"2025-10-09T08:53:20"`: false, `"2025-10-09T8:53:20Z"`: false, `"2025-10-09T08:53:20+99:00"`: false, `7`: false, `null`: false} {
		n, err := parse([]byte(text))
		if must(t, err); goodTime(n) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

func TestNamesAreCaseSensitive(t *testing.T) {
	i := newIssuer(t)
	raw := i.bundle(t, nil)
	for old, other := range map[string]string{`"mediaType"`: `"MediaType"`, `"publicKey"`: `"PublicKey"`, `"keyid"`: `"KeyID"`} {
		if v := Verify(i.request(bytes.Replace(raw, []byte(old), []byte(other), 1))); v.Verified {
			t.Errorf("%s stood in for %s", other, old)
		}
	}
}

// A statement with both subject and Subject is judged by subject: a decoder that folds case would take the other.
func TestALookAlikeOfTheSubjectCountsForNothing(t *testing.T) {
	const statement = `{"_type":"https://in-toto.io/Statement/v1","predicateType":"https://slsa.dev/provenance/v1",
		"subject":[{"digest":{"sha256":"aa"}}],"Subject":[{"digest":{"sha256":"bb"}}],
		"predicate":{"buildDefinition":{"buildType":"https://kici.dev/buildtypes/workflow/v1","externalParameters":{"workflow":{"repository":"","ref":"","path":""}}},
			"runDetails":{"builder":{"id":""}}}}`
	n, ok := readStatement([]byte(statement))
	if !ok || !hasDigest(n, Digest{"sha256", "aa"}) || hasDigest(n, Digest{"sha256", "bb"}) {
		t.Errorf("read %v", ok)
	}
	n, ok = readStatement([]byte(strings.Replace(statement, `"subject":`, `"SUBJECT":`, 1)))
	if ok {
		t.Errorf("taken for a statement: %s", n.Raw)
	}
}

func TestKeysAreKeptAndPublished(t *testing.T) {
	key, err := NewKey()
	must(t, err)
	private, err := key.PrivateJWK()
	must(t, err)
	again, err := ParseKey(private)
	must(t, err)
	if again.ID() != key.ID() {
		t.Error("a key that was kept has another id")
	}
	published, err := Publish(private)
	must(t, err)
	raw, err := json.Marshal(published)
	must(t, err)
	var members map[string]string
	must(t, json.Unmarshal(raw, &members))
	if members["kid"] != key.ID() || members["d"] != "" || len(members) != 7 {
		t.Errorf("published %s", raw)
	}
	for _, bad := range []string{"", "{}", `{"kty":"OKP","crv":"Ed25519","x":"AA"}`, string(raw)} {
		if _, err := ParseKey([]byte(bad)); err == nil {
			t.Errorf("%s was taken for a private key", bad)
		}
	}
}

func TestGoodDigest(t *testing.T) {
	for text, want := range map[string]bool{hash: true, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "aa": false,
		strings.ToUpper(strings.Repeat("a", 64)): false, "../" + hash: false, hash + "\n": false} {
		if GoodDigest(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	cases := vectors.LoadAs[vector](f, "provenance.json")
	for _, v := range cases {
		f.Add([]byte(v.Bundle), []byte(v.Keys))
	}
	f.Add([]byte(`{"mediaType":"`+MediaType+`","dsseEnvelope":{},"verificationMaterial":{}}`), []byte(`{"keys":[null,1,{}]}`))
	f.Fuzz(func(t *testing.T, bundle, keys []byte) {
		v := Verify(Request{Bundle: bundle, Keys: keys, Issuer: cases[0].ExpectedIssuer, Now: cases[0].Now, Digest: &Digest{"sha256", hash}})
		for _, c := range []Check{v.Checks.Schema, v.Checks.Token, v.Checks.Signature, v.Checks.BuildContext, v.Checks.Digest} {
			if c != Pass && c != Fail && c != Skipped {
				t.Fatalf("verdict %+v", v)
			}
		}
		if v.Verified != (len(v.Failures) == 0) {
			t.Fatalf("verdict %+v", v)
		}
		if _, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		}
		v.Attests("r", "j", hash)
		if slices.Contains(v.Failures, "") {
			t.Fatal("a failure without a name")
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
