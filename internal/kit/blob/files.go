package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/google/uuid"
)

// Files is a store in a folder of the file system. No path leaves the folder, not even by a symbolic link.
type Files struct {
	root *os.Root

	mu      sync.Mutex
	writers map[string]*writer // of appends under way; each entry has a caller inside
}

// writer lets one append to a path in at a time.
type writer struct {
	mu   sync.Mutex
	refs int // guarded by Files.mu
}

var _ Store = (*Files)(nil)

// temporary starts the names of files that are being put. They are never listed.
const temporary = ".put-"

// maxPage bounds one page; a line longer than it comes in pieces.
const maxPage = 8 << 20

// OpenFiles opens the store in a folder, which it makes when absent.
func OpenFiles(folder string) (*Files, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	return &Files{root: root, writers: map[string]*writer{}}, nil
}

// Close closes the folder. Blobs that were opened before stay readable.
func (f *Files) Close() error { return f.root.Close() }

// Append implements Store. Durable means: with the operating system, so that it survives the end of this process.
func (f *Files) Append(ctx context.Context, name string, data []byte) error {
	if err := checkPath(name); err != nil {
		return err
	}
	defer f.enter(name)()
	if err := f.appendAlone(name, data); err != nil {
		return fmt.Errorf("append to blob %s: %w", name, fullness(err))
	}
	return nil
}

func (f *Files) appendAlone(name string, data []byte) error {
	if err := f.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if _, err := file.Write(data); err != nil {
		// Half of it would glue the next append to a torn end.
		return errors.Join(err, file.Truncate(info.Size()), file.Close())
	}
	return file.Close()
}

// enter waits for the place of the only writer of a path and gives the function that leaves it.
func (f *Files) enter(name string) (leave func()) {
	f.mu.Lock()
	w := f.writers[name]
	if w == nil {
		w = &writer{}
		f.writers[name] = w
	}
	w.refs++
	f.mu.Unlock()
	w.mu.Lock()
	return func() {
		w.mu.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
		if w.refs--; w.refs == 0 {
			delete(f.writers, name)
		}
	}
}

// Read implements Store.
func (f *Files) Read(ctx context.Context, name string, cursor int64, limit int) (Page, error) {
	file, size, err := f.open(name)
	if errors.Is(err, ErrNotFound) {
		return Page{Complete: true}, nil
	}
	if err != nil {
		return Page{}, err
	}
	defer file.Close()
	cursor = min(max(cursor, 0), size)
	data := make([]byte, min(int64(min(max(limit, 1), maxPage)), size-cursor))
	n, err := file.ReadAt(data, cursor)
	if err != nil && !errors.Is(err, io.EOF) {
		return Page{}, fmt.Errorf("read blob %s: %w", name, err)
	}
	data = data[:n]
	if cursor+int64(n) < size {
		if end := bytes.LastIndexByte(data, '\n'); end >= 0 {
			data = data[:end+1]
		}
	}
	next := cursor + int64(len(data))
	return Page{Data: data, Cursor: next, Complete: next >= size}, nil
}

// Exists implements Store.
func (f *Files) Exists(ctx context.Context, name string) (bool, error) {
	if err := checkPath(name); err != nil {
		return false, err
	}
	info, err := f.root.Stat(name)
	if notThere(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for blob %s: %w", name, err)
	}
	return info.Mode().IsRegular(), nil
}

// List implements Store.
func (f *Files) List(ctx context.Context, folder string) ([]string, error) {
	if folder = strings.TrimSuffix(folder, "/"); folder == "" {
		folder = "."
	} else if err := checkPath(folder); err != nil {
		return nil, err
	}
	out := []string{}
	err := fs.WalkDir(f.root.FS(), folder, func(name string, entry fs.DirEntry, err error) error {
		if notThere(err) {
			return nil // it went while the walk was under way
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil && entry.Type().IsRegular() && !strings.HasPrefix(entry.Name(), temporary) {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list blobs below %s: %w", folder, err)
	}
	slices.Sort(out) // the walk orders "a/b" before "a.b"; an object store orders by the whole path
	return out, nil
}

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
	folder := path.Dir(name)
	if err := f.root.MkdirAll(folder, 0o700); err != nil {
		return 0, err
	}
	tmp := path.Join(folder, temporary+uuid.NewString())
	file, err := f.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(file, r)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.root.Rename(tmp, name)
	}
	if err != nil {
		return 0, errors.Join(err, f.root.Remove(tmp))
	}
	return n, f.syncFolder(folder)
}

// syncFolder makes the new name outlive a loss of power.
func (f *Files) syncFolder(folder string) error {
	d, err := f.root.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get implements Store.
func (f *Files) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	file, size, err := f.open(name)
	if err != nil {
		return nil, 0, err
	}
	return file, size, nil
}

func (f *Files) open(name string) (*os.File, int64, error) {
	if err := checkPath(name); err != nil {
		return nil, 0, err
	}
	file, err := f.root.Open(name)
	if notThere(err) {
		return nil, 0, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", name, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotFound // a folder is no blob
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open blob %s: %w", name, err), file.Close())
	}
	return file, info.Size(), nil
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

// notThere tells whether nothing lies at a path. A path that goes through a file names nothing either.
func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func fullness(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
