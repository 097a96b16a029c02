package forge

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
)

// Request is what a verification looks at.
type Request struct {
	Body     []byte            // raw, as received
	Headers  map[string]string // names in lower case
	ClientIP string            // canonical text, "" when unknown
}

// Passes tells whether the request is proven. The time it takes does not depend on where a secret and a guess differ.
func (v Verification) Passes(r Request) bool {
	switch v.Method {
	case MethodHMAC:
		sent, ok := r.Headers[v.header()]
		return ok && v.anySecret(func(secret string) bool {
			return hmacMatches(r.Body, strings.TrimPrefix(sent, "sha256="), secret)
		})
	case MethodBearer, MethodAPIKey:
		sent, ok := r.Headers[v.header()]
		sent = strings.TrimPrefix(sent, "Bearer ")
		return ok && v.anySecret(func(secret string) bool { return sameText(sent, secret) })
	case MethodIP:
		return r.ClientIP != "" && (slices.Contains(v.Allowlist, r.ClientIP) || v.inRange(r.ClientIP))
	}
	return v.Method == MethodNone
}

func (v Verification) header() string {
	if v.Header == "" {
		return defaultHeader[v.Method]
	}
	return v.Header
}

// anySecret tries the present secret and the one that is being changed over to.
func (v Verification) anySecret(matches func(secret string) bool) bool {
	first := matches(v.Secret)
	return v.Next != "" && matches(v.Next) || first
}

func (v Verification) inRange(client string) bool {
	addr, err := netip.ParseAddr(client)
	return err == nil && slices.ContainsFunc(v.Ranges, func(text string) bool {
		prefix, err := netip.ParsePrefix(text)
		return err == nil && prefix.Contains(addr)
	})
}

// VerifyGitHub checks the header X-Hub-Signature-256 as GitHub signs: exactly `sha256=` and 64 hex digits, of any of
// the secrets. A header in another form fails.
func VerifyGitHub(body []byte, header string, secrets ...string) bool {
	digest, ok := strings.CutPrefix(header, "sha256=")
	return ok && slices.ContainsFunc(secrets, func(secret string) bool { return hmacMatches(body, digest, secret) })
}

// hmacMatches compares an HMAC-SHA256 given in hex digits of either case.
func hmacMatches(body []byte, digest, secret string) bool {
	sent, err := hex.DecodeString(digest)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hmac.Equal(sent, mac.Sum(nil))
}

// sameText compares digests, since a comparison of the texts themselves would tell their length.
func sameText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
