package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"kici/internal/kit/blob"
)

// Folders below the root, and alike in an object store. The mark of a run whose logs were deleted is an empty file; it is
// smaller than the run's own rows and is kept as long as they are.
const (
	runsFolder    = "executions"
	expiredFolder = "expired"
)

// runFolder is where the logs of a run lie. The run is named as an element of paths.
func runFolder(run string) string { return path.Join(runsFolder, run) }

// splitPath is the run, as an element of paths, that a path below the root belongs to, and the rest of the path.
func splitPath(name string) (run, rest string, ok bool) {
	below, ok := strings.CutPrefix(name, runsFolder+"/")
	run, rest, deeper := strings.Cut(below, "/")
	return run, rest, ok && deeper && run != ""
}

// markExpired leaves the mark of a run whose logs go.
func (s *Store) markExpired(ctx context.Context, run string) error {
	name := path.Join(expiredFolder, run)
	if s.remote != nil {
		_, err := s.remote.Put(ctx, name, bytes.NewReader(nil))
		return err
	}
	if err := s.root.MkdirAll(expiredFolder, 0o700); err != nil {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// absent tells why a log that is not there is not there: nil when there never was one.
func (s *Store) absent(ctx context.Context, log string) error {
	run, _, ok := splitPath(log)
	if !ok {
		return nil
	}
	name := path.Join(expiredFolder, run)
	_, err := s.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) && s.remote != nil {
		_, err = s.remote.Stat(ctx, name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, blob.ErrNotFound):
		return nil
	case err == nil:
		err = ErrExpired
	}
	return fmt.Errorf("read log %s: %w", log, err)
}
