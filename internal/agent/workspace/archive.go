package workspace

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Bounds of downloads.
const (
	downloadLimit = 5 * time.Minute // for one attempt
	downloadTries = 3
	maxArchive    = 64 << 30 // bytes, packed or not: beyond, the disk would fill before anything else notices
)

// Archive is a gzipped tar to download.
type Archive struct {
	URL  string
	Hash string // SHA-256 of the bytes in hex, "" when unknown
}

// HashError says that a download is not what it was announced to be.
type HashError struct{ Expected, Actual string }

func (e *HashError) Error() string {
	return fmt.Sprintf("hash mismatch: expected %s, got %s", e.Expected, e.Actual)
}

// Restore downloads an archive and unpacks it over the folder dir of the workspace.
func (w *Workspace) Restore(ctx context.Context, client *http.Client, dir string, a Archive) error {
	root, err := inside(w.dir, dir)
	if err != nil {
		return fmt.Errorf("restore archive: %w", err)
	}
	err = w.withDownload(ctx, client, a, func(f *os.File) error { return Unpack(ctx, f, root) })
	if err != nil {
		return fmt.Errorf("restore archive: %w", err)
	}
	return nil
}

// withDownload downloads to a private file, checks its hash, and hands it over from its beginning. The file has no name
// any more, so it goes with its last user.
func (w *Workspace) withDownload(ctx context.Context, client *http.Client, a Archive, use func(*os.File) error) error {
	f, err := os.CreateTemp(w.opts.TempDir, "kici-download-")
	if err != nil {
		return err
	}
	defer f.Close()
	_ = os.Remove(f.Name())
	for try := 1; ; try++ {
		err = downloadInTime(ctx, client, a, f)
		var mismatch *HashError
		if err == nil || try == downloadTries || ctx.Err() != nil || errors.As(err, &mismatch) {
			break
		}
	}
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return use(f)
}

func downloadInTime(ctx context.Context, client *http.Client, a Archive, f *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, downloadLimit, fmt.Errorf("timed out after %v", downloadLimit))
	defer cancel()
	return Download(ctx, client, a, f)
}

// Download replaces what the file holds by the archive. An archive of another hash is a *HashError. Errors name the host
// only: a signed URL is a credential.
func Download(ctx context.Context, client *http.Client, a Archive, f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return errors.New("the download URL is malformed")
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("download from %s: %w", req.URL.Host, withoutURL(err))
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("download from %s: status %s", req.URL.Host, res.Status)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(res.Body, maxArchive))
	if err != nil {
		return fmt.Errorf("download from %s: %w", req.URL.Host, err)
	}
	if n == maxArchive {
		return fmt.Errorf("download from %s: larger than %d bytes", req.URL.Host, int64(maxArchive))
	}
	if actual := hex.EncodeToString(sum.Sum(nil)); a.Hash != "" && !strings.EqualFold(actual, a.Hash) {
		return &HashError{Expected: a.Hash, Actual: actual}
	}
	return nil
}

// Unpack extracts a gzipped tar below root, over what is there. No entry, and no link that an earlier entry made, leads
// out of it.
func Unpack(ctx context.Context, r io.Reader, root string) error {
	tree, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer tree.Close()
	gz, err := gzip.NewReader(bufio.NewReaderSize(r, 64<<10))
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	left := int64(maxArchive)
	for t := tar.NewReader(gz); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		if left -= h.Size; left < 0 {
			return fmt.Errorf("unpack: more than %d bytes", int64(maxArchive))
		}
		if err := unpackEntry(tree, h, t); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}

func unpackEntry(tree *os.Root, h *tar.Header, content io.Reader) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "./"))
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return errors.New("leads out of the folder")
	}
	if h.Typeflag == tar.TypeDir {
		return tree.MkdirAll(name, fs.FileMode(h.Mode).Perm()|0o700) // entries below it are still to come
	}
	if err := tree.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink && h.Typeflag != tar.TypeLink {
		return nil // devices and the like have no place in a source tree
	}
	if err := tree.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return tree.Symlink(h.Linkname, name) // reading or writing through it stays inside all the same
	case tar.TypeLink:
		return tree.Link(path.Clean(h.Linkname), name)
	}
	f, err := tree.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(h.Mode).Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	// Tools tell by the time whether what they have built is still good.
	return errors.Join(err, f.Close(), tree.Chtimes(name, h.ModTime, h.ModTime))
}
