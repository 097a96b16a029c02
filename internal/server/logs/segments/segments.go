// Package segments keeps logs in parts: files of the data folder that are sealed by size or age, and then objects of an
// object store. The newest part is in the data folder, where a chunk is safe before it is acknowledged; whatever has not been
// uploaded yet stays there, and the next start goes on with it. The names of the parts are the index of a log.
package segments

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/kit/blob"
	"kici/internal/kit/service"
	"kici/internal/server/logs/index"
)

// Options say where segments lie and when they are sealed.
type Options struct {
	Root    *os.Root
	Create  func(name string) (File, error) // begins a file below the root, with its folders
	Objects blob.Store
	Bytes   int64         // a segment with so many is sealed
	Age     time.Duration // and so is one that was begun that long ago
	Log     *slog.Logger
}

// File is a segment that is being written.
type File interface {
	Write(ctx context.Context, p []byte) (int, error)
	Truncate(size int64) error
	Size() (int64, error)
	Close() error
}

// Store has the logs of one data folder and one object store.
type Store struct {
	Options
	copies   *copies
	listings listings
	owed     service.Poke // there may be a segment to upload

	mu      sync.Mutex
	writers map[string]*Writer  // by log
	debts   map[string]struct{} // logs of which the data folder may hold what has to be uploaded

	uploaded, unsent atomic.Int64
}

// copiesFolder is where the data folder holds what was fetched again.
const copiesFolder = ".copies"

// Open gets ready to keep logs in segments, and finds what the process before left to upload.
func Open(o Options) (*Store, error) {
	s := &Store{Options: o, owed: service.NewPoke(), writers: map[string]*Writer{}, debts: map[string]struct{}{}}
	var err error
	if s.copies, err = newCopies(o.Objects, filepath.Join(o.Root.Name(), copiesFolder)); err != nil {
		return nil, err
	}
	if s.listings.known, err = lru.New[string, listing](maxListed); err != nil {
		return nil, err
	}
	err = fs.WalkDir(o.Root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if g, sealed, ok := parseSegment(entry.Name()); ok && !sealed && g.number > 0 {
			s.debts[path.Dir(name)] = struct{}{}
		}
		return nil
	})
	return s, err
}

// Stats counts what a store did since it was opened.
type Stats struct {
	Uploaded int64 // segments that went to the object store
	Unsent   int64 // failed attempts at that
	Owing    int64 // logs of which something is still to be uploaded, at present
}

// Stats tells what was done so far.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Uploaded: s.uploaded.Load(), Unsent: s.unsent.Load(), Owing: int64(len(s.debts))}
}

// Is tells whether a file of the data folder is a segment. Those that are there wait for their upload.
func Is(name string) bool {
	_, _, ok := parseSegment(path.Base(name))
	return ok
}

// lookAgain bounds how often a log is opened anew, since it was sealed and uploaded just when it was opened.
const lookAgain = 5

// View opens a log for reading. errors.Is(err, fs.ErrNotExist) tells that there is none. While it is written, the view may
// have a chunk more than the writer's caller was told of.
func (s *Store) View(ctx context.Context, log string) (v *index.View, err error) {
	for range lookAgain {
		now := s.shapeOf(log)
		if v, err = s.view(ctx, log, now); now == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return v, err
}

// shapeOf is the shape of a log that is being written, else nil.
func (s *Store) shapeOf(log string) *shape {
	if w := s.writer(log); w != nil {
		return w.shape.Load()
	}
	return nil
}

func (s *Store) writer(log string) *Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writers[log]
}

func (s *Store) view(ctx context.Context, log string, now *shape) (*index.View, error) {
	r := &reader{ctx: ctx, store: s, log: log, index: -1}
	if now == nil {
		segments, err := s.layout(ctx, log)
		if err != nil {
			return nil, err
		}
		if len(segments) == 0 {
			return nil, fs.ErrNotExist
		}
		r.segments = segments
	} else if r.segments = now.sealed; now.active.size() > 0 {
		f, err := s.Root.Open(path.Join(log, now.active.local()))
		if err != nil {
			return nil, err
		}
		r.segments = append(slices.Clip(r.segments), now.active)
		r.active = f
	}
	return &index.View{ReaderAt: r, End: endOf(r.segments), Parts: partsOf(r.segments), Close: r.Close}, nil
}

func partsOf(segments []segment) []index.Part {
	parts := make([]index.Part, len(segments))
	for i, g := range segments {
		parts[i] = index.Part{At: g.at, Stop: g.stop(), Shift: g.at.Lines - g.from.Lines}
	}
	return parts
}

// Walk tells of the objects of all logs below a folder, and when they were begun.
func (s *Store) Walk(ctx context.Context, folder string, each func(object string, size int64, born time.Time)) error {
	return s.Objects.Walk(ctx, folder, func(object blob.Info) error {
		born := object.Modified
		if g, _, ok := parseSegment(path.Base(object.Path)); ok {
			born = g.born() // by the clock of the servers, and before a delayed upload
		}
		each(object.Path, object.Size, born)
		return nil
	})
}

// Remove deletes the objects of all logs below a folder. Files of the data folder are the caller's to remove.
func (s *Store) Remove(ctx context.Context, folder string) error {
	objects, err := s.Objects.List(ctx, folder)
	if err != nil {
		return err
	}
	defer s.listings.changed("")
	for _, object := range objects {
		if err := s.Objects.Delete(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// LetGo uploads nothing more of the logs below a folder, which are about to be deleted.
func (s *Store) LetGo(folder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for log := range s.debts {
		if strings.HasPrefix(log, folder+"/") {
			delete(s.debts, log)
		}
	}
}
