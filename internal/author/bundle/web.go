package bundle

import (
	"crypto"
	"crypto/rand"
	_ "crypto/sha1" // of crypto.subtle.digest, as are the others
	_ "crypto/sha256"
	_ "crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"

	"kici/internal/kit/script"
)

// maxRandom is how many random bytes one call may ask for, as the Web Crypto API has it.
const maxRandom = 65536

var digests = map[string]crypto.Hash{"SHA-1": crypto.SHA1, "SHA-256": crypto.SHA256, "SHA-384": crypto.SHA384, "SHA-512": crypto.SHA512}

// Offer gives the embedded engine what the web's interfaces in the library ask of a host at once.
func Offer(vm *script.VM) error {
	return errors.Join(
		vm.Host("__kiciHost.random", func(args json.RawMessage) (json.RawMessage, error) {
			var n int
			if err := json.Unmarshal(args, &[]any{&n}); err != nil || n < 0 || n > maxRandom {
				return nil, fmt.Errorf("cannot give %s random bytes", args)
			}
			raw := make([]byte, n)
			_, _ = rand.Read(raw) // it never fails
			return json.Marshal(raw)
		}),
		vm.Host("__kiciHost.digest", func(args json.RawMessage) (json.RawMessage, error) {
			var name string
			var data []byte
			if err := json.Unmarshal(args, &[]any{&name, &data}); err != nil {
				return nil, fmt.Errorf("decode data of a digest: %w", err)
			}
			hash, ok := digests[name]
			if !ok {
				return nil, fmt.Errorf("no digest %q", name)
			}
			h := hash.New()
			h.Write(data)
			return json.Marshal(h.Sum(nil))
		}),
	)
}
