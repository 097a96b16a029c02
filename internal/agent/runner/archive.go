package runner

import (
	"context"
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

	"kici/internal/agent/workspace"
)

const (
	// transferTime bounds the restore of a cache.
	transferTime = 10 * time.Minute

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

// uploadSpec names a file of ours and where the orchestrator wants it: a plain PUT, signed by its URL.
type uploadSpec struct {
	URL  string `json:"url"`
	File string `json:"file"`
}

// cachePaths refuses what would lead out of the two places a cache may cover: an archive is shared between jobs, so a
// path of the machine in it would let one job write where another reads.
func cachePaths(root string, paths []string) ([]workspace.Tree, error) {
	var list []workspace.Tree
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
		list = append(list, workspace.Tree{Path: filepath.Join(base, rel), Name: prefix + rel})
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
	made, err := workspace.Pack(ctx, out, paths)
	if err := errors.Join(err, out.Close()); err != nil {
		return nil, fmt.Errorf("pack cache: %w", err)
	}
	if made.Trees == 0 {
		return nil, d.remove(dir)
	}
	return packed{File: out.Name(), Hash: made.Hash, Size: made.Size}, nil
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
	size, tree, err := fetch(ctx, s, dir)
	if err != nil {
		return nil, fmt.Errorf("restore cache: %w", err)
	}
	for _, p := range paths {
		from := filepath.Join(tree, filepath.FromSlash(p.Name))
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := replace(from, p.Path); err != nil {
			return nil, fmt.Errorf("restore cache: %w", err)
		}
	}
	return map[string]int64{"bytes": size}, nil
}

// fetch downloads and opens an archive in dir, which is private. Its hash is compared before anything of it is used.
func fetch(ctx context.Context, s unpackSpec, dir string) (size int64, tree string, err error) {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	f, err := os.Create(filepath.Join(dir, "cache.tar.gz"))
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	if err := workspace.Download(ctx, http.DefaultClient, workspace.Archive{URL: s.URL, Hash: s.Hash}, f); err != nil {
		return 0, "", err
	}
	if size, err = f.Seek(0, io.SeekEnd); err != nil {
		return 0, "", err
	}
	tree = filepath.Join(dir, "tree")
	_, seekErr := f.Seek(0, io.SeekStart)
	return size, tree, errors.Join(seekErr, os.Mkdir(tree, 0o700), workspace.Unpack(ctx, f, tree))
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
	return copyTree(from, to)
}

// copyTree copies a file, a link or a folder, with modes and the times of files. Nothing of it may be there already.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		place := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			return os.Mkdir(place, info.Mode().Perm()|0o700)
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			return errors.Join(err, os.Symlink(target, place))
		}
		return copyFile(file, place, info)
	})
}

func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// upload puts a file where the orchestrator says, and removes it.
func upload(ctx context.Context, s uploadSpec) error {
	f, err := os.Open(s.File)
	if err != nil {
		return fmt.Errorf("store %s: %w", filepath.Base(s.File), err)
	}
	defer os.Remove(s.File)
	defer f.Close()
	if err := workspace.Upload(ctx, http.DefaultClient, s.URL, f); err != nil {
		return fmt.Errorf("store %s: %w", filepath.Base(s.File), err)
	}
	return nil
}
