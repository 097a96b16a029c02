package runner

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
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	// transferTime bounds one upload or download of a cache.
	transferTime = 10 * time.Minute
	// maxUnpacked bounds what an archive may become on disk.
	maxUnpacked = 64 << 30

	inRepo = "__repo__/" // entries of an archive below the repository
	inHome = "__home__/" // and below the home directory
)

// packSpec names what to archive.
type packSpec struct {
	Root  string   `json:"root"`  // the repository
	Paths []string `json:"paths"` // relative to it, or beginning with ~
}

// packed is an archive on disk. It lies in a private directory, which upload or the end of the job removes.
type packed struct {
	File string `json:"file"`
	Hash string `json:"hash"` // SHA-256 of the archive, hexadecimal
	Size int64  `json:"size"`
}

// unpackSpec names an archive to fetch and what of it is wanted.
type unpackSpec struct {
	URL   string   `json:"url"`
	Hash  string   `json:"hash"` // "" is not checked
	Root  string   `json:"root"`
	Paths []string `json:"paths"` // only what lies below these is taken from the archive
}

// uploadSpec names an archive and where the orchestrator wants it: a plain PUT, signed by its URL.
type uploadSpec struct {
	URL  string `json:"url"`
	File string `json:"file"`
}

// cachePath is one path of a cache: where it is, and its name in the archive.
type cachePath struct{ disk, name string }

// cachePaths refuses what would lead out of the two places a cache may cover: an archive is shared between jobs, so a
// path of the machine in it would let one job write where another reads.
func cachePaths(root string, paths []string) ([]cachePath, error) {
	var list []cachePath
	for _, p := range paths {
		base, prefix, rel := root, inRepo, p
		if p == "~" || strings.HasPrefix(p, "~/") {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("cache path %s: %w", p, err)
			}
			base, prefix, rel = home, inHome, strings.TrimPrefix(strings.TrimPrefix(p, "~"), "/")
		}
		rel = path.Clean(rel)
		if !filepath.IsLocal(rel) {
			return nil, fmt.Errorf("cache path %s is not inside the repository or the home directory", p)
		}
		list = append(list, cachePath{filepath.Join(base, rel), prefix + rel})
	}
	return list, nil
}

// pack writes the paths that exist into an archive; without any it gives nothing.
func (d *privateDirs) pack(ctx context.Context, s packSpec) (any, error) {
	paths, err := cachePaths(s.Root, s.Paths)
	if err != nil {
		return nil, err
	}
	dir, err := d.make()
	if err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(dir, "cache.tar.gz"))
	if err != nil {
		return nil, fmt.Errorf("pack cache: %w", err)
	}
	defer out.Close()
	sum := sha256.New()
	zip := gzip.NewWriter(io.MultiWriter(out, sum))
	archive := tar.NewWriter(zip)
	found := false
	for _, p := range paths {
		if _, err := os.Lstat(p.disk); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found = true
		if err := addTree(ctx, archive, p); err != nil {
			return nil, fmt.Errorf("pack cache: %w", err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("pack cache: %w", err)
	}
	if !found {
		return nil, d.remove(dir)
	}
	size, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("pack cache: %w", err)
	}
	return packed{File: out.Name(), Hash: hex.EncodeToString(sum.Sum(nil)), Size: size}, nil
}

// addTree archives a file or a whole directory. Links are kept as links, also those that lead nowhere.
func addTree(ctx context.Context, archive *tar.Writer, p cachePath) error {
	return filepath.WalkDir(p.disk, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
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
		rel, err := filepath.Rel(p.disk, file)
		if err != nil {
			return err
		}
		head.Name = path.Join(p.name, filepath.ToSlash(rel))
		if err := archive.WriteHeader(head); err != nil || !info.Mode().IsRegular() {
			return err
		}
		return copyFile(archive, file)
	})
}

func copyFile(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// unpack downloads an archive, checks it, and puts what it holds of the listed paths in their place. Only those paths
// are replaced, whatever else lies beside them.
func (d *privateDirs) unpack(ctx context.Context, s unpackSpec) (any, error) {
	paths, err := cachePaths(s.Root, s.Paths)
	if err != nil {
		return nil, err
	}
	dir, err := d.make()
	if err != nil {
		return nil, err
	}
	defer d.remove(dir)
	file := filepath.Join(dir, "cache.tar.gz")
	size, err := download(ctx, s.URL, s.Hash, file)
	if err != nil {
		return nil, fmt.Errorf("download cache: %w", err)
	}
	tree := filepath.Join(dir, "tree")
	if err := extract(ctx, file, tree); err != nil {
		return nil, fmt.Errorf("unpack cache: %w", err)
	}
	for _, p := range paths {
		from := filepath.Join(tree, filepath.FromSlash(p.name))
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := replace(from, p.disk); err != nil {
			return nil, fmt.Errorf("unpack cache: %w", err)
		}
	}
	return map[string]int64{"bytes": size}, nil
}

// download writes the archive to a file and compares its hash before anything of it is used.
func download(ctx context.Context, url, hash, file string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return 0, fmt.Errorf("the server answered %s", res.Status)
	}
	out, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(out, sum), res.Body)
	if err := errors.Join(err, out.Close()); err != nil {
		return 0, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); hash != "" && got != hash {
		return 0, fmt.Errorf("hash mismatch: expected %s, got %s", hash, got)
	}
	return size, nil
}

// extract opens an archive below dir. os.Root keeps every entry inside, also one that goes through a link of the
// archive's own making.
func extract(ctx context.Context, file, dir string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	zip, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(io.LimitReader(zip, maxUnpacked))
	for ctx.Err() == nil {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extractOne(root, head, archive); err != nil {
			return fmt.Errorf("%s: %w", head.Name, err)
		}
	}
	return ctx.Err()
}

// extractOne makes one entry. A file must be new: an archive of ours never holds a name twice, and one that does could
// write through a link it made before.
func extractOne(root *os.Root, head *tar.Header, r io.Reader) error {
	name := path.Clean(head.Name)
	if !filepath.IsLocal(name) {
		return errors.New("the entry leads out of the archive")
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := head.FileInfo().Mode().Perm()
	switch head.Typeflag {
	case tar.TypeDir:
		// Writable for now: entries below it are still to come.
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(head.Linkname, name)
	case tar.TypeReg:
		out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, r)
		return errors.Join(err, out.Close(), root.Chtimes(name, head.ModTime, head.ModTime))
	}
	return nil // other kinds are never packed
}

// replace moves from to its place, copying where that lies on another file system.
func replace(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if os.Rename(from, to) == nil {
		return nil
	}
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	return errors.Join(copyFile(out, from), out.Close())
}

// upload puts a file where the orchestrator says, and removes it.
func upload(ctx context.Context, s uploadSpec) error {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	f, err := os.Open(s.File)
	if err != nil {
		return fmt.Errorf("upload cache: %w", err)
	}
	defer f.Close()
	defer os.Remove(s.File)
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("upload cache: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL, f)
	if err != nil {
		return fmt.Errorf("upload cache: %w", err)
	}
	req.ContentLength = info.Size()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("upload cache: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("upload cache: the server answered %s", res.Status)
	}
	return nil
}
