package workspace

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"time"
)

// One upload may take this long, and longer by what its bytes take at the slowest pace that is still worth waiting for.
const (
	uploadLimit = 10 * time.Minute
	uploadPace  = 256 << 10 // bytes per second
)

// Tree is a file or folder to pack. One that does not exist is left out.
type Tree struct {
	Path string            // on disk
	Name string            // in the archive
	Skip func(string) bool // tells which names in the archive are left out, with all below them; nil for none
}

// Packed says what an archive is.
type Packed struct {
	Hash  string // SHA-256 of its bytes, hexadecimal
	Size  int64
	Trees int // how many there were
}

// Pack writes the trees as a gzipped tar. Links are kept as links, also those that lead nowhere. Whose the files are is
// not told: they become the files of who unpacks them.
func Pack(ctx context.Context, w io.Writer, trees []Tree) (Packed, error) {
	sum, size := sha256.New(), &counter{}
	zip := gzip.NewWriter(io.MultiWriter(w, sum, size))
	archive := tar.NewWriter(zip)
	found := 0
	for _, t := range trees {
		if _, err := os.Lstat(t.Path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found++
		if err := t.add(ctx, archive); err != nil {
			return Packed{}, fmt.Errorf("pack %s: %w", t.Name, err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return Packed{}, fmt.Errorf("pack: %w", err)
	}
	return Packed{Hash: hex.EncodeToString(sum.Sum(nil)), Size: size.n, Trees: found}, nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func (t Tree) add(ctx context.Context, archive *tar.Writer) error {
	return filepath.WalkDir(t.Path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		rel, err := filepath.Rel(t.Path, file)
		if err != nil {
			return err
		}
		name := path.Join(t.Name, filepath.ToSlash(rel))
		if t.Skip != nil && t.Skip(name) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return addFile(archive, file, name, entry)
	})
}

func addFile(archive *tar.Writer, file, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(file); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil // sockets and devices mean nothing elsewhere
	}
	head, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	head.Name, head.Uid, head.Gid, head.Uname, head.Gname = name, 0, 0, "", ""
	if err := archive.WriteHeader(head); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(archive, f)
	return err
}

// Upload puts a file where the server says, by a plain PUT. Errors name the host only: a signed URL is a credential.
func Upload(ctx context.Context, client *http.Client, to string, f *os.File) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return Put(ctx, client, to, f, size)
}

// Put is Upload for what is read from anywhere; it must be of exactly that size. A status of the server that says no is a
// *StatusError.
func Put(ctx context.Context, client *http.Client, to string, content io.Reader, size int64) error {
	limit := uploadLimit + time.Duration(size/uploadPace)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out after %v", limit))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to, io.NopCloser(content)) // it stays the caller's
	if err != nil {
		return errors.New("the upload URL is malformed")
	}
	if req.ContentLength = size; size == 0 {
		req.Body = http.NoBody
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("upload to %s: %w", req.URL.Host, withoutURL(err))
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("upload to %s: %w", req.URL.Host, &StatusError{Code: res.StatusCode, Status: res.Status})
	}
	return nil
}

// StatusError is an answer of the server that is no success.
type StatusError struct {
	Code   int
	Status string
}

func (e *StatusError) Error() string { return "status " + e.Status }

// withoutURL takes the URL out of an error of the HTTP client.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// PackSource packs the workflow folder of the repository dir, without installed packages, into a file that has no name.
// Names in the archive begin at the repository's root. The caller closes the file.
func (w *Workspace) PackSource(ctx context.Context, dir string) (*os.File, Packed, error) {
	root, err := inside(w.dir, dir)
	if err != nil {
		return nil, Packed{}, fmt.Errorf("pack source: %w", err)
	}
	others := func(name string) bool { return path.Base(name) == "node_modules" }
	return w.pack(ctx, []Tree{{Path: filepath.Join(root, ".kici"), Name: ".kici", Skip: others}})
}

// PackDependencies packs what InstallDependencies has made in the repository dir. It may be nothing.
func (w *Workspace) PackDependencies(ctx context.Context, dir string) (*os.File, Packed, error) {
	root, err := inside(w.dir, dir)
	if err != nil {
		return nil, Packed{}, fmt.Errorf("pack dependencies: %w", err)
	}
	var trees []Tree
	for _, name := range installed(root) {
		trees = append(trees, Tree{Path: filepath.Join(root, filepath.FromSlash(name)), Name: name})
	}
	return w.pack(ctx, trees)
}

// packages is the folder of what a workflow imports, relative to the repository.
const packages = ".kici/node_modules"

// installed lists what the package manager has made in the repository in root, relative to it: the packages of the workflow
// folder, where they are links the store that they lead to, and the neighbours in the repository that they are links to.
func installed(root string) []string {
	names := []string{packages}
	switch packageManager(root) {
	case "pnpm":
		names = append(names, "node_modules/.pnpm")
	case "yarn":
		names = append(names, "node_modules")
	}
	return append(names, neighbours(root, packages)...)
}

func (w *Workspace) pack(ctx context.Context, trees []Tree) (*os.File, Packed, error) {
	f, err := os.CreateTemp(w.opts.TempDir, "kici-upload-")
	if err != nil {
		return nil, Packed{}, fmt.Errorf("pack: %w", err)
	}
	_ = os.Remove(f.Name())
	packed, err := Pack(ctx, f, trees)
	if err != nil {
		f.Close()
		return nil, Packed{}, err
	}
	return f, packed, nil
}
