// Package seal keeps secrets at rest: envelopes under a master key, one-way hashes of tokens, and the key pairs with
// which agents send secret outputs of a run.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

const (
	keySize   = 32
	nonceSize = 12
	tagSize   = 16
)

// ErrUnreadable says that an envelope does not open, now or later: wrong key, wrong place, or damaged.
var ErrUnreadable = errors.New("cannot be read")

// ErrTooShort says that a text cannot be an envelope: it lacks even a nonce and a tag.
var ErrTooShort = errors.New("envelope too short")

// Keyring seals with the current master key and opens with it or, while keys are being rotated, with the previous one.
// It is safe for concurrent use.
type Keyring struct {
	current  cipher.AEAD
	previous cipher.AEAD // nil when no rotation is under way
	masters  [][]byte    // their bytes in this order, to derive from
	version  atomic.Int64
}

// NewKeyring makes a keyring from the text of the master key and, where not empty, of the previous one. A key is 64 hex
// digits or the base64 form of 32 bytes; the errors name both forms and never the text. The version is 1.
func NewKeyring(current, previous string) (*Keyring, error) {
	k := &Keyring{}
	k.version.Store(1)
	var err error
	if k.current, err = k.add(current); err != nil {
		return nil, fmt.Errorf("master key: %w", err)
	}
	if previous == "" {
		return k, nil
	}
	if k.previous, err = k.add(previous); err != nil {
		return nil, fmt.Errorf("previous master key: %w", err)
	}
	return k, nil
}

func (k *Keyring) add(text string) (cipher.AEAD, error) {
	key, err := parseKey(text)
	if err != nil {
		return nil, err
	}
	k.masters = append(k.masters, key)
	return newAEAD(key)
}

// SetVersion sets the key version that Seal reports from now on: the highest one found in the database at start, or
// one more after a rotation.
func (k *Keyring) SetVersion(v int64) { k.version.Store(v) }

// Version is the key version of new envelopes.
func (k *Keyring) Version() int64 { return k.version.Load() }

// Seal encrypts plaintext for one place, which aad names, and gives the envelope with the version of the key. The same
// envelope does not open at any other place.
func (k *Keyring) Seal(plaintext []byte, aad string) (envelope string, version int64, err error) {
	return sealWith(k.current, plaintext, aad), k.version.Load(), nil
}

// Open decrypts an envelope with the current key, else with the previous one. A wrong key, another place and a changed
// byte fail alike; the error names the place, never the content.
func (k *Keyring) Open(envelope, aad string) ([]byte, error) {
	plaintext, _, err := k.OpenAged(envelope, aad)
	return plaintext, err
}

// OpenAged is Open, and tells whether it took the previous key: such an envelope wants to be sealed anew before that key
// is taken away.
func (k *Keyring) OpenAged(envelope, aad string) (plaintext []byte, aged bool, err error) {
	plaintext, err = openWith(k.current, envelope, aad)
	if err != nil && k.previous != nil && !errors.Is(err, ErrTooShort) {
		aged = true
		plaintext, err = openWith(k.previous, envelope, aad)
	}
	if err != nil {
		return nil, false, fmt.Errorf("decrypt %s: %w: %w", aad, ErrUnreadable, err)
	}
	return plaintext, aged, nil
}

// Reseal opens an envelope, and seals what it holds for the same place with the current key. Errors are those of Open.
func (k *Keyring) Reseal(envelope, aad string) (string, error) {
	plaintext, err := k.Open(envelope, aad)
	if err != nil {
		return "", err
	}
	return sealWith(k.current, plaintext, aad), nil
}

// sealWith gives base64(nonce, tag, ciphertext). This order is the stored format; the cipher itself appends the tag.
func sealWith(c cipher.AEAD, plaintext []byte, aad string) string {
	var nonce [nonceSize]byte
	rand.Read(nonce[:]) // never fails: the program ends when the system has no randomness
	return envelopeWith(c, nonce[:], plaintext, aad)
}

func envelopeWith(c cipher.AEAD, nonce, plaintext []byte, aad string) string {
	sealed := c.Seal(nil, nonce, plaintext, []byte(aad))
	text, tag := sealed[:len(sealed)-tagSize], sealed[len(sealed)-tagSize:]
	raw := make([]byte, 0, nonceSize+len(sealed))
	raw = append(append(append(raw, nonce...), tag...), text...)
	return base64.StdEncoding.EncodeToString(raw)
}

func openWith(c cipher.AEAD, envelope, aad string) ([]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(envelope)
	if err != nil || strings.ContainsAny(envelope, "\r\n") { // the decoder skips line breaks; one text, one envelope
		return nil, errors.New("envelope is not base64")
	}
	return openBytes(c, raw, aad)
}

func openBytes(c cipher.AEAD, raw []byte, aad string) ([]byte, error) {
	if len(raw) < nonceSize+tagSize {
		return nil, ErrTooShort
	}
	nonce, tag, text := raw[:nonceSize], raw[nonceSize:nonceSize+tagSize], raw[nonceSize+tagSize:]
	sealed := append(append(make([]byte, 0, len(text)+tagSize), text...), tag...)
	plaintext, err := c.Open(nil, nonce, sealed, []byte(aad))
	if err != nil {
		return nil, errors.New("wrong key, wrong place or damaged envelope")
	}
	return plaintext, nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// parseKey reads the two accepted forms. Base64 with stray characters is refused: what a lenient decoder makes of it is
// some other key than the one its owner wrote down.
func parseKey(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if len(text) == 2*keySize {
		if key, err := hex.DecodeString(text); err == nil {
			return key, nil
		}
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding} {
		if key, err := enc.Strict().DecodeString(text); err == nil && len(key) == keySize && !strings.ContainsAny(text, "\r\n") {
			return key, nil
		}
	}
	return nil, errors.New("32 bytes are required, written as 64 hex digits or as base64")
}
