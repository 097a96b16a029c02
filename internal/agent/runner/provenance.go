package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"kici/internal/core/attest"
)

// digestSpec names the file of a subject.
type digestSpec struct {
	Root string `json:"root"`
	Path string `json:"path"` // relative to root, or absolute
}

// digestFile is the SHA-256 of a file, hexadecimal.
func digestFile(ctx context.Context, s digestSpec) (string, error) {
	path := s.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Root, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("digest subject: %w", err)
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.Close() }) // a large file must not outlive its job
	defer stop()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("digest subject: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// attestSpec is what a bundle is made of: the subject, and the server's token for the job, whose claims the statement
// repeats.
type attestSpec struct {
	Token  string `json:"token"` // "" when the server has none to give at present
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256, hexadecimal
}

// attest writes a bundle to a private file.
func (d *privateDirs) attest(s attestSpec) (any, error) {
	if s.Token == "" {
		return nil, errors.New("attest provenance: the server cannot issue a token at present, try again later")
	}
	bundle, err := attest.Make(s.Token, attest.Subject{Name: s.Name, Digest: s.Digest})
	if err != nil {
		return nil, err
	}
	dir, err := d.make()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "bundle.json")
	if err := os.WriteFile(file, bundle, 0o600); err != nil {
		return nil, fmt.Errorf("write bundle: %w", err)
	}
	return map[string]string{"file": file, "mediaType": attest.MediaType}, nil
}
