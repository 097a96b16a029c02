package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"kici/internal/core/glob"
)

const (
	maxFile      = 64 << 20 // of a file that a script reads; it is held in memory as a whole
	maxFilesList = 100_000  // of the files that a glob may fit
)

// filesSpec is something that a script does with files.
type filesSpec struct {
	Fn    string      `json:"fn"`
	Root  string      `json:"root"` // where relative paths begin
	Path  string      `json:"path"` // for "list" a glob below Root
	Text  string      `json:"text"`
	Bytes []byte      `json:"bytes"` // instead of Text
	Mode  os.FileMode `json:"mode"`  // of a file that is written; 0 for the usual one
}

// files does it. A step may touch any file that its user may: a command of its could do so as well.
func files(ctx context.Context, s filesSpec) (any, error) {
	path := s.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Root, path)
	}
	switch s.Fn {
	case "read":
		return readFile(path)
	case "write":
		return nil, s.store(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	case "append":
		return nil, s.store(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	case "exists":
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	case "list":
		return listFiles(ctx, s.Root, s.Path)
	case "remove":
		if path == filepath.Clean(s.Root) || path == "/" {
			return nil, fmt.Errorf("remove %s: the folder of the step stays", s.Path)
		}
		return nil, os.RemoveAll(path)
	}
	return nil, fmt.Errorf("files has no function %q", s.Fn)
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("read %s: %d bytes are over the limit of %d MiB; use a command", path, info.Size(), maxFile>>20)
	}
	return os.ReadFile(path)
}

// store writes the file and makes the folders that it lies in.
func (s filesSpec) store(path string, flags int) error {
	data := s.Bytes
	if data == nil {
		data = []byte(s.Text)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, flags, cmp.Or(s.Mode&0o777, 0o644))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if s.Mode != 0 && err == nil {
		err = f.Chmod(s.Mode & 0o777) // of a file that was there, too
	}
	return errors.Join(err, f.Close())
}

// listFiles gives the files below root that fit, sorted, with forward slashes.
func listFiles(ctx context.Context, root, pattern string) ([]string, error) {
	fits, err := glob.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", pattern, err)
	}
	list := []string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return cmp.Or(err, context.Cause(ctx))
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); fits.Match(name) {
			list = append(list, name)
		}
		if len(list) > maxFilesList {
			return fmt.Errorf("list %q: it fits more than %d files", pattern, maxFilesList)
		}
		return nil
	})
	slices.Sort(list)
	return list, err
}
