package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"kici/internal/kit/seal"
)

// maxOverlay bounds the working tree of a test run; it is decrypted in memory.
const maxOverlay = 512 << 20

// Overlay is the working tree that a person sent with a test run, encrypted for the server.
type Overlay struct {
	URL        string
	PublicKey  string // of the sender: X25519 SPKI DER, base64
	PrivateKey string // of the server: X25519 PKCS8 DER, base64
}

// overlayDir holds the manifest inside of an overlay.
const overlayDir = ".kici-overlay-tmp"

// ApplyOverlay downloads the overlay, checks it against its manifest, and lays it over the folder dir of the workspace:
// files are replaced, listed ones deleted.
func (w *Workspace) ApplyOverlay(ctx context.Context, client *http.Client, dir string, o Overlay) error {
	root, err := inside(w.dir, dir)
	if err != nil {
		return fmt.Errorf("apply overlay: %w", err)
	}
	err = w.withDownload(ctx, client, Archive{URL: o.URL}, func(f *os.File) error {
		sealed, err := io.ReadAll(io.LimitReader(f, maxOverlay+1))
		if err != nil {
			return err
		}
		if len(sealed) > maxOverlay {
			return fmt.Errorf("larger than %d bytes", maxOverlay)
		}
		plain, err := o.open(sealed)
		if err != nil {
			return err
		}
		return w.layOver(ctx, root, plain)
	})
	if err != nil {
		return fmt.Errorf("apply overlay: %w", err)
	}
	return nil
}

// open decrypts nonce, tag and ciphertext, in this order.
func (o Overlay) open(sealed []byte) ([]byte, error) {
	agreed, err := seal.Agree(o.PrivateKey, o.PublicKey, seal.Uploads)
	if err != nil {
		return nil, err
	}
	plain, err := agreed.OpenBytes(sealed)
	if err != nil {
		return nil, fmt.Errorf("the upload cannot be decrypted: %w", err)
	}
	return plain, nil
}

// layOver unpacks beside the tree first, so that nothing of an upload that fails its check reaches it.
func (w *Workspace) layOver(ctx context.Context, root string, plain []byte) error {
	staging, err := tempDir(w.opts.TempDir)
	if err != nil {
		return err
	}
	defer func() { _ = removeAll(staging) }()
	if err := Unpack(ctx, bytes.NewReader(plain), staging); err != nil {
		return err
	}
	from, err := os.OpenRoot(staging)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer to.Close()
	raw, err := from.ReadFile(overlayDir + "/manifest.json")
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	var manifest struct {
		Deletions []string
		Checksums map[string]string
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	for path, want := range manifest.Checksums {
		content, err := from.ReadFile(path)
		if err != nil {
			return fmt.Errorf("check %s: %w", path, err)
		}
		if sum := sha256.Sum256(content); !strings.EqualFold(hex.EncodeToString(sum[:]), want) {
			return fmt.Errorf("check %s: checksum differs", path)
		}
	}
	if err := copyTree(from, to, staging); err != nil {
		return err
	}
	for _, path := range manifest.Deletions {
		if err := to.RemoveAll(path); err != nil {
			return fmt.Errorf("delete %s: %w", path, err)
		}
	}
	return nil
}

// copyTree copies files and links; from is the opened staging folder.
func copyTree(from, to *os.Root, staging string) error {
	return filepath.WalkDir(staging, func(full string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(staging, full)
		if err != nil || rel == "." {
			return err
		}
		if d.IsDir() {
			if rel == overlayDir {
				return filepath.SkipDir
			}
			return to.MkdirAll(rel, 0o755)
		}
		_ = to.RemoveAll(rel)
		if d.Type()&os.ModeSymlink != 0 {
			link, err := from.Readlink(rel)
			if err != nil {
				return err
			}
			return to.Symlink(link, rel)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content, err := from.ReadFile(rel)
		if err != nil {
			return err
		}
		return to.WriteFile(rel, content, info.Mode().Perm())
	})
}
