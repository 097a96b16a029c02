package seal

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// runKeyInfo separates keys of run outputs from keys derived for other purposes.
const runKeyInfo = "kici-run-secret-outputs"

// RunKey is the X25519 pair of one run, for secret outputs that its agents send.
type RunKey struct {
	Public  string // base64 DER SubjectPublicKeyInfo; goes to agents
	Private string // base64 DER PKCS#8; only ever stored sealed
}

// runEnvelope is what an agent sends.
type runEnvelope struct {
	AgentPublicKey string `json:"agentPublicKey"` // base64 DER SubjectPublicKeyInfo
	Encrypted      string `json:"encrypted"`      // base64 of nonce, tag, ciphertext
}

// NewRunKey makes the pair of a run.
func NewRunKey() (RunKey, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return RunKey{}, fmt.Errorf("make run key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return RunKey{}, fmt.Errorf("make run key: %w", err)
	}
	public, err := encodePublic(private.PublicKey())
	if err != nil {
		return RunKey{}, fmt.Errorf("make run key: %w", err)
	}
	return RunKey{Public: public, Private: base64.StdEncoding.EncodeToString(der)}, nil
}

// OpenOutput decrypts what an agent sealed for the owner of the private key. Envelope is the JSON text as received.
func (k RunKey) OpenOutput(envelope []byte) ([]byte, error) {
	var e runEnvelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		return nil, errors.New("open secret output: not an envelope")
	}
	private, err := decodePrivate(k.Private)
	if err != nil {
		return nil, fmt.Errorf("open secret output: %w", err)
	}
	public, err := decodePublic(e.AgentPublicKey)
	if err != nil {
		return nil, fmt.Errorf("open secret output: agent key: %w", err)
	}
	key, err := deriveRunKey(private, public)
	if err != nil {
		return nil, fmt.Errorf("open secret output: %w", err)
	}
	c, err := newAEAD(key)
	if err != nil {
		return nil, fmt.Errorf("open secret output: %w", err)
	}
	plaintext, err := openWith(c, e.Encrypted, "")
	if err != nil {
		return nil, fmt.Errorf("open secret output: %w", err)
	}
	return plaintext, nil
}

// SealOutput encrypts a secret output for the run whose public key the dispatch carried. The result is the envelope's
// JSON text.
func SealOutput(runPublicKey string, plaintext []byte) ([]byte, error) {
	public, err := decodePublic(runPublicKey)
	if err != nil {
		return nil, fmt.Errorf("seal secret output: run key: %w", err)
	}
	private, err := ecdh.X25519().GenerateKey(rand.Reader) // a pair of its own for each output
	if err != nil {
		return nil, fmt.Errorf("seal secret output: %w", err)
	}
	key, err := deriveRunKey(private, public)
	if err != nil {
		return nil, fmt.Errorf("seal secret output: %w", err)
	}
	c, err := newAEAD(key)
	if err != nil {
		return nil, fmt.Errorf("seal secret output: %w", err)
	}
	own, err := encodePublic(private.PublicKey())
	if err != nil {
		return nil, fmt.Errorf("seal secret output: %w", err)
	}
	return json.Marshal(runEnvelope{AgentPublicKey: own, Encrypted: sealWith(c, plaintext, "")})
}

// deriveRunKey is HKDF-SHA256 of the shared secret with an empty salt. A public key of small order, which would make the
// shared secret all zero, is an error of ECDH itself.
func deriveRunKey(private *ecdh.PrivateKey, public *ecdh.PublicKey) ([]byte, error) {
	shared, err := private.ECDH(public)
	if err != nil {
		return nil, errors.New("the public key is not usable")
	}
	return hkdf.Key(sha256.New, shared, nil, runKeyInfo, keySize)
}

func encodePublic(key *ecdh.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(der), nil
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
		return nil, errors.New("run key is not base64")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("run key is not a private key") // the parser's error could show bytes of it
	}
	key, ok := parsed.(*ecdh.PrivateKey)
	if !ok || key.Curve() != ecdh.X25519() {
		return nil, errors.New("run key is not an X25519 key")
	}
	return key, nil
}
