package attest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"kici/internal/kit/jsontree"
)

var errToken = errors.New("the identity token does not hold")

// verifyToken checks who signed a token, for whom, and when, and gives its claims.
func verifyToken(token string, keys *jsontree.Node, r Request) (claims *jsontree.Node, err error) {
	id, err := readHeader(token)
	if err != nil {
		return nil, err
	}
	public, err := theKey(keys, id)
	if err != nil {
		return nil, err
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errToken, err)
	}
	payload, err := signed.Verify(public)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errToken, err)
	}
	claims, err = parse(payload)
	if err != nil || claims.Kind != jsontree.Object {
		return nil, fmt.Errorf("%w: its claims are no object", errToken)
	}
	if !is(claims, "iss", r.Issuer) || !intended(claims.Member("aud"), r.Audience) || !inTime(claims, r) {
		return nil, fmt.Errorf("%w: it is of another issuer, for others, or of another time", errToken)
	}
	return claims, nil
}

// readHeader gives the id of the key that a token names, nil when it names none. The algorithm is ours to choose, never
// the token's, and there is no extension that it could demand.
func readHeader(token string) (id *jsontree.Node, err error) {
	if strings.ContainsAny(token, "\r\n") {
		return nil, fmt.Errorf("%w: it is not a compact JWS", errToken) // decoders of base64 pass over line ends
	}
	head, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return nil, fmt.Errorf("%w: its header is not base64", errToken)
	}
	header, err := parse(raw)
	if err != nil || !is(header, "alg", algorithm) || header.Member("crit") != nil || !optional(header, "kid", jsontree.Text) {
		return nil, fmt.Errorf("%w: its header is not that of an %s token", errToken, algorithm)
	}
	return header.Member("kid"), nil
}

// theKey is the one key of a set that may have signed. Where several may have, none is believed.
func theKey(set *jsontree.Node, id *jsontree.Node) (public any, err error) {
	list := path(set, "keys")
	if !isA(list, jsontree.List) || len(list.Items) > maxKeysOfIssuer {
		return nil, fmt.Errorf("%w: there is no set of keys", errToken)
	}
	var found *jsontree.Node
	for i := range list.Items {
		k := &list.Items[i]
		if !candidate(k) || id != nil && !is(k, "kid", id.Text()) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: several keys may have signed it", errToken)
		}
		found = k
	}
	if found == nil {
		return nil, fmt.Errorf("%w: no published key has signed it", errToken)
	}
	if found.Member("d") != nil {
		return nil, fmt.Errorf("%w: the key that has signed it is known to everybody", errToken)
	}
	return parsePublic([]byte(found.Raw))
}

// candidate tells whether a key of a set is meant to verify our tokens.
func candidate(k *jsontree.Node) bool {
	return is(k, "kty", "EC") && is(k, "crv", curve) && unless(k, "use", "sig") && unless(k, "alg", algorithm) && mayVerify(k.Member("key_ops"))
}

// unless tells whether a member is that text, or no text at all.
func unless(n *jsontree.Node, key, want string) bool {
	return !isA(n.Member(key), jsontree.Text) || is(n, key, want)
}

func mayVerify(operations *jsontree.Node) bool {
	return !isA(operations, jsontree.List) || slices.ContainsFunc(operations.Items, func(o jsontree.Node) bool { return o.Text() == "verify" })
}

// intended tells whether a token's audience, a text or a list of texts, holds the one that is asked for; "" asks for none.
func intended(aud *jsontree.Node, want string) bool {
	if want == "" {
		return true
	}
	if isA(aud, jsontree.Text) {
		return aud.Text() == want
	}
	if !isA(aud, jsontree.List) {
		return false
	}
	for i := range aud.Items {
		if a := &aud.Items[i]; a.Kind == jsontree.Text && a.Text() == want {
			return true
		}
	}
	return false
}

// inTime tells whether a token holds at a time, without any leeway. One that never ends is no token of ours.
func inTime(claims *jsontree.Node, r Request) bool {
	issued, from, until := claims.Member("iat"), claims.Member("nbf"), claims.Member("exp")
	if issued != nil && issued.Kind != jsontree.Number || from != nil && from.Kind != jsontree.Number || !isA(until, jsontree.Number) {
		return false
	}
	now := float64(r.Now)
	if r.AtIssue {
		if issued == nil {
			return false
		}
		now = issued.Number()
	}
	return until.Number() > now && (from == nil || from.Number() <= now)
}
