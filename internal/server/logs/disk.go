package logs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// disk is a log that is a file.
type disk struct{ *os.File }

// Write implements file. The operating system waits for nobody.
func (d disk) Write(_ context.Context, p []byte) (int, error) { return d.File.Write(p) }

// Size implements file.
func (d disk) Size() (int64, error) {
	info, err := d.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// openForWriting opens a log that is a file, or begins one anew with its folders. The name has been checked; the folder is the
// server's alone, so one system call that follows the whole path will do, where a root would walk it step by step.
func (s *Store) openForWriting(name string, fresh bool) (diskFile, error) {
	path, flags := filepath.Join(s.root.Name(), name), os.O_RDWR|os.O_APPEND
	if fresh {
		flags |= os.O_CREATE | os.O_TRUNC
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return disk{f}, nil
}

// makeFolder makes a folder. It looks at none of those above before one is missing, and most of the time none is.
func makeFolder(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
