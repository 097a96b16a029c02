package agent

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"

	"kici/internal/core/wire"
)

// seal encrypts the secret outputs of a job for the run's public key, so that only the server can read them. Without a
// key they are dropped, which the log of the job tells its author.
func (j *job) seal(outputs map[string]string) map[string]wire.SecretOutput {
	if len(outputs) == 0 {
		return nil
	}
	if j.d.RunPublicKey == "" {
		j.say("Warning: secret outputs are dropped, since the server gave no key for them")
		return nil
	}
	s, err := newSealer(j.d.RunPublicKey, nil)
	if err != nil {
		j.log.Error("secret outputs are dropped", "err", err)
		j.say("Warning: secret outputs are dropped: %v", err)
		return nil
	}
	sealed := make(map[string]wire.SecretOutput, len(outputs))
	for name, value := range outputs {
		var nonce [12]byte
		_, _ = rand.Read(nonce[:]) // never fails, by its documentation
		sealed[name] = wire.SecretOutput{AgentPublicKey: s.public, Encrypted: s.seal(nonce, value)}
	}
	return sealed
}

// sealer encrypts with one key pair per job.
type sealer struct {
	public string // SPKI DER, base64
	gcm    cipher.AEAD
}

// newSealer agrees on a key with the run's public one. own is the job's private key, nil for a new one.
func newSealer(runPublicKey string, own *ecdh.PrivateKey) (*sealer, error) {
	der, err := base64.StdEncoding.DecodeString(runPublicKey)
	if err != nil {
		return nil, errors.New("the run's public key is malformed")
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errors.New("the run's public key is malformed")
	}
	public, ok := parsed.(*ecdh.PublicKey)
	if !ok {
		return nil, errors.New("the run's public key is not X25519")
	}
	if own == nil {
		if own, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return nil, err
		}
	}
	shared, err := own.ECDH(public)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, shared, nil, "kici-run-secret-outputs", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	spki, err := x509.MarshalPKIXPublicKey(own.PublicKey())
	if err != nil {
		return nil, err
	}
	return &sealer{public: base64.StdEncoding.EncodeToString(spki), gcm: gcm}, nil
}

// seal gives nonce, tag and ciphertext in this order, base64. A nonce must not be used twice.
func (s *sealer) seal(nonce [12]byte, value string) string {
	box := s.gcm.Seal(nil, nonce[:], []byte(value), nil)
	cut := len(box) - s.gcm.Overhead()
	out := append(append(append([]byte{}, nonce[:]...), box[cut:]...), box[:cut]...)
	return base64.StdEncoding.EncodeToString(out)
}
