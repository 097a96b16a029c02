package logs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// A window of recent chunk ids recognises replays. An agent replays what was not acknowledged when its connection broke,
// which is far less.
const (
	windowChunks = 1024
	windowBytes  = 4 << 20 // how far back a reopened log is read for the window, at most
)

// maxID bounds a message id in the file; a longer one is stored as its hash.
const maxID = 128

var idSeed = maphash.MakeSeed()

// end is how far a log reaches: the bytes and lines of its complete chunks.
type end struct {
	size  int64
	lines int64
}

// shape is what readers need to know of a log that is open for writing. The text is that of a log that is a row, nil for all
// others. The segments are those of a log that is kept in parts, sealed ones and the one being written, whose number is 0
// when there is none.
type shape struct {
	end
	text     []byte
	segments []segment
	active   segment
}

// stream is one log that is open for writing.
type stream struct {
	path string

	// guarded by Store.mu
	refs int   // callers inside
	used int64 // when it was acquired last, in acquisitions

	// shape is published for readers, who must not wait behind a writer. Nil while nothing is open.
	shape atomic.Pointer[shape]

	mu     sync.Mutex
	parts  bool     // the log is kept in segments
	file   file     // nil until the first append, after a sealing, and after a failure that left the file in doubt
	recent []uint64 // hashes of the last chunk ids, a ring once full
	oldest int      // where the ring begins
	capped bool     // the truncation line is written
}

// append stores the chunk and reports whether the log changed.
func (st *stream) append(ctx context.Context, s *Store, c Chunk) (bool, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.readyLocked(ctx, s); err != nil {
		return false, err
	}
	if st.capped {
		s.truncated.Add(1)
		return false, nil
	}
	id := chunkID(c.MessageID)
	hash := maphash.String(idSeed, id)
	if slices.Contains(st.recent, hash) {
		s.replays.Add(1)
		return false, nil
	}
	if st.file == nil {
		if err := st.beginLocked(s); err != nil {
			return false, err
		}
	}
	now := *st.shape.Load()
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	data, lines, cut := encode((*buf)[:0], c, id, now.end, s.maxBytes)
	*buf = data
	if err := st.writeLocked(ctx, data, now.size-now.active.from.size); err != nil {
		return false, err
	}
	now.text = textOf(st.file)
	now.end = end{size: now.size + int64(len(data)), lines: now.lines + lines}
	st.shape.Store(&now)
	st.rememberLocked(hash)
	st.capped = cut
	s.count(len(data), cut)
	if st.parts && now.size-now.active.from.size >= s.segmentBytes {
		return true, st.sealLocked(s)
	}
	return true, nil
}

// readyLocked opens the log, or looks again at a file that is not as this stream left it.
func (st *stream) readyLocked(ctx context.Context, s *Store) error {
	if st.file != nil {
		now := st.shape.Load()
		size, err := st.file.Size()
		if err == nil && size == now.size-now.active.from.size {
			return nil
		}
		if err := st.closeLocked(); err != nil {
			return err
		}
	}
	if st.shape.Load() != nil {
		return nil // the next segment is begun by the next chunk
	}
	var err error
	if st.parts, err = s.inParts(ctx, st.path); err != nil {
		return err
	}
	if st.parts {
		return st.openPartsLocked(ctx, s)
	}
	f, found, err := s.openWhole(ctx, st.path)
	if err != nil {
		return err
	}
	st.file = f
	st.openedLocked(found, &shape{end: found.end, text: textOf(f)})
	return nil
}

// openPartsLocked finds out where a log in segments ends. No segment is ever gone on with after it was closed: what a
// killed server left is uploaded as it is.
func (st *stream) openPartsLocked(ctx context.Context, s *Store) error {
	segments, err := s.layout(ctx, st.path)
	if err != nil {
		return err
	}
	r := &partReader{ctx: ctx, store: s, log: st.path, segments: segments, index: -1}
	found, err := readTail(r, endOf(segments).size, windowChunks)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	st.openedLocked(found, &shape{end: endOf(segments), segments: segments})
	return nil
}

func (st *stream) openedLocked(found tail, now *shape) {
	st.capped = found.truncated
	st.recent, st.oldest = found.recent, 0
	st.shape.Store(now)
}

// beginLocked begins the next segment.
func (st *stream) beginLocked(s *Store) error {
	now := *st.shape.Load()
	now.active = newSegment(nextNumber(now.segments), now.end)
	f, err := s.openLog(path.Join(st.path, now.active.local()), true)
	if err != nil {
		return err
	}
	st.file = f
	st.shape.Store(&now)
	s.owe(st.path)
	return nil
}

// sealLocked ends the segment that is being written. It can be uploaded now.
func (st *stream) sealLocked(s *Store) error {
	now := *st.shape.Load()
	f := st.file
	st.file = nil
	if now.size > now.active.from.size {
		now.active.to = now.end
		now.segments = append(slices.Clip(now.segments), now.active)
	}
	now.active = segment{}
	st.shape.Store(&now)
	s.owed.Wake()
	return f.Close()
}

// writeLocked writes a whole chunk behind the size bytes of the file, or nothing. When the rest of a broken write cannot be taken back, the file is closed,
// and the next append recovers it as after a crash.
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
