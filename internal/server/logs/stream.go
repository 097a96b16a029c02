package logs

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"kici/internal/server/logs/index"
)

// windowChunks is the window of recent chunk ids that recognises replays. An agent replays what was not acknowledged when its
// connection broke, which is far less.
const windowChunks = 1024

// maxID bounds a message id in the file; a longer one is stored as its hash.
const maxID = 128

// shape is what readers need to know of a log that is open for writing: where its complete chunks end, and its text when it is
// a row.
type shape struct {
	index.End
	text []byte
}

// stream is one log that is open for writing.
type stream struct {
	path string

	// guarded by Store.mu
	refs  int           // callers inside
	rests bool          // nothing of it is open, as far as that can be
	place *list.Element // among the idle or the resting ones, nil while a caller is inside

	// shape is published for readers, who must not wait behind a writer. Nil while nothing is open.
	shape atomic.Pointer[shape]

	mu     sync.Mutex
	file   file     // nil until the first append, and after a failure that left it in doubt
	recent []uint64 // hashes of the last chunk ids, a ring once full
	oldest int      // where the ring begins
	capped bool     // the truncation line is written
}

// append stores the chunk and reports whether the log changed.
func (st *stream) append(ctx context.Context, s *Store, c Chunk) (bool, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	changed, err := st.appendLocked(ctx, s, c, false)
	if errors.Is(err, errUnread) {
		if err := st.closeLocked(); err != nil {
			return false, err
		}
		changed, err = st.appendLocked(ctx, s, c, true)
	}
	return changed, err
}

// appendLocked is append. Most logs are new, so one that may be a row is only read first where that is asked for; it fails with
// errUnread where it should have been.
func (st *stream) appendLocked(ctx context.Context, s *Store, c Chunk, read bool) (bool, error) {
	if err := st.readyLocked(ctx, s, read); err != nil {
		return false, err
	}
	if st.capped {
		s.truncated.Add(1)
		return false, nil
	}
	id := chunkID(c.MessageID)
	hash := index.Hash(id)
	if slices.Contains(st.recent, hash) {
		s.replays.Add(1)
		return false, nil
	}
	now := st.shape.Load().End
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	data, lines, cut := encode((*buf)[:0], c, id, now, s.maxBytes)
	*buf = data
	if err := st.writeLocked(ctx, data, now.Size); err != nil {
		return false, err
	}
	st.grewLocked(s, hash, index.End{Size: now.Size + int64(len(data)), Lines: now.Lines + lines}, len(data), cut)
	return true, nil
}

// grewLocked is that a chunk of so many bytes has been stored, up to end.
func (st *stream) grewLocked(s *Store, hash uint64, end index.End, size int, cut bool) {
	st.shape.Store(&shape{End: end, text: textOf(st.file)})
	st.rememberLocked(hash)
	st.capped = cut
	s.count(size, cut)
}

// readyLocked opens the log, or looks again at one that is not as this stream left it.
func (st *stream) readyLocked(ctx context.Context, s *Store, read bool) error {
	if st.file != nil {
		size, err := st.file.Size()
		if err == nil && size == st.shape.Load().Size {
			return nil
		}
		if err := st.closeLocked(); err != nil {
			return err
		}
	}
	f, found, err := s.openForMore(ctx, st.path, read)
	if err != nil {
		return err
	}
	st.file = f
	st.capped = found.Truncated
	st.recent, st.oldest = found.Recent, 0
	st.shape.Store(&shape{End: found.End, text: textOf(f)})
	return nil
}

// openForMore opens a log in whatever form it is, or begins one. See openWhole.
func (s *Store) openForMore(ctx context.Context, path string, read bool) (file, index.Tail, error) {
	parts, err := s.inParts(ctx, path)
	if err != nil {
		return nil, index.Tail{}, err
	}
	if !parts {
		return s.openWhole(ctx, path, read)
	}
	w, found, err := s.segments.Continue(ctx, path, windowChunks)
	if err != nil {
		return nil, index.Tail{}, err
	}
	return w, found, nil
}

// writeLocked writes a whole chunk behind the size bytes of the log, or nothing. When the rest of a broken write cannot be
// taken back, the log is closed, and the next append recovers it as after a crash.
func (st *stream) writeLocked(ctx context.Context, data []byte, size int64) error {
	n, err := st.file.Write(ctx, data)
	if err == nil {
		return nil
	}
	if n > 0 {
		if cutErr := st.file.Truncate(size); cutErr != nil {
			return errors.Join(err, cutErr, st.closeLocked())
		}
	}
	return err
}

func (st *stream) rememberLocked(hash uint64) {
	if len(st.recent) < windowChunks {
		st.recent = append(st.recent, hash)
		return
	}
	st.recent[st.oldest] = hash
	st.oldest = (st.oldest + 1) % windowChunks
}

// rest closes what is open, and keeps what is known. When that fails, nothing is kept.
func (st *stream) rest() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	r, ok := st.file.(rester)
	if !ok {
		return st.closeLocked()
	}
	if err := r.Rest(); err != nil {
		return errors.Join(err, st.closeLocked())
	}
	return nil
}

func (st *stream) close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closeLocked()
}

func (st *stream) closeLocked() error {
	if st.file == nil {
		st.shape.Store(nil)
		return nil
	}
	f := st.file
	st.file = nil
	st.shape.Store(nil)
	return f.Close()
}

// chunkID is the id as it is stored. A chunk without one gets a fresh id, and is never taken for a replay.
func chunkID(messageID string) string {
	switch {
	case messageID == "":
		return uuid.NewString()
	case len(messageID) > maxID:
		sum := sha256.Sum256([]byte(messageID))
		return hex.EncodeToString(sum[:])
	}
	return messageID
}
