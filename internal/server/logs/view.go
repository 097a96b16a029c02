package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"kici/internal/server/logs/index"
)

// ErrExpired says that there was a log once and that its time was up.
var ErrExpired = errors.New("log expired")

// reading shows a log to fn. One that does not exist is not shown; ErrExpired tells that it did once.
func (s *Store) reading(ctx context.Context, path string, fn func(v *index.View) error) error {
	v, err := s.open(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.absent(ctx, path)
	}
	if err == nil {
		err = errors.Join(fn(v), v.Close())
	}
	if err != nil {
		return fmt.Errorf("read log %s: %w", path, err)
	}
	return nil
}

// open opens a log for reading and tells its end. A torn chunk behind the end is not shown: it may be sent again. Nor is a
// chunk that is stored and not published yet: the next reading, which asks the writer, would not show it any more.
func (s *Store) open(ctx context.Context, path string) (*index.View, error) {
	if !filepath.IsLocal(path) || strings.IndexByte(path, 0) >= 0 {
		return nil, ErrPath
	}
	v, err := s.view(ctx, path)
	if err != nil {
		return nil, err
	}
	if live := s.live(path); live != nil && live.Size < v.Size {
		v.End = live.End
	}
	return v, nil
}

func (s *Store) view(ctx context.Context, path string) (*index.View, error) {
	parts, err := s.inParts(ctx, path)
	if err != nil {
		return nil, err
	}
	if parts {
		return s.segments.View(ctx, path)
	}
	return s.viewWhole(ctx, path)
}

// inParts tells whether a log is kept in segments. One that was begun as a row or a file goes on as one.
func (s *Store) inParts(ctx context.Context, path string) (bool, error) {
	if s.segments == nil {
		return false, nil
	}
	if s.rows != nil {
		if _, row, err := s.rows.read(ctx, path); err != nil || row {
			return false, err
		}
	}
	info, err := s.root.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && info.IsDir(), err
}

// live is the shape of a log that is open for writing, else nil.
func (s *Store) live(path string) *shape {
	s.mu.Lock()
	st := s.streams[path]
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	return st.shape.Load()
}

// Content is a whole log as it is stored: one JSON object a line. It ends where the log ended when it was opened.
type Content struct {
	*io.SectionReader
	close func() error
}

// NewContent is a log of that many bytes, for a reader that is not a Store.
func NewContent(r io.ReaderAt, size int64, closeIt func() error) Content {
	return Content{io.NewSectionReader(r, 0, size), closeIt}
}

// Close gives back what reading took.
func (c Content) Close() error { return c.close() }

// Open opens a log as bytes. A log that does not exist is empty.
func (s *Store) Open(ctx context.Context, path string) (Content, error) {
	v, err := s.open(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		nothing := io.NewSectionReader(strings.NewReader(""), 0, 0)
		return Content{nothing, func() error { return nil }}, s.absent(ctx, path)
	}
	if err != nil {
		return Content{}, fmt.Errorf("open log %s: %w", path, err)
	}
	return Content{io.NewSectionReader(v, 0, v.Size), v.Close}, nil
}
