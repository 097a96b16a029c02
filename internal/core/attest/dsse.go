package attest

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"kici/internal/kit/jsontree"
)

// preAuthentication is what a signature covers (github.com/secure-systems-lab/dsse).
func preAuthentication(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// signPayload gives r and s, 32 bytes each: DSSE wants no DER.
func (k Key) signPayload(payloadType string, payload []byte) ([]byte, error) {
	sum := sha256.Sum256(preAuthentication(payloadType, payload))
	r, s, err := ecdsa.Sign(rand.Reader, k.private, sum[:])
	if err != nil {
		return nil, fmt.Errorf("sign statement: %w", err)
	}
	signature := make([]byte, signatureSize)
	r.FillBytes(signature[:signatureSize/2])
	s.FillBytes(signature[signatureSize/2:])
	return signature, nil
}

// verifyEnvelope checks the first signature of a bundle's envelope with the key that the bundle carries.
func verifyEnvelope(b bundle, payload []byte) error {
	first := b.signatures[0]
	if b.publicKey.Member("d") != nil {
		return errors.New("the bundle carries a private key")
	}
	public, err := parsePublic([]byte(b.publicKey.Raw))
	if err != nil {
		return err
	}
	id, err := thumbprint(public)
	if err != nil {
		return err
	}
	if id != first.keyID {
		return errors.New("the signature names another key")
	}
	signature, err := decodeBase64(first.signature)
	if err != nil || len(signature) != signatureSize {
		return errors.New("the signature is not 64 bytes")
	}
	sum := sha256.Sum256(preAuthentication(b.payloadType, payload))
	r, s := new(big.Int).SetBytes(signature[:signatureSize/2]), new(big.Int).SetBytes(signature[signatureSize/2:])
	if !ecdsa.Verify(public, sum[:], r, s) {
		return errors.New("the signature does not fit")
	}
	return nil
}

// bundle is a bundle that has its form.
type bundle struct {
	payloadType string
	payload     string // base64
	signatures  []envelopeSignature
	publicKey   *jsontree.Node
	token       string
}

type envelopeSignature struct{ keyID, signature string }

// readBundle takes a bundle apart, whose media type was looked at. Names of members are case-sensitive, and unknown ones
// are passed over.
func readBundle(root *jsontree.Node) (b bundle, ok bool) {
	envelope, material := root.Member("dsseEnvelope"), root.Member("verificationMaterial")
	if !isA(envelope, jsontree.Object) || !isA(material, jsontree.Object) {
		return b, false
	}
	b.publicKey = material.Member("publicKey")
	list := envelope.Member("signatures")
	ok = isA(b.publicKey, jsontree.Object) && isA(list, jsontree.List) && len(list.Items) > 0 &&
		text(envelope, "payloadType", &b.payloadType) && text(envelope, "payload", &b.payload) && text(material, "identityToken", &b.token)
	if !ok {
		return b, false
	}
	for i := range list.Items {
		var s envelopeSignature
		if one := &list.Items[i]; !text(one, "keyid", &s.keyID) || !text(one, "sig", &s.signature) {
			return b, false
		}
		b.signatures = append(b.signatures, s)
	}
	return b, true
}

// decodeBase64 reads the standard alphabet as browsers do: padding may be missing, and ASCII white space is passed over.
func decodeBase64(s string) ([]byte, error) {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\n\f\r", r) {
			return -1
		}
		return r
	}, s)
	if len(s)%4 == 0 {
		s = strings.TrimSuffix(strings.TrimSuffix(s, "="), "=")
	}
	return base64.RawStdEncoding.DecodeString(s)
}
