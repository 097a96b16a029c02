package provenance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/attest"
	"kici/internal/core/ci"
	"kici/internal/kit/seal"
	"kici/internal/server/auth"
	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

var person = auth.Entry{ActorType: auth.ActorAPIKey, ActorID: "t-1", Source: auth.SourceHTTP}

// parts decodes header and claims of a token.
func parts(t *testing.T, token string) (header, claims map[string]any) {
	t.Helper()
	out := [2]map[string]any{}
	for i, part := range strings.Split(token, ".")[:2] {
		raw, err := base64.RawURLEncoding.DecodeString(part)
		if err == nil {
			err = json.Unmarshal(raw, &out[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out[0], out[1]
}

func TestATokenSaysWhatTheRowsSay(t *testing.T) {
	each(t, func(r *rig) {
		header, claims := parts(r.t, r.mint("j1"))
		keys, err := r.SigningKeys(r.t.Context())
		r.must(err)
		if d := cmp.Diff(map[string]any{"alg": "ES256", "kid": keys[0].ID, "typ": "JWT"}, header); d != "" {
			r.t.Error(d)
		}
		if id, ok := claims["jti"].(string); !ok || len(id) != 36 {
			r.t.Errorf("jti %v", claims["jti"])
		}
		delete(claims, "jti")
		now := float64(r.now / 1000)
		want := map[string]any{"iss": issuer, "aud": "kici-provenance", "sub": "repo:acme/app:ref:main:event:push", "iat": now, "nbf": now, "exp": now + 600,
			"kici_run_id": "r", "kici_job_id": "j1", "repository": "acme/app", "ref": "main", "sha": "9f", "workflow_ref": "ci@9f",
			"orchestrator_id": "node-1", "org_id": "default", "provider": "local", "source_origin": "local"}
		if d := cmp.Diff(want, claims); d != "" {
			r.t.Error(d)
		}
	})
}

func TestWhatIsNotKnownIsNull(t *testing.T) {
	c := claimsOf(engine.JobIdentity{RunID: "r", JobID: "j"}, issuer, "", "a", "id", time.Unix(1000, 0))
	if c.Repository != nil || c.Ref != nil || c.SHA != nil || c.WorkflowRef != nil || c.Provider != nil || c.Orchestrator != nil || c.Org != "__default__" {
		t.Errorf("claims %+v", c)
	}
	// What a test run runs is not the commit that it began from.
	c = claimsOf(engine.JobIdentity{SHA: "9f", Workflow: "ci", Test: true}, issuer, "", "a", "id", time.Unix(1000, 0))
	if c.SHA != nil || c.WorkflowRef != nil {
		t.Errorf("claims of a test run %+v", c)
	}
}

func TestNoRepositoryReadsAsAnother(t *testing.T) {
	id := engine.JobIdentity{Repo: "acme/app:ref:main", Ref: "100%:x", TriggerEvent: "pull_request:opened"}
	if got := subject(id); got != "repo:acme/app%3Aref%3Amain:ref:100%25%3Ax:event:pull_request:opened" {
		t.Errorf("subject %s", got)
	}
}

func TestAStrangersRunGetsNoToken(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	for tier, want := range map[ci.Tier]error{ci.TierUnknown: ErrUntrusted, "odd": ErrUntrusted, ci.TierKnown: nil, ci.TierTrusted: nil, "": nil} {
		id := r.jobs["j1"]
		id.Tier = tier
		r.jobs["j1"] = id
		if _, err := r.Mint(t.Context(), r.owned("j1"), "a"); !errors.Is(err, want) {
			t.Errorf("%q: %v", tier, err)
		}
	}
}

func TestTheDocumentListsTheClaimsThatAreMade(t *testing.T) {
	var made []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[claims]()) {
		made = append(made, f.Tag.Get("json"))
	}
	if d := cmp.Diff(made, discover(issuer).Claims); d != "" {
		t.Error(d)
	}
}

func TestOnlyARunningJobGetsAToken(t *testing.T) {
	each(t, func(r *rig) {
		for name, job := range map[string]engine.Owned{"ended": r.owned("old"), "unknown": r.owned("nobody"), "past": {RunID: "r", JobID: "j1", Past: true},
			"of another run": {RunID: "r2", JobID: "j1"}} {
			if _, err := r.Mint(r.t.Context(), job, "a"); !errors.Is(err, ErrOver) {
				r.t.Errorf("%s: %v", name, err)
			}
		}
		if n := r.count("SELECT count(*) FROM orchestrator_signing_keys"); n != 0 {
			r.t.Errorf("%d keys were made for nobody", n)
		}
	})
}

func TestNodesThatSignAtOnceShareAKey(t *testing.T) {
	each(t, func(r *rig) {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if _, err := r.Mint(r.t.Context(), r.owned("j1"), "a"); err != nil {
					r.t.Error(err)
				}
			})
		}
		group.Wait()
		if n := r.count("SELECT count(*) FROM orchestrator_signing_keys"); n != 1 {
			r.t.Errorf("%d keys", n)
		}
		if n := r.count("SELECT count(*) FROM access_log WHERE action = 'signing_key.activate' AND actor_type = 'system'"); n != 1 {
			r.t.Errorf("%d rows in the access log", n)
		}
	})
}

func (r *rig) revoke(id, reason string) {
	r.t.Helper()
	before := statuses(r)[id]
	revoked, err := r.RevokeSigningKey(r.t.Context(), id, reason, person)
	r.must(err)
	if revoked == (before == Revoked) {
		r.t.Errorf("a key that was %s: revoked %v", before, revoked)
	}
}

func statuses(r *rig) map[string]string {
	r.t.Helper()
	keys, err := r.SigningKeys(r.t.Context())
	r.must(err)
	out := map[string]string{}
	for _, k := range keys {
		out[k.ID] = k.Status
	}
	return out
}

func TestRotationKeepsWhatWasSignedAndRevocationDoesNot(t *testing.T) {
	each(t, func(r *rig) {
		old := string(r.bundle("j1"))
		header, _ := parts(r.t, r.mint("j1"))
		first := header["kid"].(string)
		r.now += 1000
		second, err := r.RotateSigningKey(r.t.Context(), person)
		r.must(err)
		r.now += 1000
		third, err := r.RotateSigningKey(r.t.Context(), person)
		r.must(err)
		if d := cmp.Diff(map[string]string{first: Retired, second.ID: Retiring, third.ID: Active}, statuses(r)); d != "" {
			r.t.Error(d)
		}
		if header, _ := parts(r.t, r.mint("j1")); header["kid"] != third.ID {
			r.t.Errorf("signed with %v, want the newest key", header["kid"])
		}
		if v := r.verify(old); !v.Verified {
			r.t.Errorf("what a retired key signed: %+v", v)
		}
		r.revoke(first, "leaked")
		if v := r.verify(old); v.Verified || v.Checks.Token != attest.Fail {
			r.t.Errorf("what a revoked key signed: %+v", v)
		}
		r.revoke(first, "again") // changes nothing
		r.revoke(third.ID, "leaked")
		if header, _ := parts(r.t, r.mint("j1")); header["kid"] == third.ID || statuses(r)[header["kid"].(string)] != Active {
			r.t.Errorf("signed with %v after the active key was revoked", header["kid"])
		}
		if _, err := r.RevokeSigningKey(r.t.Context(), "nobody", "x", person); !errors.Is(err, ErrUnknownKey) {
			r.t.Errorf("unknown key: %v", err)
		}
		for action, want := range map[string]int{"signing_key.activate": 2, "signing_key.revoke": 2} {
			if n := r.count("SELECT count(*) FROM access_log WHERE action = $1 AND actor_id = 't-1'", action); n != want {
				r.t.Errorf("%d rows of %s, want %d", n, action, want)
			}
		}
	})
}

func TestAKeyMovesToThePresentMasterKey(t *testing.T) {
	each(t, func(r *rig) {
		header, _ := parts(r.t, r.mint("j1"))
		keys := r.keyring(nextKey, masterKey)
		keys.SetVersion(2)
		r.Keys = keys
		r.mint("j1")
		r.Keys = r.keyring(nextKey, "")
		if after, _ := parts(r.t, r.mint("j1")); after["kid"] != header["kid"] {
			r.t.Error("another key signs")
		}
		version, err := r.KeyVersion(r.t.Context())
		r.must(err)
		r.Keys = r.keyring(masterKey, nextKey)
		done, err := r.Rotate(r.t.Context(), version+1)
		r.must(err)
		r.Keys = r.keyring(masterKey, "")
		if r.mint("j1"); version != 2 || done.Done != 1 || done.Skipped != 0 {
			r.t.Errorf("version %d, rotated %+v", version, done)
		}
	})
}

func TestNoOtherKeySignsForOneThatCannotBeOpened(t *testing.T) {
	each(t, func(r *rig) {
		old := string(r.bundle("j1"))
		r.Keys = r.keyring(nextKey, "")
		if _, err := r.Mint(r.t.Context(), r.owned("j1"), "a"); !errors.Is(err, ErrUnavailable) || !errors.Is(err, seal.ErrUnreadable) {
			r.t.Errorf("minted: %v", err)
		}
		if status, answer, _ := r.ask("GET", r.web.URL+"/.well-known/openid-configuration", ""); status != 503 {
			r.t.Errorf("discovery %d %s", status, answer)
		}
		if v := r.verify(old); !v.Verified { // the public half is not sealed
			r.t.Errorf("verdict %+v", v)
		}
		// A new key is the way out of it.
		_, err := r.RotateSigningKey(r.t.Context(), person)
		r.must(err)
		r.mint("j1")
	})
}

func TestNothingPrivateIsPublished(t *testing.T) {
	each(t, func(r *rig) {
		key, err := attest.NewKey()
		r.must(err)
		private, err := key.PrivateJWK()
		r.must(err)
		r.must(r.DB.Write(r.t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.ExecContext(ctx, insertKey, key.ID(), string(private), "x", 1, 1)
			return err
		}))
		status, answer, _ := r.ask("GET", r.web.URL+attest.KeySetPath, "")
		var set struct{ Keys []map[string]string }
		if json.Unmarshal([]byte(answer), &set) != nil || status != 200 || len(set.Keys) != 1 || len(set.Keys[0]) != 7 || set.Keys[0]["d"] != "" {
			r.t.Errorf("%d %s", status, answer)
		}
	})
}

func TestAServerWithoutAnIssuerMakesNoKey(t *testing.T) {
	each(t, func(r *rig) {
		r.Issuer = ""
		if _, err := r.RotateSigningKey(r.t.Context(), person); !errors.Is(err, ErrNotConfigured) {
			r.t.Errorf("rotated: %v", err)
		}
	})
}
