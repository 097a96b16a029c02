package logs

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kici/internal/server/logs/index"
)

// A log that is not kept in segments is a row while it is short, and then a file. Where a server was killed while one became
// the other, both are there: the longer one is the log, and both begin alike.

// openWhole opens such a log for writing and finds the end of its last complete chunk. What a killed server left behind
// that is cut off, and a row that is not the log goes. Without read, one that is no file is taken for new.
func (s *Store) openWhole(ctx context.Context, path string, read bool) (file, index.Tail, error) {
	f, there, err := s.openFile(path)
	if err != nil {
		return nil, index.Tail{}, err
	}
	if s.rows == nil {
		if f == nil {
			f, err = s.openToRest(path, true)
		}
		return f, there, err
	}
	if f == nil && !read {
		return &shortLog{store: s, path: path, unread: true}, there, nil
	}
	row, here, err := s.openRow(ctx, path)
	switch {
	case err != nil:
		return nil, index.Tail{}, errors.Join(err, closeFile(f))
	case f == nil, row.row && here.End.Size > there.End.Size:
		return row, here, closeFile(f)
	case row.row:
		err = s.rows.remove(ctx, path)
	}
	if err != nil {
		return nil, index.Tail{}, errors.Join(err, f.Close())
	}
	return f, there, nil
}

func closeFile(f diskFile) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// openFile opens a log that is a file. It is nil when there is none.
func (s *Store) openFile(path string) (diskFile, index.Tail, error) {
	f, err := s.openToRest(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, index.Tail{}, nil
	}
	if err != nil {
		return nil, index.Tail{}, err
	}
	found, err := recoverLog(f)
	if err != nil {
		return nil, index.Tail{}, errors.Join(err, f.Close())
	}
	return f, found, nil
}

// recoverLog finds the end of the last complete chunk and cuts off what a killed server left behind it.
func recoverLog(f diskFile) (index.Tail, error) {
	size, err := f.Size()
	if err != nil {
		return index.Tail{}, err
	}
	found, err := index.ReadTail(f, size, windowChunks)
	if err != nil {
		return index.Tail{}, err
	}
	if found.End.Size < size {
		if err := f.Truncate(found.End.Size); err != nil {
			return index.Tail{}, err
		}
	}
	return found, nil
}

// openRow opens a log that is a row, or may become one.
func (s *Store) openRow(ctx context.Context, path string) (*shortLog, index.Tail, error) {
	text, ok, err := s.rows.read(ctx, path)
	if err != nil {
		return nil, index.Tail{}, err
	}
	found, err := index.ReadTail(strings.NewReader(text), int64(len(text)), windowChunks)
	if err != nil {
		return nil, index.Tail{}, err
	}
	return &shortLog{store: s, path: path, data: []byte(text[:found.End.Size]), chunks: len(found.Recent), row: ok}, found, nil
}

// viewWhole opens such a log for reading. A file beyond the bound of rows is the log, so that a long one costs no query. The
// row is looked for before the file is opened: a row that has gone has left a file that is whole.
func (s *Store) viewWhole(ctx context.Context, path string) (*index.View, error) {
	if live := s.live(path); live != nil && live.text != nil {
		return viewText(live.text, live.End), nil
	}
	if s.rows == nil || s.fileSize(path) > shortBytes {
		return s.viewFile(path)
	}
	row, err := s.viewRow(ctx, path)
	if err != nil {
		return nil, err
	}
	file, err := s.viewFile(path)
	switch {
	case row == nil || err != nil && !errors.Is(err, fs.ErrNotExist):
		return file, err
	case err != nil:
		return row, nil
	case row.Size > file.Size:
		return row, file.Close()
	}
	return file, nil
}

// fileSize is the size of a log that is a file, 0 when there is none that can be looked at.
func (s *Store) fileSize(path string) int64 {
	info, err := os.Stat(filepath.Join(s.root.Name(), path))
	if err != nil {
		return 0
	}
	return info.Size()
}

// viewRow reads a log that is a row, nil when there is none.
func (s *Store) viewRow(ctx context.Context, path string) (*index.View, error) {
	text, ok, err := s.rows.read(ctx, path)
	if err != nil || !ok {
		return nil, err
	}
	t, err := index.ReadTail(strings.NewReader(text), int64(len(text)), 1)
	if err != nil {
		return nil, err
	}
	return viewText([]byte(text), t.End), nil
}

func viewText(text []byte, at index.End) *index.View {
	return &index.View{ReaderAt: bytes.NewReader(text), End: at, Close: func() error { return nil }}
}

func (s *Store) viewFile(path string) (*index.View, error) {
	f, err := s.root.Open(path)
	if err != nil {
		return nil, err
	}
	if live := s.live(path); live != nil && live.text != nil {
		return viewText(live.text, live.End), f.Close() // the file is not whole yet
	} else if live != nil {
		return &index.View{ReaderAt: f, End: live.End, Close: f.Close}, nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	t, err := index.ReadTail(f, info.Size(), 1)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &index.View{ReaderAt: f, End: t.End, Close: f.Close}, nil
}
