package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// Bounds of one page. A page always holds at least one line, however long it is.
const (
	defaultPage = 64 << 10
	maxPage     = 8 << 20
)

// Read gives the stored lines from a byte offset on: whole lines, about limit bytes of them (64 KiB when limit is not
// positive, 8 MiB at most). Next is the offset to go on from; complete tells that nothing follows at present. A log that
// does not exist is empty and complete.
func (s *Store) Read(ctx context.Context, path string, cursor int64, limit int) (data []byte, next int64, complete bool, err error) {
	if limit <= 0 {
		limit = defaultPage
	}
	limit = min(limit, maxPage)
	err = s.view(path, func(r io.ReaderAt, e end) error {
		cursor = min(max(cursor, 0), e.size)
		data, err = pageFrom(r, cursor, e.size, int64(limit))
		next = cursor + int64(len(data))
		complete = next >= e.size
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, true, nil
	}
	return data, next, complete, err
}

// pageFrom reads whole lines from cursor on, limit bytes at most or one line.
func pageFrom(r io.ReaderAt, cursor, size, limit int64) ([]byte, error) {
	for {
		data := make([]byte, min(limit, size-cursor))
		if _, err := r.ReadAt(data, cursor); err != nil {
			return nil, err
		}
		last := bytes.LastIndexByte(data, '\n')
		if last >= 0 || cursor+int64(len(data)) >= size {
			return data[:last+1], nil
		}
		limit *= 2 // the line is longer than the page
	}
}

// Lines gives stored lines, each a JSON object, from a line number on, counted from 0; at most limit of them, fewer
// where they are very long. Total is the number of lines of the log; next is the number to go on from, 0 when nothing
// follows. A log that does not exist has no lines.
func (s *Store) Lines(ctx context.Context, path string, from int64, limit int) (lines []string, total, next int64, err error) {
	from = max(from, 0)
	err = s.view(path, func(r io.ReaderAt, e end) error {
		total = e.lines
		if from >= total || limit <= 0 {
			return nil
		}
		start, err := locate(r, e, from)
		if err != nil {
			return err
		}
		at, size := start.lines, 0
		return eachLine(r, start.offset, e.size, func(line []byte, _ int64) bool {
			if at >= from {
				lines = append(lines, string(line))
				size += len(line)
			}
			at++
			return len(lines) < limit && size < maxPage
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, 0, nil
	}
	if next = from + int64(len(lines)); next >= total || len(lines) == 0 {
		next = 0
	}
	return lines, total, next, err
}

// Tail gives the last stored lines, n at most, in their order, and the number of all.
func (s *Store) Tail(ctx context.Context, path string, n int) (lines []string, total int64, err error) {
	err = s.view(path, func(r io.ReaderAt, e end) error {
		total = e.lines
		size := 0
		return eachLineBack(r, e.size, func(line []byte, _ int64) bool {
			if len(lines) >= n || size >= maxPage {
				return false
			}
			lines = append(lines, string(line))
			size += len(line)
			return true
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
		lines[i], lines[j] = lines[j], lines[i]
	}
	return lines, total, err
}

// view opens a log for reading and tells its end. A torn chunk behind the end is not shown: it may be sent again.
func (s *Store) view(path string, fn func(r io.ReaderAt, e end) error) error {
	if !filepath.IsLocal(path) || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("read log %q: %w", path, ErrPath)
	}
	f, err := s.root.Open(path)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	e, ok := s.liveEnd(path)
	if !ok {
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		t, err := readTail(f, info.Size(), 1)
		if err != nil {
			return fmt.Errorf("read log %s: %w", path, err)
		}
		e = t.end
	}
	if err := fn(f, e); err != nil {
		return fmt.Errorf("read log %s: %w", path, err)
	}
	return nil
}

// liveEnd is the end of a log that is open for writing.
func (s *Store) liveEnd(path string) (end, bool) {
	s.mu.Lock()
	st := s.streams[path]
	s.mu.Unlock()
	if st == nil {
		return end{}, false
	}
	if e := st.end.Load(); e != nil {
		return *e, true
	}
	return end{}, false
}
