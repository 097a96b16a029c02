package seal

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// Derive gives keys for another use than sealing, 32 bytes each: of the current master key and, while keys are being
// rotated, of the previous one behind it. The purpose separates uses; who knows a derived key knows nothing of the master
// key or of the key for another purpose. Servers that share a master key derive the same.
func (k *Keyring) Derive(purpose string) ([][]byte, error) {
	var out [][]byte
	for _, master := range k.masters {
		key, err := hkdf.Key(sha256.New, master, nil, "kici "+purpose, keySize)
		if err != nil {
			return nil, fmt.Errorf("derive key for %s: %w", purpose, err)
		}
		out = append(out, key)
	}
	return out, nil
}
