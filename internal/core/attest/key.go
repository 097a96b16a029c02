package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Key is a P-256 key that signs statements or tokens.
type Key struct {
	private *ecdsa.PrivateKey
	id      string
}

// NewKey makes a key.
func NewKey() (Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("make signing key: %w", err)
	}
	return keyOf(private)
}

func keyOf(private *ecdsa.PrivateKey) (Key, error) {
	id, err := thumbprint(&private.PublicKey)
	return Key{private, id}, err
}

// ParseKey reads what PrivateJWK gives. Errors hold nothing of the key.
func ParseKey(jwk []byte) (Key, error) {
	var k jose.JSONWebKey
	if err := json.Unmarshal(jwk, &k); err != nil {
		return Key{}, errors.New("read signing key: not a JWK")
	}
	private, ok := k.Key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return Key{}, errors.New("read signing key: not a private P-256 key")
	}
	return keyOf(private)
}

// ID is the key's RFC 7638 thumbprint, SHA-256 in base64url without padding.
func (k Key) ID() string { return k.id }

// PrivateJWK is the whole key, for who keeps it sealed.
func (k Key) PrivateJWK() ([]byte, error) {
	return json.Marshal(jose.JSONWebKey{Key: k.private, KeyID: k.id, Algorithm: algorithm, Use: "sig"})
}

// PublicJWK is the public half: kty, crv, x, y, alg, kid.
func (k Key) PublicJWK() (json.RawMessage, error) {
	return json.Marshal(jose.JSONWebKey{Key: &k.private.PublicKey, KeyID: k.id, Algorithm: algorithm})
}

// SignToken makes a compact JWS of claims. Its header holds alg, kid and typ, and nothing else.
func (k Key) SignToken(claims any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k.private, KeyID: k.id}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed.CompactSerialize()
}

// PublishedKey is a public key as a key set publishes it.
type PublishedKey struct {
	KeyType   string `json:"kty"`
	Curve     string `json:"crv"`
	X         string `json:"x"`
	Y         string `json:"y"`
	Algorithm string `json:"alg"`
	Use       string `json:"use"`
	ID        string `json:"kid"`
}

// Publish gives the public half of a JWK. Whatever else the document holds, a private member above all, stays behind.
func Publish(jwk []byte) (PublishedKey, error) {
	public, err := parsePublic(jwk)
	if err != nil {
		return PublishedKey{}, err
	}
	id, err := thumbprint(public)
	if err != nil {
		return PublishedKey{}, err
	}
	point, err := public.Bytes() // 4, x, y
	if err != nil {
		return PublishedKey{}, fmt.Errorf("publish key: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString
	return PublishedKey{KeyType: "EC", Curve: curve, X: text(point[1:33]), Y: text(point[33:]), Algorithm: algorithm, Use: "sig", ID: id}, nil
}

// parsePublic reads the public half of a P-256 JWK; the point is on the curve.
func parsePublic(jwk []byte) (*ecdsa.PublicKey, error) {
	var k jose.JSONWebKey
	if err := json.Unmarshal(jwk, &k); err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	public, ok := k.Public().Key.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("read public key: not a P-256 key")
	}
	return public, nil
}

func thumbprint(public *ecdsa.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("name key: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}
