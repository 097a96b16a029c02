package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
	"kici/internal/server/provenance"
)

// fakeProvenance notes what it is asked in the engine's list of calls.
type fakeProvenance struct {
	engine *fakeEngine
	fail   error
}

func (f *fakeProvenance) BeginUpload(_ context.Context, job engine.Owned, digest string) (string, error) {
	return "https://store/" + digest, errors.Join(f.engine.note("begin "+digest+" "+job.RunID), f.fail)
}

func (f *fakeProvenance) CompleteUpload(_ context.Context, job engine.Owned, m wire.ProvenanceUploadComplete) error {
	return errors.Join(f.engine.note("complete "+m.SubjectDigest+" "+job.RunID), f.fail)
}

func (f *fakeProvenance) Mint(_ context.Context, job engine.Owned, audience string) (provenance.Token, error) {
	return provenance.Token{Token: "t-" + audience, ExpiresIn: 600, ID: "id"}, errors.Join(f.engine.note("mint "+job.RunID+" "+job.JobID), f.fail)
}

func withProvenance(p *fakeProvenance) option {
	return func(d *Deps) {
		p.engine = d.Engine.(*fakeEngine)
		d.Provenance, d.Identities = p, p
	}
}

func TestABundleGoesWhereItsJobMayPutIt(t *testing.T) {
	for _, fail := range []error{nil, errors.New("the store is down")} {
		t.Run(fmt.Sprint(fail), func(t *testing.T) {
			b := newBench(t, withProvenance(&fakeProvenance{fail: fail}))
			b.engine.give("a", "mine")
			p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
			want := wire.ProvenanceUploadResponse{RequestID: "1", UploadURL: "https://store/07"}
			if fail != nil {
				want.UploadURL = ""
			}
			p.send(wire.ProvenanceUploadRequest{MessageID: "1", JobID: "mine", SubjectDigest: "07"})
			if d := cmp.Diff(want, expect[wire.ProvenanceUploadResponse](p)); d != "" {
				t.Error(d)
			}
			p.send(wire.ProvenanceUploadRequest{MessageID: "2", JobID: "theirs", SubjectDigest: "07"})
			if got := expect[wire.ProvenanceUploadResponse](p); got.UploadURL != "" {
				t.Errorf("a place for another's job: %+v", got)
			}
			for _, job := range []string{"theirs", "mine"} {
				p.send(wire.ProvenanceUploadComplete{MessageID: "done " + job, JobID: job, SubjectDigest: "07"})
				if got := expect[wire.Ack](p); got.MessageID != "done "+job {
					t.Errorf("acknowledged %q", got.MessageID)
				}
			}
			p.send(wire.ProvenanceUploadRequest{MessageID: "5", JobID: "mine", SubjectDigest: "08"})
			expect[wire.ProvenanceUploadResponse](p)
			if d := cmp.Diff([]string{"connected a", "begin 07 run-of-mine", "complete 07 run-of-mine", "begin 08 run-of-mine"}, b.engine.seen()); d != "" {
				t.Error(d)
			}
		})
	}
}

// An agent of another release knows no acknowledgements.
func TestACompleteIsAcknowledgedToWhomItMeansSomething(t *testing.T) {
	b := newBench(t, withProvenance(&fakeProvenance{}))
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	p.send(wire.ProvenanceUploadComplete{MessageID: "1", JobID: "j", SubjectDigest: "07"})
	p.send(wire.ProvenanceUploadRequest{MessageID: "2", JobID: "j", SubjectDigest: "08"})
	expect[wire.ProvenanceUploadResponse](p)
}

func TestATokenIsForTheJobOfItsAgent(t *testing.T) {
	ask := func(job, audience string) string { return fmt.Sprintf(`{"jobId":%q,"audience":%q}`, job, audience) }
	const wrong = "oidc.token.request: jobId must be the id of a job and audience a text of 1 to 255 characters"
	for name, tt := range map[string]struct {
		params string
		fail   error
		result string
		text   string
	}{
		"its own":              {ask("mine", "aud"), nil, `{"token":"t-aud","expiresIn":600,"jti":"id"}`, ""},
		"forged run":           {`{"jobId":"mine","audience":"aud","runId":"other","sha":"00"}`, nil, `{"token":"t-aud","expiresIn":600,"jti":"id"}`, ""},
		"longest audience":     {ask("mine", strings.Repeat("é", 255)), nil, `{"token":"t-` + strings.Repeat("é", 255) + `","expiresIn":600,"jti":"id"}`, ""},
		"audience too long":    {ask("mine", strings.Repeat("a", 256)), nil, "", wrong},
		"no audience":          {ask("mine", ""), nil, "", wrong},
		"no job":               {`{"audience":"aud"}`, nil, "", wrong},
		"another agent's job":  {ask("theirs", "aud"), nil, "", "this job is not owned by this agent"},
		"a job that has ended": {ask("mine", "aud"), provenance.ErrOver, "", "oidc.token.request: the job is not running"},
		"a stranger's job":     {ask("mine", "aud"), provenance.ErrUntrusted, "", "oidc.token.request: " + provenance.ErrUntrusted.Error()},
		"no key now":           {ask("mine", "aud"), provenance.ErrUnavailable, `{"deferred":true,"code":"unavailable"}`, ""},
		"trouble of our own":   {ask("mine", "aud"), errors.New("dial 10.0.0.7"), "", "internal error"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, withProvenance(&fakeProvenance{fail: tt.fail}))
			b.engine.give("a", "mine")
			p, _ := b.join(t, agent("a"))
			p.send(wire.APIRequest{RequestID: "1", Method: "oidc.token.request", Params: json.RawMessage(tt.params)})
			if got := expect[wire.APIResponse](p); string(got.Result) != tt.result || got.Error != tt.text {
				t.Errorf("answer %s, %q", got.Result, got.Error)
			}
		})
	}
}

// The connection remembers for a moment that a job is its agent's. A token in that moment would speak for another's job.
func TestAnAttemptThatWasGivenUpGetsNoToken(t *testing.T) {
	b := newBench(t, withProvenance(&fakeProvenance{}))
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	p.send(wire.ProvenanceUploadRequest{MessageID: "1", JobID: "j", SubjectDigest: "07"})
	expect[wire.ProvenanceUploadResponse](p)
	b.engine.give("b", "j")
	p.send(wire.APIRequest{RequestID: "2", Method: "oidc.token.request", Params: json.RawMessage(`{"jobId":"j","audience":"a"}`)})
	if got := expect[wire.APIResponse](p); got.Error != engine.ErrNotOwner.Error() || got.Result != nil {
		t.Errorf("answer %+v", got)
	}
}
