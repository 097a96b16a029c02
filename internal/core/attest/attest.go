// Package attest makes and verifies provenance bundles: an in-toto statement that says which run and job made something, a
// DSSE signature over it by a key that is made for this one statement, and the identity token that a server issued for the
// job. The token is to the key what a certificate would be; the published keys of its issuer are the root of all trust.
package attest

import (
	"encoding/json"
	"regexp"
	"sync"
)

// Constants of bundles, of in-toto (https://in-toto.io), SLSA (https://slsa.dev) and of ours.
const (
	MediaType     = "application/vnd.kici.provenance.bundle+json;version=0.1"
	PayloadType   = "application/vnd.in-toto+json"
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://slsa.dev/provenance/v1"
	BuildType     = "https://kici.dev/buildtypes/workflow/v1"
	Audience      = "kici-provenance" // of the token in a bundle
)

// KeySetPath is where an issuer publishes its keys, below its URL.
const KeySetPath = "/.well-known/jwks.json"

// MaxBundle bounds a bundle, in bytes.
const MaxBundle = 1 << 20

// Failures are what a verdict holds against a bundle.
const (
	ModeUnsupported    = "mode_b_unsupported" // another kind of bundle, such as Sigstore's
	BundleInvalid      = "bundle_schema_invalid"
	StatementInvalid   = "statement_schema_invalid"
	TokenInvalid       = "identity_token_invalid"
	SignatureInvalid   = "dsse_signature_invalid"
	ContextUncheckable = "build_context_uncheckable" // statement or token is missing
	ContextMismatch    = "build_context_mismatch"    // statement and token name different builds
	SubjectMismatch    = "subject_digest_mismatch"
)

const (
	modeKici            = "kici"
	modeSigstore        = "sigstore"
	algorithm           = "ES256"
	curve               = "P-256"
	signatureSize       = 64   // r and s, 32 bytes each
	maxKeysOfIssuer     = 1000 // a larger set is not looked through
	maxSubjectDigestHex = 128
	minSubjectDigestHex = 32
)

// Check is the result of one of the checks.
type Check string

// The results.
const (
	Pass    Check = "pass"
	Fail    Check = "fail"
	Skipped Check = "skipped"
)

// Checks are the results of all checks.
type Checks struct {
	Schema       Check `json:"schema"`
	Token        Check `json:"jwt"`
	Signature    Check `json:"dsse"`
	BuildContext Check `json:"buildContext"`
	Digest       Check `json:"digest"`
}

// Verdict is what is to be thought of a bundle.
type Verdict struct {
	Verified  bool            `json:"verified"`
	Mode      string          `json:"mode"` // kici or sigstore
	Checks    Checks          `json:"checks"`
	Failures  []string        `json:"failures"`            // in the order of the checks
	Claims    json.RawMessage `json:"claims,omitempty"`    // of the token, when it holds
	Statement json.RawMessage `json:"statement,omitempty"` // as signed, when it has its form
}

// Digest names a subject by its hash.
type Digest struct {
	Algorithm string `json:"alg"`
	Hex       string `json:"hex"`
}

var hexText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]+$`) })

// GoodDigest tells whether a text can be the digest of a subject: lower-case hexadecimal of 32 to 128 digits. Such a text
// can stand in a path.
func GoodDigest(hex string) bool {
	return len(hex) >= minSubjectDigestHex && len(hex) <= maxSubjectDigestHex && hexText().MatchString(hex)
}
