// Package logs keeps the logs of steps: it appends the chunks that agents send, each exactly once, reads and searches them
// by byte, by line and from the end while they grow, and deletes them when their time is up.
//
// A log is lines of JSON objects. The last line of every chunk carries, in its meta, the id of the chunk and the number of
// lines so far. Those marks make the log its own journal and its own sparse index: a chunk that a killed server wrote only
// in part is recognised and cut off, a chunk that is sent again is recognised after a restart, and a line of a gigabyte log
// is found by a binary search over the marks. There is nothing beside the log that could be torn or lost or disagree.
//
// A log is a file in the data folder, or a row of the database while it is short. With an object store it is segments of
// such a file, which package segments keeps. Either way the bytes, and so all cursors, are the same: package index reads them.
// What package retention finds to be due is deleted.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kici/internal/kit/blob"
	"kici/internal/kit/service"
	"kici/internal/server/logs/retention"
	"kici/internal/server/logs/segments"
	"kici/internal/server/store"
)

// Limits of a store where the options name none.
const (
	DefaultMaxBytes = 2 << 30 // of one step's log; then comes the truncation line and nothing more
	DefaultMaxOpen  = 256     // files open for writing; the longest idle one is closed for the next, and opened again when it goes on

	DefaultSegmentBytes = 4 << 20
	DefaultSegmentAge   = time.Minute
)

// ErrFull says that the disk, or the database, has no room for more. The log up to then stays complete and readable.
var ErrFull = errors.New("no space left for logs")

// ErrPath says that a path does not name a log below the root.
var ErrPath = errors.New("not a log path")

// Chunk is what an agent sends of a step's log.
type Chunk struct {
	RunID     string
	JobID     string
	JobName   string // expanded
	StepIndex int    // −1 is the job's own log
	MessageID string // a chunk with the id of an earlier one of the same step is a replay and changes nothing
	At        int64  // epoch ms, shared by all lines
	Lines     []string
}

// Options say where logs lie and how large they may grow. Zero limits mean the defaults.
type Options struct {
	Root     string // made when absent
	MaxBytes int64  // stored bytes of one step's log
	MaxOpen  int    // files open for writing at a time

	// DB has the logs as rows while they are short. Without it they are files from the beginning.
	DB *store.DB

	// Segments takes the logs, in segments of about SegmentBytes. Nil keeps them as rows and files below Root. A segment is
	// sealed when it is full or when it was begun SegmentAge ago.
	Segments     blob.Store
	SegmentBytes int64
	SegmentAge   time.Duration

	Log *slog.Logger // of what the loops do; nil for none
}

// Store keeps the logs below one folder, which no other process writes. It is safe for concurrent use; chunks of one
// step are stored in the order in which Append is called.
type Store struct {
	root     *os.Root
	maxBytes int64
	maxOpen  int
	rows     *rows // nil without a database
	openLog  func(name string, fresh bool) (diskFile, error)
	log      *slog.Logger

	full     atomic.Bool     // a chunk found no room
	crowded  service.Poke    // wakes the sweep then
	segments *segments.Store // nil without an object store
	marks    *retention.Marks

	// slots holds a place for every stream in use, so that no more than maxOpen files are ever open for writing. An
	// Append that finds none waits.
	slots chan struct{}
	close func() error // once

	mu sync.Mutex
	use
	waiters map[string]*waiter // of followers; each entry has a caller waiting on it

	counters
}

// file is what a store does with an open log: a file, a row, or segments.
type file interface {
	// Write stores a chunk behind the others, and tells how many bytes it has when it fails.
	Write(ctx context.Context, chunk []byte) (int, error)
	Truncate(size int64) error
	Size() (int64, error)
	Close() error
}

// diskFile is a log that is a file.
type diskFile interface {
	file
	io.ReaderAt
	Sync() error
}

// Open opens the store of logs below o.Root.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := os.MkdirAll(o.Root, 0o700); err != nil {
		return nil, fmt.Errorf("open log root: %w", err)
	}
	root, err := os.OpenRoot(o.Root) // no path leaves it, not even by a symbolic link
	if err != nil {
		return nil, fmt.Errorf("open log root: %w", err)
	}
	s := &Store{
		root: root, maxBytes: o.MaxBytes, maxOpen: o.MaxOpen, log: o.Log,
		use: use{streams: map[string]*stream{}}, waiters: map[string]*waiter{}, crowded: service.NewPoke(),
	}
	if s.marks, err = retention.NewMarks(root, o.Segments); err != nil {
		return nil, errors.Join(fmt.Errorf("open log root: %w", err), root.Close())
	}
	s.openLog = s.openForWriting
	s.defaults()
	s.slots = make(chan struct{}, s.maxOpen)
	s.close = sync.OnceValue(s.closeAll)
	if o.DB != nil {
		if s.rows, err = openRows(ctx, o.DB, root, o.Segments != nil); err != nil {
			return nil, errors.Join(fmt.Errorf("open short logs: %w", err), root.Close())
		}
	}
	if o.Segments != nil {
		if err := s.openSegments(o); err != nil {
			return nil, errors.Join(fmt.Errorf("open log segments: %w", err), root.Close())
		}
	}
	return s, nil
}

// openSegments gets ready to keep logs in segments.
func (s *Store) openSegments(o Options) (err error) {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.SegmentAge <= 0 {
		o.SegmentAge = DefaultSegmentAge
	}
	create := func(name string) (segments.File, error) { return s.openToRest(name, true) }
	s.segments, err = segments.Open(segments.Options{Root: s.root, Create: create, Objects: o.Segments,
		Bytes: o.SegmentBytes, Age: o.SegmentAge, Log: s.log})
	return err
}

// Upload is the loop that brings sealed segments to the object store. It ends at once when there is none.
func (s *Store) Upload(ctx context.Context) error {
	if s.segments == nil {
		return nil
	}
	return s.segments.Upload(ctx)
}

// Flush seals what is being written and uploads all there is, as far as ctx lets it. What is left stays safe in the data
// folder, and the next start goes on with it.
func (s *Store) Flush(ctx context.Context) error {
	if s.segments == nil {
		return nil
	}
	return s.segments.Flush(ctx)
}

// defaults sets what the options left open.
func (s *Store) defaults() {
	if s.maxBytes <= 0 {
		s.maxBytes = DefaultMaxBytes
	}
	if s.maxOpen <= 0 {
		s.maxOpen = DefaultMaxOpen
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
}

// Close waits for appends under way and closes the files. The store must not be used after it; closing it again does
// nothing.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeAll() error {
	for range s.maxOpen {
		s.slots <- struct{}{} // once every place is ours, no Append is inside
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.root.Close()}
	for path, st := range s.streams {
		errs = append(errs, st.close())
		delete(s.streams, path)
	}
	return errors.Join(errs...)
}

// Append stores a chunk. When it returns nil, the lines survive the end of this process. A replay and a chunk beyond the
// cap are successes that store nothing. After an error nothing of the chunk is in the log, and it may be sent again;
// errors.Is(err, ErrFull) tells that the disk is full.
func (s *Store) Append(ctx context.Context, c Chunk) error {
	if len(c.Lines) == 0 {
		return nil
	}
	path := Path(c.RunID, c.JobName, c.StepIndex)
	st, err := s.acquire(ctx, path)
	if err != nil {
		return err
	}
	defer s.release(st)
	wrote, err := st.append(ctx, s, c)
	if err = fullness(err); err != nil {
		s.failed.Add(1)
		if errors.Is(err, ErrFull) {
			s.full.Store(true)
			s.crowded.Wake()
		}
		return fmt.Errorf("append to log %s: %w", path, err)
	}
	if wrote {
		s.wake(path)
	}
	return nil
}

// fullness marks the errors that a full disk or a spent quota causes.
func fullness(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || store.IsFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
