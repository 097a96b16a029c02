// Package logs keeps the logs of steps in files: it appends the chunks that agents send, each exactly once, and reads
// them by byte, by line and from the end while they grow.
//
// A file holds one JSON object a line. The last line of every chunk carries, in its meta, the id of the chunk and the
// number of lines so far. That mark makes the file its own journal and its own index: a chunk that a killed server wrote
// only in part is recognised and cut off, a chunk that is sent again is recognised after a restart, and a line of a
// gigabyte log is found by a binary search over the marks.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Limits of a store where the options name none.
const (
	DefaultMaxBytes = 2 << 30 // of one step's log; then comes the truncation line and nothing more
	DefaultMaxOpen  = 256     // files open for writing; the longest idle one is closed for the next
)

// maxFinished bounds how many finished streams are remembered. A follower of one that was forgotten waits until its
// context ends, as it does after a restart; followers look at the step's status, too.
const maxFinished = 4096

// ErrFull says that the disk has no room for more. The log up to then stays complete and readable.
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
}

// Stats counts what a store took in since it was opened.
type Stats struct {
	Chunks    int64 // stored
	Bytes     int64 // stored, as lines of the files
	Replays   int64 // chunks that were there already
	Truncated int64 // chunks of which lines were dropped at the cap
}

// Store keeps the logs below one folder, which no other process writes. It is safe for concurrent use; chunks of one
// step are stored in the order in which Append is called.
type Store struct {
	root     *os.Root
	maxBytes int64
	maxOpen  int
	openLog  func(name string) (file, error)

	// slots holds a place for every stream in use, so that no more than maxOpen files are ever open for writing. An
	// Append that finds none waits.
	slots chan struct{}
	close func() error // once

	mu       sync.Mutex
	streams  map[string]*stream // open ones, at most maxOpen
	uses     int64              // counts acquisitions, to know the longest idle stream
	waiters  map[string]*waiter // of followers; each entry has a caller waiting on it
	finished *lru.Cache[string, struct{}]

	chunks, bytes, replays, truncated atomic.Int64
}

// file is what a store does with an open log.
type file interface {
	ReadAt(p []byte, off int64) (int, error)
	Write(p []byte) (int, error)
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Close() error
}

// Open opens the store of logs below o.Root.
func Open(o Options) (*Store, error) {
	if err := os.MkdirAll(o.Root, 0o700); err != nil {
		return nil, fmt.Errorf("open log root: %w", err)
	}
	root, err := os.OpenRoot(o.Root) // no path leaves it, not even by a symbolic link
	if err != nil {
		return nil, fmt.Errorf("open log root: %w", err)
	}
	finished, err := lru.New[string, struct{}](maxFinished)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log root: %w", err), root.Close())
	}
	s := &Store{
		root: root, maxBytes: o.MaxBytes, maxOpen: o.MaxOpen,
		streams: map[string]*stream{}, waiters: map[string]*waiter{}, finished: finished,
	}
	s.openLog = s.openForWriting
	if s.maxBytes <= 0 {
		s.maxBytes = DefaultMaxBytes
	}
	if s.maxOpen <= 0 {
		s.maxOpen = DefaultMaxOpen
	}
	s.slots = make(chan struct{}, s.maxOpen)
	s.close = sync.OnceValue(s.closeAll)
	return s, nil
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

// Stats tells what was taken in so far.
func (s *Store) Stats() Stats {
	return Stats{Chunks: s.chunks.Load(), Bytes: s.bytes.Load(), Replays: s.replays.Load(), Truncated: s.truncated.Load()}
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
	wrote, err := st.append(s, c)
	if err != nil {
		return fmt.Errorf("append to log %s: %w", path, fullness(err))
	}
	if wrote {
		s.wake(path, false)
	}
	return nil
}

// Finish tells that nothing more is expected of a log: its file is closed and its followers are told. A late chunk is
// still taken.
func (s *Store) Finish(path string) error {
	s.mu.Lock()
	st := s.streams[path]
	if st != nil {
		st.retired = true
	}
	idle := st != nil && st.refs == 0
	if idle {
		delete(s.streams, path)
	}
	s.mu.Unlock()
	s.wake(path, true)
	if idle {
		return st.close()
	}
	return nil
}

// acquire gives the stream of a path to one caller more. It closes the longest idle stream where there are too many.
func (s *Store) acquire(ctx context.Context, path string) (*stream, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[path]
	if st == nil {
		if err := s.evictLocked(); err != nil {
			<-s.slots
			return nil, fmt.Errorf("close idle log: %w", fullness(err))
		}
		st = &stream{path: path}
		s.streams[path] = st
	}
	s.uses++
	st.refs++
	st.used = s.uses
	st.retired = false
	return st, nil
}

func (s *Store) release(st *stream) {
	s.mu.Lock()
	st.refs--
	if st.refs == 0 && st.retired {
		delete(s.streams, st.path)
		_ = st.close() // everything in it is with the kernel already
	}
	s.mu.Unlock()
	<-s.slots
}

// evictLocked makes room for one more stream. There is always an idle one, since callers hold a slot each.
func (s *Store) evictLocked() error {
	if len(s.streams) < s.maxOpen {
		return nil
	}
	var oldest *stream
	for _, st := range s.streams {
		if st.refs == 0 && (oldest == nil || st.used < oldest.used) {
			oldest = st
		}
	}
	if oldest == nil {
		return nil
	}
	delete(s.streams, oldest.path)
	return oldest.close()
}

// openForWriting opens a log, and makes it and its folders when it is new. The name has been checked; the folder is the
// server's alone, so one system call that follows the whole path will do, where a root would walk it step by step.
func (s *Store) openForWriting(name string) (file, error) {
	path := filepath.Join(s.root.Name(), name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	}
	if err != nil {
		return nil, err // not f: a nil *os.File is no nil file
	}
	return f, nil
}

// fullness marks the errors that a full disk or a spent quota causes.
func fullness(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
