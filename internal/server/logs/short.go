package logs

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Bounds of a log that is a row. Most steps never get there. A row is written as a whole with every chunk, in a transaction:
// that costs a fraction of what the folders and the file of a log cost, once or a few times, and by far more than a write to
// an open file. So a step that goes on talking gets its file after a few chunks, however small they are, and one that says
// much at once gets it right away.
const (
	shortBytes  = 8 << 10
	shortChunks = 8
)

// shortLog is a log that is a row, and what that becomes: a file, once the next chunk goes beyond the bounds.
type shortLog struct {
	store *Store
	path  string

	data   []byte // what the row holds. Readers have it, too: no byte of it ever changes
	chunks int
	row    bool // there may be a row
	unread bool // nobody has looked whether there is one
	next   file // the file that has the data, while the row is still there
	file   file // what the log has become, nil while it is a row
}

// textOf is what readers read of a log that is a row, nil for one that is a file.
func textOf(f file) []byte {
	if l, ok := f.(*shortLog); ok {
		return l.data
	}
	return nil
}

// Write stores a chunk behind the others. An error of the row leaves it as it was, or, where the answer to the commit was
// lost, with a chunk that the next one takes away or that is sent again.
func (l *shortLog) Write(ctx context.Context, chunk []byte) (int, error) {
	if l.unread {
		return l.begin(ctx, chunk)
	}
	if l.file == nil && (l.next != nil || l.chunks >= shortChunks || len(l.data)+len(chunk) > shortBytes) {
		if err := l.turn(ctx); err != nil {
			return 0, err
		}
	}
	if l.file != nil {
		return l.file.Write(ctx, chunk)
	}
	data := slices.Concat(l.data, chunk)
	l.row = true
	if err := l.store.rows.put(ctx, l.path, data); err != nil {
		return 0, err
	}
	l.data = data
	l.chunks++
	return len(chunk), nil
}

// errUnread says that a log must be read before it goes on.
var errUnread = errors.New("the log is not new")

// begin stores the first chunk of a log that is new. Error: errUnread when it is not, or becomes a file at once.
func (l *shortLog) begin(ctx context.Context, chunk []byte) (int, error) {
	if len(chunk) > shortBytes {
		return 0, errUnread
	}
	if err := l.store.rows.begin(ctx, l.path, chunk); err != nil {
		return 0, err
	}
	l.begun(chunk)
	return len(chunk), nil
}

// begun is that the first chunk of a log has been stored.
func (l *shortLog) begun(chunk []byte) {
	l.data, l.chunks, l.row, l.unread = slices.Clone(chunk), 1, true, false
}

// turn makes the row a file. The row goes when the file has all of it, on the disk: whatever happens in between, one of them
// is whole, and openWhole finds out which. A file that is whole is not begun again when the row did not go at once: it may
// have gone all the same, its answer lost.
func (l *shortLog) turn(ctx context.Context) error {
	if l.next == nil {
		f, err := l.store.copyOut(ctx, l.path, l.data)
		if err != nil {
			return fmt.Errorf("make a file of it: %w", err)
		}
		l.next = f
	}
	if l.row {
		if err := l.store.rows.remove(ctx, l.path); err != nil {
			return fmt.Errorf("delete the row of what is a file: %w", err)
		}
	}
	l.file, l.next, l.data, l.row = l.next, nil, nil, false
	return nil
}

// copyOut makes a file that begins with the data of a row.
func (s *Store) copyOut(ctx context.Context, path string, data []byte) (file, error) {
	f, err := s.openToRest(path, true)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return f, nil
	}
	if _, err = f.Write(ctx, data); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close()) // the row is longer than what is left of it
	}
	return f, nil
}

// Truncate takes back what a broken write has left.
func (l *shortLog) Truncate(size int64) error {
	if l.file != nil {
		return l.file.Truncate(size)
	}
	l.data = l.data[:size:size]
	return nil
}

// Size is the number of bytes.
func (l *shortLog) Size() (int64, error) {
	if l.file != nil {
		return l.file.Size()
	}
	return int64(len(l.data)), nil
}

// Rest implements rester.
func (l *shortLog) Rest() error {
	var errs []error
	for _, f := range []file{l.next, l.file} {
		if r, ok := f.(rester); ok {
			errs = append(errs, r.Rest())
		}
	}
	return errors.Join(errs...)
}

// Close closes the file that the log has become, or was about to.
func (l *shortLog) Close() error {
	var errs []error
	for _, f := range []file{l.next, l.file} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
