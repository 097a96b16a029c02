package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"kici/internal/kit/blob"
)

// markPeriod is how often marks of forgotten runs are looked for.
const markPeriod = 24 * time.Hour

// sweepMarks removes the marks of runs that are forgotten. A mark was made after the end of its run, so that those that
// are younger than a run may become need no look.
func (s *Store) sweepMarks(ctx context.Context, keep Retention) error {
	if keep.RunMaxAge <= 0 {
		return nil
	}
	before := time.Now().Add(-keep.RunMaxAge)
	here, err := s.marksHere(before)
	if err != nil {
		return fmt.Errorf("look at marks of expired logs: %w", err)
	}
	if err := forgetMarks(ctx, keep, here, func(_ context.Context, name string) error { return s.root.Remove(name) }); err != nil {
		return err
	}
	if s.remote == nil {
		return nil
	}
	there, err := s.marksThere(ctx, before)
	if err != nil {
		return fmt.Errorf("look at marks of expired logs: %w", err)
	}
	return forgetMarks(ctx, keep, there, s.remote.Delete)
}

// forgetMarks removes those of these marks whose runs are unknown.
func forgetMarks(ctx context.Context, keep Retention, names []string, remove func(ctx context.Context, name string) error) error {
	for _, name := range names {
		state, err := keep.stateOf(ctx, path.Base(name))
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

func (s *Store) marksHere(before time.Time) (names []string, err error) {
	list, err := fs.ReadDir(s.root.FS(), expiredFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, mark := range list {
		info, err := mark.Info()
		if err != nil {
			return nil, err
		}
		if info.ModTime().Before(before) {
			names = append(names, path.Join(expiredFolder, mark.Name()))
		}
	}
	return names, err
}

func (s *Store) marksThere(ctx context.Context, before time.Time) (names []string, err error) {
	err = s.remote.Walk(ctx, expiredFolder, func(mark blob.Info) error {
		if mark.Modified.Before(before) {
			names = append(names, mark.Path)
		}
		return nil
	})
	return names, err
}
