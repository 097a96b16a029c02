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

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/kit/blob"
)

// folder is where marks lie below the root, and alike in an object store.
const folder = "expired"

const (
	unmarkedFor = 10 * time.Second // how long a run is taken for unmarked; the mark of another node is seen that much later
	maxUnmarked = 1024             // runs of which that is remembered
)

// Marks tell of which runs the logs were deleted. A mark is an empty file, or an empty object where logs are objects. It is
// smaller than the run's own rows and is kept as long as they are. Runs are named as elements of paths.
type Marks struct {
	root     *os.Root
	objects  blob.Store                    // nil for none
	unmarked *lru.Cache[string, time.Time] // when the object store was asked for a mark in vain
}

// NewMarks finds the marks below a root, and in an object store unless that is nil.
func NewMarks(root *os.Root, objects blob.Store) (*Marks, error) {
	unmarked, err := lru.New[string, time.Time](maxUnmarked)
	return &Marks{root: root, objects: objects, unmarked: unmarked}, err
}

// Put leaves the mark of a run whose logs go.
func (m *Marks) Put(ctx context.Context, run string) error {
	name := path.Join(folder, run)
	if m.objects != nil {
		defer m.unmarked.Remove(run)
		_, err := m.objects.Put(ctx, name, bytes.NewReader(nil))
		return err
	}
	if err := m.root.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := m.root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Has tells whether a run has a mark.
func (m *Marks) Has(ctx context.Context, run string) (bool, error) {
	name := path.Join(folder, run)
	_, err := m.root.Stat(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	if asked, ok := m.unmarked.Get(run); m.objects == nil || ok && time.Since(asked) < unmarkedFor {
		return false, nil
	}
	asked := time.Now()
	_, err = m.objects.Stat(ctx, name)
	if errors.Is(err, blob.ErrNotFound) {
		m.unmarked.Add(run, asked)
		return false, nil
	}
	return err == nil, err
}

// Sweep removes the marks of runs that are forgotten. A mark was made after the end of its run, so that those that are
// younger than a run may become need no look.
func (m *Marks) Sweep(ctx context.Context, keep Policy) error {
	if keep.RunMaxAge <= 0 {
		return nil
	}
	before := time.Now().Add(-keep.RunMaxAge)
	here, err := m.here(before)
	if err != nil {
		return fmt.Errorf("look at marks of expired logs: %w", err)
	}
	if err := forget(ctx, keep, here, func(_ context.Context, name string) error { return m.root.Remove(name) }); err != nil {
		return err
	}
	if m.objects == nil {
		return nil
	}
	there, err := m.there(ctx, before)
	if err != nil {
		return fmt.Errorf("look at marks of expired logs: %w", err)
	}
	return forget(ctx, keep, there, m.objects.Delete)
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

func (m *Marks) here(before time.Time) (names []string, err error) {
	list, err := fs.ReadDir(m.root.FS(), folder)
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

func (m *Marks) there(ctx context.Context, before time.Time) (names []string, err error) {
	err = m.objects.Walk(ctx, folder, func(mark blob.Info) error {
		if mark.Modified.Before(before) {
			names = append(names, mark.Path)
		}
		return nil
	})
	return names, err
}
