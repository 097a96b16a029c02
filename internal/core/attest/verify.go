package attest

import (
	"encoding/json"
	"strings"

	"kici/internal/kit/jsontree"
)

// Request is a bundle, and what it must be to be believed.
type Request struct {
	Bundle   []byte  // JSON
	Keys     []byte  // JWK set of the issuer
	Issuer   string  // of the token, byte for byte; never taken from the bundle
	Audience string  // of the token, "" for any
	Digest   *Digest // of a subject, nil for any
	Now      int64   // epoch seconds
	// AtIssue judges the token as of the moment in which it was issued. Tokens live for minutes and bundles for years: of an
	// old bundle the revocation of keys decides, not the end of its token.
	AtIssue bool
}

// Verify judges a bundle. It never fails: whatever cannot be read is a failure of the bundle.
func Verify(r Request) Verdict {
	v := Verdict{Mode: modeKici, Checks: Checks{Skipped, Skipped, Skipped, Skipped, Skipped}, Failures: []string{}}
	if len(r.Bundle) > MaxBundle {
		v.Checks.Schema = v.note(false, BundleInvalid)
		return v
	}
	root, err := parse(r.Bundle)
	if err != nil {
		v.Checks.Schema = v.note(false, BundleInvalid)
		return v
	}
	if !is(root, "mediaType", MediaType) {
		v.Mode = modeSigstore
		v.note(false, ModeUnsupported)
		return v
	}
	b, ok := readBundle(root)
	if !ok {
		v.Checks.Schema = v.note(false, BundleInvalid)
		return v
	}
	v.judge(r, b)
	return v
}

// parse reads JSON as the decoders of JavaScript do, which put a replacement where a byte is no UTF-8.
func parse(raw []byte) (*jsontree.Node, error) {
	return jsontree.Parse(strings.ToValidUTF8(string(raw), "\uFFFD"))
}

// Unreadable is the verdict on what is no request to verify a bundle.
func Unreadable() Verdict { return Verify(Request{}) }

// judge checks a bundle that has its form.
func (v *Verdict) judge(r Request, b bundle) {
	payload, err := decodeBase64(b.payload)
	var statement *jsontree.Node
	ok := false
	if err == nil {
		statement, ok = readStatement(payload)
	}
	if v.Checks.Schema = v.note(ok, StatementInvalid); ok {
		v.Statement = json.RawMessage(statement.Append(nil, ""))
	}
	keys, _ := parse(r.Keys) // a set that cannot be read has no keys
	claims, tokenErr := verifyToken(b.token, keys, r)
	if v.Checks.Token = v.note(tokenErr == nil, TokenInvalid); tokenErr == nil {
		v.Claims = json.RawMessage(claims.Append(nil, ""))
	}
	v.Checks.Signature = v.note(err == nil && verifyEnvelope(b, payload) == nil, SignatureInvalid)
	switch {
	case !ok || tokenErr != nil:
		v.Checks.BuildContext = v.note(false, ContextUncheckable)
	default:
		v.Checks.BuildContext = v.note(sameBuild(statement, claims), ContextMismatch)
	}
	if r.Digest != nil && ok {
		v.Checks.Digest = v.note(hasDigest(statement, *r.Digest), SubjectMismatch)
	}
	v.Verified = v.Checks.Schema == Pass && v.Checks.Token == Pass && v.Checks.Signature == Pass && v.Checks.BuildContext == Pass &&
		v.Checks.Digest != Fail
}

// note keeps the failure of a check.
func (v *Verdict) note(ok bool, failure string) Check {
	if ok {
		return Pass
	}
	v.Failures = append(v.Failures, failure)
	return Fail
}

// sameBuild tells whether a statement says of the build what its token does. What both leave out is equal; what one
// leaves out is not equal to the other's null.
func sameBuild(statement, claims *jsontree.Node) bool {
	build := path(statement, "predicate", "buildDefinition")
	workflow, internal := path(build, "externalParameters", "workflow"), build.Member("internalParameters")
	for _, pair := range []struct {
		said  *jsontree.Node
		claim string
	}{
		{workflow.Member("repository"), "repository"}, {workflow.Member("ref"), "ref"}, {workflow.Member("path"), "workflow_ref"},
		{path(internal, "commit"), "sha"}, {path(internal, "runId"), "kici_run_id"}, {path(internal, "jobId"), "kici_job_id"},
	} {
		if !equal(pair.said, claims.Member(pair.claim)) {
			return false
		}
	}
	return true
}

// equal compares what a statement says, a text or nothing, with a claim.
func equal(said, claim *jsontree.Node) bool {
	if said == nil || claim == nil {
		return said == nil && claim == nil
	}
	return claim.Kind == jsontree.Text && said.Text() == claim.Text()
}

func hasDigest(statement *jsontree.Node, want Digest) bool {
	subjects := statement.Member("subject")
	for i := range subjects.Items {
		if is(subjects.Items[i].Member("digest"), want.Algorithm, want.Hex) {
			return true
		}
	}
	return false
}

// Build is which build made the subject, as the token of a verified bundle says. It is empty for any other bundle.
func (v Verdict) Build() (b Build) {
	if !v.Verified {
		return b
	}
	claims, err := parse(v.Claims)
	if err != nil {
		return b
	}
	for key, into := range map[string]*string{"repository": &b.Repository, "ref": &b.Ref, "sha": &b.SHA, "workflow_ref": &b.Workflow,
		"kici_run_id": &b.Run, "kici_job_id": &b.Job} {
		text(claims, key, into)
	}
	return b
}

// Build names what made something.
type Build struct{ Repository, Ref, SHA, Workflow, Run, Job string }

// Attests tells whether a verified bundle is about a subject with that digest, under whatever algorithm, and was made by
// that job: a bundle that is good in itself may still be somebody else's.
func (v Verdict) Attests(runID, jobID, hex string) (failure string) {
	statement, err := parse(v.Statement)
	claims, claimsErr := parse(v.Claims)
	if err != nil || claimsErr != nil || !is(claims, "kici_run_id", runID) || !is(claims, "kici_job_id", jobID) {
		return ContextMismatch
	}
	subjects := statement.Member("subject")
	for i := range subjects.Items {
		digests := subjects.Items[i].Member("digest")
		for j := range digests.Items {
			if digests.Items[j].Text() == hex {
				return ""
			}
		}
	}
	return SubjectMismatch
}
