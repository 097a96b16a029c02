package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
)

// ErrExpired says that there was a log once and that its time was up.
var ErrExpired = errors.New("log expired")

// view is a log as it was at one moment. It can be read while the log grows.
type view struct {
	io.ReaderAt
	end
	segments []segment // of a log that is kept in parts
	close    func() error
}

// reading shows a log to fn. One that does not exist is not shown; ErrExpired tells that it did once.
func (s *Store) reading(ctx context.Context, path string, fn func(v *view) error) error {
	v, err := s.open(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.absent(ctx, path)
	}
	if err == nil {
		err = errors.Join(fn(v), v.close())
	}
	if err != nil {
		return fmt.Errorf("read log %s: %w", path, err)
	}
	return nil
}

// lookAgain bounds how often a log is opened anew, since it was sealed and uploaded just when it was opened.
const lookAgain = 5

// open opens a log for reading and tells its end. A torn chunk behind the end is not shown: it may be sent again. Nor is a
// chunk that is stored and not published yet: the next reading, which asks the writer, would not show it any more.
func (s *Store) open(ctx context.Context, path string) (*view, error) {
	if !filepath.IsLocal(path) || strings.IndexByte(path, 0) >= 0 {
		return nil, ErrPath
	}
	v, err := s.view(ctx, path)
	if err != nil {
		return nil, err
	}
	if live := s.live(path); live != nil && live.size < v.size {
		v.end = live.end
	}
	return v, nil
}

func (s *Store) view(ctx context.Context, path string) (v *view, err error) {
	parts, err := s.inParts(ctx, path)
	if err != nil {
		return nil, err
	}
	if !parts {
		return s.viewWhole(ctx, path)
	}
	for range lookAgain {
		live := s.live(path)
		v, err = s.openParts(ctx, path, live)
		if live == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return v, err
}

// inParts tells whether a log is kept in segments. One that was begun as a row or a file goes on as one.
func (s *Store) inParts(ctx context.Context, path string) (bool, error) {
	if s.remote == nil {
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

// eachFrom calls fn with the lines from a number on, and their numbers, until it returns false.
func (v *view) eachFrom(from int64, fn func(number int64, line []byte) bool) error {
	if from >= v.lines {
		return nil
	}
	start, err := v.locate(from)
	if err != nil {
		return err
	}
	at := start.lines
	return eachLine(v, start.size, v.size, func(line []byte, _ int64) bool {
		number := at
		at++
		return number < from || fn(number, line)
	})
}

// locate finds a place near before a line. In a log of parts the names of the segments say in which one it is.
func (v *view) locate(line int64) (end, error) {
	if v.segments == nil {
		return locate(v, end{}, v.size, 0, line)
	}
	i := sort.Search(len(v.segments), func(i int) bool { return v.segments[i].stop().lines > line })
	g := v.segments[min(i, len(v.segments)-1)]
	return locate(v, g.at, g.stop().size, g.at.lines-g.from.lines, line)
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
	return Content{io.NewSectionReader(v, 0, v.size), v.close}, nil
}
