package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"kici/internal/kit/blob"
)

// folder is where marks lie below the root, and alike in an object store.
const folder = "expired"

// Marks tell of which runs the logs were deleted. A mark is an empty file, or an empty object where logs are objects. It is
// smaller than the run's own rows and is kept as long as they are. Runs are named as elements of paths.
type Marks struct {
	Root    *os.Root
	Objects blob.Store // nil for none
}

// Put leaves the mark of a run whose logs go.
func (m Marks) Put(ctx context.Context, run string) error {
	name := path.Join(folder, run)
	if m.Objects != nil {
		_, err := m.Objects.Put(ctx, name, bytes.NewReader(nil))
		return err
	}
	if err := m.Root.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := m.Root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Has tells whether a run has a mark.
func (m Marks) Has(ctx context.Context, run string) (bool, error) {
	name := path.Join(folder, run)
	_, err := m.Root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) && m.Objects != nil {
		_, err = m.Objects.Stat(ctx, name)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, blob.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Sweep removes the marks of runs that are forgotten. A mark was made after the end of its run, so that those that are
// younger than a run may become need no look.
func (m Marks) Sweep(ctx context.Context, keep Policy) error {
	if keep.RunMaxAge <= 0 {
		return nil
	}
	before := time.Now().Add(-keep.RunMaxAge)
	here, err := m.here(before)
	if err != nil {
		return fmt.Errorf("look at marks of expired logs: %w", err)
	}
	if err := forget(ctx, keep, here, func(_ context.Context, name string) error { return m.Root.Remove(name) }); err != nil {
		return err
	}
	if m.Objects == nil {
		return nil
	}
	there, err := m.there(ctx, before)
	if err != nil {
		return fmt.Errorf("look at marks of expired logs: %w", err)
	}
	return forget(ctx, keep, there, m.Objects.Delete)
}

// forget removes those of these marks whose runs are unknown.
func forget(ctx context.Context, keep Policy, names []string, remove func(ctx context.Context, name string) error) error {
	for _, name := range names {
		state, err := keep.StateOf(ctx, path.Base(name))
		if err != nil {
			return fmt.Errorf("forget mark %s: %w", name, err)
		}
		if state != RunUnknown {
			continue
		}
		if err := remove(ctx, name); err != nil {
			return fmt.Errorf("forget mark %s: %w", name, err)
		}
	}
	return nil
}

func (m Marks) here(before time.Time) (names []string, err error) {
	list, err := fs.ReadDir(m.Root.FS(), folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, mark := range list {
		info, err := mark.Info()
		if err != nil {
			return nil, err
		}
		if info.ModTime().Before(before) {
			names = append(names, path.Join(folder, mark.Name()))
		}
	}
	return names, err
}

func (m Marks) there(ctx context.Context, before time.Time) (names []string, err error) {
	err = m.Objects.Walk(ctx, folder, func(mark blob.Info) error {
		if mark.Modified.Before(before) {
			names = append(names, mark.Path)
		}
		return nil
	})
	return names, err
}
