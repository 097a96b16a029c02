package seal

import (
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"

	"filippo.io/edwards25519"
)

// Purposes separate the keys that two pairs agree on. Their texts are part of the agent protocol.
const (
	RunOutputs = "kici-run-secret-outputs" // secret outputs, from an agent to the server of its run
	Uploads    = "kici-upload-encryption"  // the working tree of a test run, from a person to the agent that runs it
)

// KeyPair is an X25519 pair in the texts in which it is sent and stored.
type KeyPair struct {
	Public  string // base64 DER SubjectPublicKeyInfo
	Private string // base64 DER PKCS#8; only ever stored sealed
}

// NewKeyPair makes a pair.
func NewKeyPair() (KeyPair, error) {
	private := make([]byte, keySize)
	_, _ = rand.Read(private) // which never fails
	pair, err := pairOf(private)
	if err != nil {
		return KeyPair{}, fmt.Errorf("make key pair: %w", err)
	}
	return pair, nil
}

// What stands before the 32 bytes of an X25519 key in DER (RFC 8410 §4 and §7). It never varies, and every run has a pair:
// a general encoder takes as long as making the key does.
const (
	headOfPublic  = "\x30\x2a\x30\x05\x06\x03\x2b\x65\x6e\x03\x21\x00"
	headOfPrivate = "\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x6e\x04\x22\x04\x20"
)

// pairOf finds the public key on the Edwards curve, where it is the same point in other coordinates (RFC 7748 §4.1). There
// are tables of the base point's multiples for that one, with which it takes a third of the time of X25519's own way.
func pairOf(private []byte) (KeyPair, error) {
	scalar, err := edwards25519.NewScalar().SetBytesWithClamping(private)
	if err != nil {
		return KeyPair{}, err
	}
	public := new(edwards25519.Point).ScalarBaseMult(scalar).BytesMontgomery()
	text := base64.StdEncoding.EncodeToString
	return KeyPair{
		Public:  text(append([]byte(headOfPublic), public...)),
		Private: text(append([]byte(headOfPrivate), private...)),
	}, nil
}

// Agreement is the cipher that two pairs have in common: each side makes it of its own private key and the public key of
// the other.
type Agreement struct{ cipher cipher.AEAD }

// Agree makes the cipher for a purpose. The key is HKDF-SHA256 of the shared secret with an empty salt. A public key of
// small order, which would make the shared secret all zero, is refused. Errors hold nothing of a private key.
func Agree(private, public, purpose string) (Agreement, error) {
	own, err := decodePrivate(private)
	if err != nil {
		return Agreement{}, fmt.Errorf("agree on a key: private key: %w", err)
	}
	other, err := decodePublic(public)
	if err != nil {
		return Agreement{}, fmt.Errorf("agree on a key: public key: %w", err)
	}
	shared, err := own.ECDH(other)
	if err != nil {
		return Agreement{}, errors.New("agree on a key: public key: not usable")
	}
	key, err := hkdf.Key(sha256.New, shared, nil, purpose, keySize)
	if err != nil {
		return Agreement{}, fmt.Errorf("agree on a key: %w", err)
	}
	c, err := newAEAD(key)
	if err != nil {
		return Agreement{}, fmt.Errorf("agree on a key: %w", err)
	}
	return Agreement{cipher: c}, nil
}

// Seal encrypts for the other side: base64 of nonce, tag, ciphertext.
func (a Agreement) Seal(plaintext []byte) string { return sealWith(a.cipher, plaintext, "") }

// Open decrypts what the other side sealed.
func (a Agreement) Open(envelope string) ([]byte, error) { return openWith(a.cipher, envelope, "") }

// OpenBytes is Open for an envelope that is not written as base64.
func (a Agreement) OpenBytes(envelope []byte) ([]byte, error) {
	return openBytes(a.cipher, envelope, "")
}

func decodePublic(text string) (*ecdh.PublicKey, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("not base64")
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errors.New("not a public key")
	}
	key, ok := parsed.(*ecdh.PublicKey)
	if !ok || key.Curve() != ecdh.X25519() {
		return nil, errors.New("not an X25519 key")
	}
	return key, nil
}

func decodePrivate(text string) (*ecdh.PrivateKey, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("not base64")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("not a private key") // the parser's error could show bytes of it
	}
	key, ok := parsed.(*ecdh.PrivateKey)
	if !ok || key.Curve() != ecdh.X25519() {
		return nil, errors.New("not an X25519 key")
	}
	return key, nil
}
