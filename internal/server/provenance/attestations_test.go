package provenance

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"kici/internal/core/attest"
	"kici/internal/core/wire"
	"kici/internal/kit/blob"
	"kici/internal/server/cache"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestABundleIsKeptWithItsVerdict(t *testing.T) {
	each(t, func(r *rig) {
		raw := r.bundle("j1")
		a := r.keep("j1", raw)
		if a.Status != Verified || a.Reason != "" || a.Key != "provenance/r/j1/"+digest+".kici.json" || a.Subject != "app.tgz" || a.Size != int64(len(raw)) {
			r.t.Errorf("kept %+v", a)
		}
		_, link, err := r.AttestationLink(r.t.Context(), "r", "j1", digest)
		r.must(err)
		if status, answer, _ := r.ask("GET", link, ""); status != 200 || answer != string(raw) {
			r.t.Errorf("read %d %.80s", status, answer)
		}
		list, err := r.Attestations(r.t.Context(), "r")
		r.must(err)
		if len(list) != 1 || list[0] != a {
			r.t.Errorf("listed %+v", list)
		}
		r.must(r.CompleteUpload(r.t.Context(), r.owned("j1"), wire.ProvenanceUploadComplete{SubjectDigest: digest})) // comes again
		if again := r.theOne("j1"); again != a {
			r.t.Errorf("changed to %+v", again)
		}
		if n := r.count("SELECT count(*) FROM cache_uploads"); n != 0 {
			r.t.Errorf("%d uploads are open", n)
		}
		if _, _, err := r.AttestationLink(r.t.Context(), "r", "j2", digest); !errors.Is(err, ErrNotFound) {
			r.t.Errorf("of another job: %v", err)
		}
	})
}

func TestWhatDoesNotHoldIsKeptAndSaidToFail(t *testing.T) {
	each(t, func(r *rig) {
		other, err := r.Mint(r.t.Context(), r.owned("j1"), "sigstore")
		r.must(err)
		forOthers, err := attest.Make(other.Token, attest.Subject{Name: "x", Digest: digest})
		r.must(err)
		another, err := attest.Make(r.mint("j1"), attest.Subject{Name: "x", Digest: strings.Repeat("3", 64)})
		r.must(err)
		for name, tt := range map[string]struct {
			raw    []byte
			reason string
		}{
			"no bundle":       {[]byte("{"), attest.BundleInvalid},
			"for others":      {forOthers, attest.TokenInvalid},
			"another job's":   {r.bundle("j2"), attest.ContextMismatch},
			"another subject": {another, attest.SubjectMismatch},
			"a test run's":    {r.bundle("test"), attest.ContextMismatch},
		} {
			if a := r.keep("j1", tt.raw); a.Status != Failed || a.Reason != tt.reason {
				r.t.Errorf("%s: %+v", name, a)
			}
		}
		if a := r.keep("j1", r.bundle("j1")); a.Status != Verified { // the last one counts
			r.t.Errorf("kept anew: %+v", a)
		}
	})
}

func TestOnlyADigestNamesASubject(t *testing.T) {
	each(t, func(r *rig) {
		for _, bad := range []string{"", "../../etc/passwd", strings.Repeat("A", 64), "abc", strings.Repeat("a", 130)} {
			if link, err := r.BeginUpload(r.t.Context(), r.owned("j1"), bad); err == nil || link != "" {
				r.t.Errorf("%q: %q", bad, link)
			}
			if err := r.CompleteUpload(r.t.Context(), r.owned("j1"), wire.ProvenanceUploadComplete{SubjectDigest: bad}); err == nil {
				r.t.Errorf("%q was kept", bad)
			}
		}
	})
}

func TestNothingIsKeptOfWhatWasNotPut(t *testing.T) {
	each(t, func(r *rig) {
		done := wire.ProvenanceUploadComplete{SubjectName: "x", SubjectDigest: digest}
		refused := func(what string) {
			r.t.Helper()
			err := r.CompleteUpload(r.t.Context(), r.owned("j1"), done)
			if _, ok := errors.AsType[*cache.Refusal](err); !ok {
				r.t.Errorf("%s: %v", what, err)
			}
		}
		refused("no link was asked for")
		link, err := r.BeginUpload(r.t.Context(), r.owned("j1"), digest)
		r.must(err)
		refused("the link was not used")
		if status, _, _ := r.ask("PUT", link, strings.Repeat("x", attest.MaxBundle+1)); status != 413 {
			r.t.Errorf("a large bundle: %d", status)
		}
		if n := r.count("SELECT count(*) FROM attestations"); n != 0 {
			r.t.Errorf("%d rows", n)
		}
	})
}

func TestAJobAttestsOnlySoMuch(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.must(r.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
			INSERT INTO attestations (`+attestationColumns+`) SELECT 'r', 'j1', 'd' || i, '', '', '', 0, 'pending', '', 1, 1 FROM n`)
		return err
	}))
	if link, err := r.BeginUpload(t.Context(), r.owned("j1"), digest); err == nil || link != "" {
		t.Errorf("link %q", link)
	}
	if _, err := r.BeginUpload(t.Context(), r.owned("j2"), digest); err != nil {
		t.Errorf("another job: %v", err)
	}
}

func TestWhatCouldNotBeJudgedIsJudgedLater(t *testing.T) {
	each(t, func(r *rig) {
		raw := r.bundle("j1")
		r.Issuer = ""
		if a := r.keep("j1", raw); a.Status != Unverifiable || a.Reason != ReasonNoIssuer {
			r.t.Errorf("without an issuer: %+v", a)
		}
		r.Issuer = issuer
		r.keep("j2", r.bundle("j2"))
		r.now += 365 * 24 * 3600_000 // the tokens have long ended
		done, err := r.Reverify(r.t.Context(), false)
		r.must(err)
		if a := r.theOne("j1"); done != (Judged{Verified: 1}) || a.Status != Verified || a.Reason != "" || a.VerifiedAt != r.now {
			r.t.Errorf("%+v, %+v", done, a)
		}
		r.revoke(withStatus(r, Active), "leaked")
		r.must(r.Blobs.Delete(r.t.Context(), r.theOne("j2").Key))
		done, err = r.Reverify(r.t.Context(), true)
		r.must(err)
		if done != (Judged{Failed: 1, Unverifiable: 1}) || r.theOne("j1").Reason != attest.TokenInvalid || r.theOne("j2").Reason != ReasonUnreadable {
			r.t.Errorf("%+v, %+v, %+v", done, r.theOne("j1"), r.theOne("j2"))
		}
	})
}

// A server that is killed in between leaves a row that says so, and its next complete or a reverification goes on.
func TestAKilledServerLeavesARowThatIsPending(t *testing.T) {
	each(t, func(r *rig) {
		raw := r.bundle("j1")
		blobs := r.Blobs
		r.Blobs = broken{blobs}
		link, err := r.BeginUpload(r.t.Context(), r.owned("j1"), digest)
		r.must(err)
		r.ask("PUT", link, string(raw))
		done := wire.ProvenanceUploadComplete{SubjectName: "app.tgz", SubjectDigest: digest, MediaType: attest.MediaType}
		if err := r.CompleteUpload(r.t.Context(), r.owned("j1"), done); err == nil || r.theOne("j1").Status != Pending {
			r.t.Errorf("%v, %+v", err, r.theOne("j1"))
		}
		r.Blobs = blobs
		r.must(r.CompleteUpload(r.t.Context(), r.owned("j1"), done))
		if a := r.theOne("j1"); a.Status != Verified {
			r.t.Errorf("%+v", a)
		}
	})
}

type broken struct{ blob.Store }

func (broken) Put(context.Context, string, io.Reader) (int64, error) {
	return 0, errors.New("no disk")
}

func TestAForgottenRunLeavesNoBundle(t *testing.T) {
	each(t, func(r *rig) {
		a := r.keep("j1", r.bundle("j1"))
		r.must(r.DB.Write(r.t.Context(), func(ctx context.Context, tx *store.Tx) error { return r.ForgetRunTx(ctx, tx, "r") }))
		if n := r.count("SELECT count(*) FROM attestations"); n != 0 {
			r.t.Errorf("%d rows", n)
		}
		if n := r.count("SELECT count(*) FROM cache_discards WHERE path = $1", a.Key); n != 1 {
			r.t.Error("the bundle is not going to be removed")
		}
	})
}
