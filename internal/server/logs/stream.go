package logs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/maphash"
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

// stream is one log that is open for writing.
type stream struct {
	path string

	// guarded by Store.mu
	refs    int   // callers inside
	used    int64 // when it was acquired last, in acquisitions
	retired bool  // close it when the last caller leaves

	// end is published for readers, who must not wait behind a writer. Nil while the file is not open.
	end atomic.Pointer[end]

	mu     sync.Mutex
	file   file     // nil until the first append, and after a failure that left the file in doubt
	recent []uint64 // hashes of the last chunk ids, a ring once full
	oldest int      // where the ring begins
	capped bool     // the truncation line is written
}

// append stores the chunk and reports whether the file changed.
func (st *stream) append(s *Store, c Chunk) (bool, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.readyLocked(s); err != nil {
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
	at := *st.end.Load()
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	data, lines, cut := encode((*buf)[:0], c, id, at, s.maxBytes)
	*buf = data
	if err := st.writeLocked(data, at.size); err != nil {
		return false, err
	}
	st.end.Store(&end{size: at.size + int64(len(data)), lines: at.lines + lines})
	st.rememberLocked(hash)
	st.capped = cut
	s.chunks.Add(1)
	s.bytes.Add(int64(len(data)))
	if cut {
		s.truncated.Add(1)
	}
	return true, nil
}

// readyLocked opens the file, or looks again at one that is not as this stream left it.
func (st *stream) readyLocked(s *Store) error {
	if st.file != nil {
		info, err := st.file.Stat()
		if err == nil && info.Size() == st.end.Load().size {
			return nil
		}
		if err := st.closeLocked(); err != nil {
			return err
		}
	}
	f, err := s.openLog(st.path)
	if err != nil {
		return err
	}
	found, err := recoverLog(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	st.file, st.capped = f, found.truncated
	st.recent, st.oldest = found.recent, 0
	st.end.Store(&found.end)
	return nil
}

// recoverLog finds the end of the last complete chunk and cuts off what a killed server left behind it.
func recoverLog(f file) (tail, error) {
	info, err := f.Stat()
	if err != nil {
		return tail{}, err
	}
	found, err := readTail(f, info.Size(), windowChunks)
	if err != nil {
		return tail{}, err
	}
	if found.end.size < info.Size() {
		if err := f.Truncate(found.end.size); err != nil {
			return tail{}, err
		}
	}
	return found, nil
}

// writeLocked writes a whole chunk or nothing. When the rest of a broken write cannot be taken back, the file is closed,
// and the next append recovers it as after a crash.
func (st *stream) writeLocked(data []byte, size int64) error {
	n, err := st.file.Write(data)
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
		return nil
	}
	f := st.file
	st.file = nil
	st.end.Store(nil)
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
