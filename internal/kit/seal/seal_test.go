package seal

import (
	"bytes"
	"crypto/ecdh"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	testKey  = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	otherKey = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

var envelopes = []struct{ plaintext, aad, envelope string }{
	{"hunter2", "org-1:prod/db:PASSWORD", "oKGio6Slpqeoqaqr7ZvbosZuR/6J91TS8xeDNI5tElkguTA="},
	{"", "org-1:prod/db:__empty__", "oKGio6SlpqeoqaqrOsVV9u+1OfN/hcsMr+63pg=="},
	{`{"a":"é"}`, "config-field:platform.token", "oKGio6SlpqeoqaqrJqGjVJIIUkhvOSIrzbmebp06HQ9/6cEWQBg="},
}

func keyring(t testing.TB, current, previous string) *Keyring {
	t.Helper()
	k, err := NewKeyring(current, previous)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKnownEnvelopes(t *testing.T) {
	k := keyring(t, testKey, "")
	nonce, _ := hex.DecodeString("a0a1a2a3a4a5a6a7a8a9aaab")
	for _, e := range envelopes {
		if got := envelopeWith(k.current, nonce, []byte(e.plaintext), e.aad); got != e.envelope {
			t.Errorf("%s: sealed %s, want %s", e.aad, got, e.envelope)
		}
		got, err := k.Open(e.envelope, e.aad)
		if err != nil || string(got) != e.plaintext {
			t.Errorf("%s: opened %q, %v", e.aad, got, err)
		}
	}
}

func TestSealUsesAFreshNonceAndOpensAgain(t *testing.T) {
	k := keyring(t, testKey, "")
	k.SetVersion(7)
	a, version, err := k.Seal([]byte("x"), "p")
	b, _, _ := k.Seal([]byte("x"), "p")
	if err != nil || a == b || version != 7 || k.Version() != 7 {
		t.Errorf("Seal = %q and %q, version %d, %v", a, b, version, err)
	}
	if got, err := k.Open(a, "p"); err != nil || string(got) != "x" {
		t.Errorf("Open = %q, %v", got, err)
	}
}

func TestOpenRefusesEveryChange(t *testing.T) {
	k := keyring(t, testKey, "")
	e := envelopes[0]
	raw, _ := base64.StdEncoding.DecodeString(e.envelope)
	for i := range raw {
		changed := bytes.Clone(raw)
		changed[i] ^= 1
		if _, err := k.Open(base64.StdEncoding.EncodeToString(changed), e.aad); !errors.Is(err, ErrUnreadable) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
	}
	_, err := k.Open(e.envelope, "org-1:prod/other:PASSWORD")
	if err == nil || !strings.Contains(err.Error(), "org-1:prod/other:PASSWORD") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("other place: %v", err)
	}
	if _, err := k.Open("AAAA", "p"); !errors.Is(err, ErrTooShort) {
		t.Errorf("short envelope: %v", err)
	}
	if _, err := k.Open("!", "p"); err == nil {
		t.Error("no base64: opened")
	}
}

func TestPreviousKeyOpensDuringRotation(t *testing.T) {
	old := keyring(t, otherKey, "")
	envelope, _, _ := old.Seal([]byte("v"), "p")
	if _, err := keyring(t, testKey, "").Open(envelope, "p"); err == nil {
		t.Error("opened without the previous key")
	}
	if got, err := keyring(t, testKey, otherKey).Open(envelope, "p"); err != nil || string(got) != "v" {
		t.Errorf("with the previous key: %q, %v", got, err)
	}
	for _, k := range []*Keyring{keyring(t, testKey, otherKey), keyring(t, otherKey, testKey)} {
		got, aged, err := k.OpenAged(envelope, "p")
		if _, currentErr := openWith(k.current, envelope, "p"); err != nil || string(got) != "v" || aged != (currentErr != nil) {
			t.Errorf("opened %q, aged %v, %v", got, aged, err)
		}
	}
}

func TestKeyForms(t *testing.T) {
	raw, _ := hex.DecodeString(testKey)
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"hex", testKey, true},
		{"hex in capitals", strings.ToUpper(testKey), true},
		{"base64", base64.StdEncoding.EncodeToString(raw), true},
		{"base64 without padding", base64.RawStdEncoding.EncodeToString(raw), true},
		{"blanks around", " " + testKey + "\n", true},
		{"empty", "", false},
		{"short hex", testKey[:62], false},
		{"stray characters", "!" + base64.StdEncoding.EncodeToString(raw), false},
		{"broken base64", base64.StdEncoding.EncodeToString(raw)[:20] + "\n" + base64.StdEncoding.EncodeToString(raw)[20:], false},
		{"31 bytes", base64.StdEncoding.EncodeToString(raw[:31]), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, err := NewKeyring(tt.text, "")
			if (err == nil) != tt.ok {
				t.Fatalf("error %v, want ok=%v", err, tt.ok)
			}
			if err != nil {
				if !strings.Contains(err.Error(), "32 bytes") || !strings.Contains(err.Error(), "64 hex digits") || !strings.Contains(err.Error(), "base64") {
					t.Errorf("error does not name the forms: %v", err)
				}
				return
			}
			if _, err := k.Open(envelopes[0].envelope, envelopes[0].aad); err != nil {
				t.Errorf("another key was read: %v", err)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	token := "kat_" + strings.Repeat("ab", 32)
	if got := HashToken(token); got != "e0435e3dfd7ab7bbef21d3758d4809c2b947e53a7220141e4e47d04382a22cde" {
		t.Errorf("HashToken = %s", got)
	}
	if got := TokenPrefix(token); got != "kat_abababab" {
		t.Errorf("TokenPrefix = %s", got)
	}
	if a, b := NewAgentToken(), NewAgentToken(); len(a) != 68 || !strings.HasPrefix(a, "kat_") || a == b {
		t.Errorf("agent tokens %q, %q", a, b)
	}
	if a := NewAdminToken(); len(a) != 64 {
		t.Errorf("admin token %q", a)
	}
	if _, err := NewKeyring(NewMasterKey(), ""); err != nil {
		t.Errorf("made master key: %v", err)
	}
}

func TestKeyFileIsMadeOncePrivateAndWarnsWhenLoose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "secret.key")
	var texts [4]string
	var wg sync.WaitGroup
	for i := range texts {
		wg.Go(func() {
			k, err := LoadOrCreateKeyFile(path)
			if err != nil {
				t.Error(err)
			}
			texts[i] = k.Text
		})
	}
	wg.Wait()
	for _, text := range texts {
		if text == "" || text != texts[0] {
			t.Fatalf("processes made different keys: %d and %d characters", len(text), len(texts[0]))
		}
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	if k, err := LoadOrCreateKeyFile(path); err != nil || k.Created || k.Warning != "" {
		t.Errorf("second load: created %v, warning %q, %v", k.Created, k.Warning, err)
	}
	os.Chmod(path, 0o644)
	if k, err := ReadKeyFile(path); err != nil || !strings.Contains(k.Warning, "0644") || !strings.Contains(k.Warning, path) {
		t.Errorf("loose file: warning %q, %v", k.Warning, err)
	}
	if names, _ := os.ReadDir(filepath.Dir(path)); len(names) != 1 {
		t.Errorf("%d files left", len(names))
	}
	os.WriteFile(path, []byte(" \n"), 0o600)
	if _, err := LoadOrCreateKeyFile(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("empty file: %v", err)
	}
}

func pairOfHex(t *testing.T, private string) KeyPair {
	t.Helper()
	raw, _ := hex.DecodeString(private)
	pair, err := pairOf(raw)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestPairsAreThoseOfTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), keySize, keySize).Draw(t, "private key")
		private, err := ecdh.X25519().NewPrivateKey(raw)
		if err != nil {
			t.Fatal(err)
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		spki, err := x509.MarshalPKIXPublicKey(private.PublicKey())
		if err != nil {
			t.Fatal(err)
		}
		want := KeyPair{Public: base64.StdEncoding.EncodeToString(spki), Private: base64.StdEncoding.EncodeToString(pkcs8)}
		if got, err := pairOf(raw); got != want {
			t.Errorf("%v, public key %s, want %s; the private keys are equal: %t", err, got.Public, want.Public, got.Private == want.Private)
		}
	})
}

// TestKnownAgreements holds the worked examples of the agent protocol and of the page about secrets.
func TestKnownAgreements(t *testing.T) {
	tests := []struct {
		name, server, serverPublic, agent, agentPublic, nonce, envelope, plaintext string
	}{
		{
			name:         "of the protocol",
			server:       strings.Repeat("11", 32),
			serverPublic: "MCowBQYDK2VuAyEAe06Qm75//kTEZaIgA31gjuNYl9Me+XLwf3SJLLD3PxM=",
			agent:        strings.Repeat("22", 32),
			agentPublic:  "MCowBQYDK2VuAyEAD6poTtKIZ7l/Smot7l34zpdOdrcBjj8iocTPJnhXDyA=",
			nonce:        "000102030405060708090a0b",
			envelope:     "AAECAwQFBgcICQoLYAbKnUVmpS1zsZ2X48WHjP6jfa585cBHyDoyqWc=",
			plaintext:    "s3cr3t-output",
		},
		{
			name:         "of the page about secrets",
			server:       "77076d0a7318a57d3c16c17251b26645c6df1c7c9f8f3d4f9d9b8f0f1f2f3f40",
			serverPublic: "MCowBQYDK2VuAyEA6PGdugw1pVlJocSGMUM0feyTEn2oAOreDrYjHdr34FY=",
			agentPublic:  "MCowBQYDK2VuAyEA3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
			nonce:        "a0a1a2a3a4a5a6a7a8a9aaab",
			envelope:     "oKGio6SlpqeoqaqreL9689/cEIh1ZiqP4Psvqrni/PFERQ==",
			plaintext:    "s3cret",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := pairOfHex(t, tt.server)
			if server.Public != tt.serverPublic {
				t.Errorf("public key %s, want %s", server.Public, tt.serverPublic)
			}
			a, err := Agree(server.Private, tt.agentPublic, RunOutputs)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := a.Open(tt.envelope); err != nil || string(got) != tt.plaintext {
				t.Errorf("opened %q, %v", got, err)
			}
			if tt.agent == "" {
				return
			}
			agent := pairOfHex(t, tt.agent)
			b, err := Agree(agent.Private, server.Public, RunOutputs)
			if err != nil || agent.Public != tt.agentPublic {
				t.Fatalf("agent's public key %s, want %s, %v", agent.Public, tt.agentPublic, err)
			}
			nonce, _ := hex.DecodeString(tt.nonce)
			if got := envelopeWith(b.cipher, nonce, []byte(tt.plaintext), ""); got != tt.envelope {
				t.Errorf("sealed %s, want %s", got, tt.envelope)
			}
		})
	}
}

func agree(t *testing.T, private, public, purpose string) Agreement {
	t.Helper()
	a, err := Agree(private, public, purpose)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newPair(t *testing.T) KeyPair {
	t.Helper()
	pair, err := NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestOnlyTheOtherSideOpensWhatOneSealed(t *testing.T) {
	server, agent, stranger := newPair(t), newPair(t), newPair(t)
	sealed := agree(t, agent.Private, server.Public, RunOutputs).Seal([]byte("é\n"))
	if got, err := agree(t, server.Private, agent.Public, RunOutputs).Open(sealed); err != nil || string(got) != "é\n" {
		t.Errorf("opened %q, %v", got, err)
	}
	raw, _ := base64.StdEncoding.DecodeString(sealed)
	if got, err := agree(t, server.Private, agent.Public, RunOutputs).OpenBytes(raw); err != nil || string(got) != "é\n" {
		t.Errorf("opened bytes %q, %v", got, err)
	}
	if _, err := agree(t, server.Private, agent.Public, Uploads).Open(sealed); err == nil {
		t.Error("opened for another purpose")
	}
	if _, err := agree(t, stranger.Private, agent.Public, RunOutputs).Open(sealed); err == nil {
		t.Error("opened by another pair")
	}
	if server.Public == agent.Public {
		t.Error("two pairs are the same")
	}
}

func TestBadKeysAndEnvelopesAreRefused(t *testing.T) {
	pair := newPair(t)
	raw, _ := base64.StdEncoding.DecodeString(pair.Private)
	zero := base64.StdEncoding.EncodeToString(append([]byte("\x30\x2a\x30\x05\x06\x03\x2b\x65\x6e\x03\x21\x00"), make([]byte, 32)...))
	for name, keys := range map[string][2]string{
		"no private key":             {"", pair.Public},
		"private key without base64": {"!", pair.Public},
		"public as private key":      {pair.Public, pair.Public},
		"no public key":              {pair.Private, ""},
		"public key without base64":  {pair.Private, "!"},
		"private as public key":      {pair.Private, pair.Private},
		"public key of small order":  {pair.Private, zero},
	} {
		_, err := Agree(keys[0], keys[1], RunOutputs)
		if err == nil || strings.Contains(err.Error(), pair.Private) || strings.Contains(err.Error(), string(raw)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := agree(t, pair.Private, pair.Public, RunOutputs)
	for _, envelope := range []string{"", "!", "AAAA", "oKGio6SlpqeoqaqreL9689/cEIh1ZiqP4Psvqrni/PFERQ=="} {
		if got, err := a.Open(envelope); err == nil {
			t.Errorf("%q: opened %q", envelope, got)
		}
	}
}

func FuzzOpen(f *testing.F) {
	for _, e := range envelopes {
		f.Add(e.envelope, e.aad)
	}
	f.Fuzz(func(t *testing.T, envelope, aad string) {
		k := keyring(t, testKey, otherKey)
		got, err := k.Open(envelope, aad)
		for _, e := range envelopes {
			if e.envelope == envelope && e.aad == aad {
				if diff := cmp.Diff(e.plaintext, string(got)); err != nil || diff != "" {
					t.Fatalf("known envelope: %v %s", err, diff)
				}
				return
			}
		}
		if err == nil {
			t.Fatalf("opened a forged envelope %q", envelope)
		}
	})
}
