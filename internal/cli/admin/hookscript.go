package admin

import (
	"crypto/rand"
	_ "embed" // the hook
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kici/internal/cli/console"
)

//go:embed hook.sh
var hookTemplate string

// hookScript is the post-receive hook of a local source's repositories. It holds no secret, only where one lies.
func hookScript(url, base, secretFile string) string {
	return strings.NewReplacer("@URL@", console.ShellQuote(url), "@BASE@", console.ShellQuote(base), "@SECRET_FILE@", console.ShellQuote(secretFile)).Replace(hookTemplate)
}

// newSecret makes a secret of 64 hex digits.
func newSecret() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails, by its documentation
	return hex.EncodeToString(raw[:])
}

// secretFile is a file that only its owner may read. It is written beside its place first and takes it at the end, so
// that a source that could not be made leaves the secret of an earlier one alone.
type secretFile struct{ path, draft string }

func draftSecret(path, secret string) (*secretFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the hook's secret: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("write the hook's secret: %w", err)
	}
	draft := &secretFile{path: path, draft: f.Name()}
	_, err = f.WriteString(secret + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		draft.drop()
		return nil, fmt.Errorf("write the hook's secret: %w", err)
	}
	return draft, nil
}

func (s *secretFile) keep() error {
	if err := os.Rename(s.draft, s.path); err != nil {
		return fmt.Errorf("write the hook's secret: %w", err)
	}
	return nil
}

// drop removes the draft, if it is still one.
func (s *secretFile) drop() { _ = os.Remove(s.draft) }
