package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// Files is a store in a folder of the file system. No path leaves the folder, not even by a symbolic link.
type Files struct {
	root *os.Root
}

var _ Store = (*Files)(nil)

// OpenFiles opens the store in a folder, which it makes when absent. Several processes may use one folder.
func OpenFiles(folder string) (*Files, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	if err := root.MkdirAll(temporary, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("open blob store: %w", err), root.Close())
	}
	return &Files{root: root}, nil
}

// Close closes the folder. Blobs that were opened before stay readable.
func (f *Files) Close() error { return f.root.Close() }

// Put implements Store: the bytes go to another name, to the disk, and then take their place in one step.
func (f *Files) Put(ctx context.Context, name string, r io.Reader) (int64, error) {
	if err := checkPath(name); err != nil {
		return 0, err
	}
	n, err := f.put(name, r)
	if err != nil {
		return 0, fmt.Errorf("put blob %s: %w", name, fullness(err))
	}
	return n, nil
}

func (f *Files) put(name string, r io.Reader) (int64, error) {
	tmp := path.Join(temporary, uuid.NewString())
	file, err := f.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(file, r)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.place(tmp, name)
	}
	if err != nil {
		return 0, errors.Join(err, f.root.Remove(tmp))
	}
	return n, nil
}

// place renames a file and makes its new name outlive a loss of power.
func (f *Files) place(from, to string) error {
	folder := path.Dir(to)
	if err := f.root.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if err := f.root.Rename(from, to); err != nil {
		return err
	}
	d, err := f.root.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get implements Store.
func (f *Files) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	file, info, err := f.open(name)
	if err != nil {
		return nil, 0, err
	}
	return file, info.Size(), nil
}

func (f *Files) open(name string) (*os.File, os.FileInfo, error) {
	if err := checkPath(name); err != nil {
		return nil, nil, err
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, nil, fmt.Errorf("open blob %s: %w", name, absence(err))
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotFound // a folder is no blob
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open blob %s: %w", name, err), file.Close())
	}
	return file, info, nil
}

// Stat implements Store.
func (f *Files) Stat(ctx context.Context, name string) (Info, error) {
	if err := checkPath(name); err != nil {
		return Info{}, err
	}
	info, err := f.root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotFound
	}
	if err != nil {
		return Info{}, fmt.Errorf("look for blob %s: %w", name, absence(err))
	}
	return Info{Path: name, Size: info.Size(), Modified: info.ModTime()}, nil
}

// List implements Store.
func (f *Files) List(ctx context.Context, folder string) ([]string, error) {
	return paths(ctx, f, folder)
}

// Walk implements Store.
func (f *Files) Walk(ctx context.Context, folder string, visit func(Info) error) error {
	folder, err := checkFolder(folder)
	if err != nil {
		return err
	}
	if folder == "" {
		folder = "."
	}
	err = fs.WalkDir(f.root.FS(), folder, func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if name == temporary {
			return fs.SkipDir
		}
		if err == nil && entry.Type().IsRegular() && name != folder {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				return visit(Info{Path: name, Size: info.Size(), Modified: info.ModTime()})
			}
		}
		if notThere(err) {
			return nil // it went while the walk was under way
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("walk blobs below %s: %w", folder, err)
	}
	return nil
}

// Move implements Store.
func (f *Files) Move(ctx context.Context, from, to string) error {
	if err := errors.Join(checkPath(from), checkPath(to)); err != nil {
		return err
	}
	if _, err := f.Stat(ctx, from); err != nil { // a rename would move a whole folder
		return err
	}
	if err := f.place(from, to); err != nil {
		return fmt.Errorf("move blob %s to %s: %w", from, to, fullness(absence(err)))
	}
	return nil
}

// Delete implements Store. Folders that become empty stay: to remove them would race with a writer that makes them.
func (f *Files) Delete(ctx context.Context, name string) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if err := f.root.Remove(name); err != nil && !notThere(err) {
		return fmt.Errorf("delete blob %s: %w", name, err)
	}
	return nil
}

// Tidy implements Store. A put that goes on writes, so its file is young.
func (f *Files) Tidy(ctx context.Context, before time.Time) error {
	entries, err := fs.ReadDir(f.root.FS(), temporary)
	if err != nil {
		return fmt.Errorf("tidy blob store: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && info.ModTime().Before(before) {
			err = f.root.Remove(path.Join(temporary, entry.Name()))
		}
		if err != nil && !notThere(err) {
			errs = append(errs, fmt.Errorf("tidy blob store: %w", err))
		}
	}
	return errors.Join(errs...)
}

// notThere tells whether nothing lies at a path. A path that goes through a file names nothing either.
func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func absence(err error) error {
	if notThere(err) {
		return ErrNotFound
	}
	return err
}

func fullness(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
