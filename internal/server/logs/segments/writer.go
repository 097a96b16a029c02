package segments

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kici/internal/server/logs/index"
)

// shape is what readers need to know of a log that is being written: its sealed segments and the one that is being written,
// whose number is 0 when there is none.
type shape struct {
	sealed []segment
	active segment
}

func (s shape) end() index.End {
	if s.active.number > 0 {
		return s.active.stop()
	}
	return endOf(s.sealed)
}

// Writer goes on with a log. No segment is ever gone on with after it was closed: what a killed server left is uploaded as it
// is, and a new one begins with the next chunk.
type Writer struct {
	store *Store
	log   string
	shape atomic.Pointer[shape] // for readers, who must not wait behind a writer

	mu   sync.Mutex // the loop seals what is old meanwhile
	file File       // of the segment that is being written, nil between two
}

// Continue opens a log for writing, one writer at a time, and finds where it ends, with that many ids of its latest chunks.
func (s *Store) Continue(ctx context.Context, log string, ids int) (*Writer, index.Tail, error) {
	s.listings.changed(log) // another node may have uploaded what this one would number again
	segments, err := s.layout(ctx, log)
	if err != nil {
		return nil, index.Tail{}, err
	}
	r := &reader{ctx: ctx, store: s, log: log, segments: segments, index: -1}
	found, err := index.ReadTail(r, endOf(segments).Size, ids)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, index.Tail{}, err
	}
	found.End = endOf(segments)
	w := &Writer{store: s, log: log}
	w.shape.Store(&shape{sealed: segments})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers[log] = w
	return w, found, nil
}

// Write stores a chunk, whose mark counts on from the others, and seals a segment that is full. It tells how many bytes it has
// when it fails.
func (w *Writer) Write(ctx context.Context, chunk []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, err := index.LinesAfter(chunk)
	if err != nil {
		return 0, err
	}
	if w.file == nil {
		if err := w.beginLocked(); err != nil {
			return 0, err
		}
	}
	n, err := w.file.Write(ctx, chunk)
	if err != nil {
		return n, err
	}
	now := *w.shape.Load()
	now.active.to = index.End{Size: now.active.to.Size + int64(len(chunk)), Lines: lines}
	w.shape.Store(&now)
	if now.active.size() >= w.store.Bytes {
		return n, w.sealLocked()
	}
	return n, nil
}

// beginLocked begins the next segment.
func (w *Writer) beginLocked() error {
	now := *w.shape.Load()
	now.active = newSegment(nextNumber(now.sealed), endOf(now.sealed))
	f, err := w.store.Create(path.Join(w.log, now.active.local()))
	if err != nil {
		return err
	}
	w.file = f
	w.shape.Store(&now)
	w.store.owe(w.log)
	return nil
}

// sealLocked ends the segment that is being written. It can be uploaded now.
func (w *Writer) sealLocked() error {
	now := *w.shape.Load()
	f := w.file
	w.file = nil
	if now.active.size() > 0 {
		now.sealed = append(slices.Clip(now.sealed), now.active)
	}
	now.active = segment{}
	w.shape.Store(&now)
	w.store.owed.Wake()
	return f.Close()
}

// sealOld ends a segment that was begun that long ago.
func (w *Writer) sealOld(age time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil || time.Since(w.shape.Load().active.born()) < age {
		return nil
	}
	return w.sealLocked()
}

// active is the name of the segment that is being written, "" for none.
func (w *Writer) active() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.shape.Load(); now.active.number > 0 {
		return now.active.local()
	}
	return ""
}

var errSealed = errors.New("the segment has been sealed")

// Truncate takes back what a broken write has left behind that many bytes of the log.
func (w *Writer) Truncate(size int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return errSealed
	}
	return w.file.Truncate(size - w.shape.Load().active.from.Size)
}

// Size is the number of bytes of the log, as far as they lie where they were left.
func (w *Writer) Size() (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.shape.Load()
	if w.file == nil {
		return now.end().Size, nil
	}
	size, err := w.file.Size()
	return now.active.from.Size + size, err
}

// Rest closes the file of the segment that is being written, if it is one that opens itself again.
func (w *Writer) Rest() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.file.(interface{ Rest() error }); ok {
		return r.Rest()
	}
	return nil
}

// Close ends the writing. The log can be continued.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store.closed(w)
	f := w.file
	w.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// closed forgets a writer, unless the log has another one by now.
func (s *Store) closed(w *Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writers[w.log] == w {
		delete(s.writers, w.log)
	}
}
