package logs

import (
	"context"

	"kici/internal/server/logs/index"
	"kici/internal/server/store"
)

// Along stores something in a transaction that somebody else makes.
type Along func(ctx context.Context, tx *store.Tx) error

// AppendAlong is Append for the first chunk of a short log, which most logs have no second one of: write stores what else there is
// to store, and the chunk in the same transaction, by what it is given. Of any other chunk nothing is stored, and write is not
// called; neither is anything after an error of write. Then stored is false, and Append takes the chunk.
func (s *Store) AppendAlong(ctx context.Context, c Chunk, write func(Along) error) (stored bool) {
	if len(c.Lines) == 0 {
		return false
	}
	path := Path(c.RunID, c.JobName, c.StepIndex)
	st, err := s.acquire(ctx, path)
	if err != nil {
		return false // Append meets it again, and tells
	}
	defer s.release(st)
	if stored = st.appendAlong(ctx, s, c, write); stored {
		s.wake(path)
	}
	return stored
}

func (st *stream) appendAlong(ctx context.Context, s *Store, c Chunk, write func(Along) error) (stored bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.readyLocked(ctx, s, false); err != nil {
		return false
	}
	l, ok := st.file.(*shortLog)
	if !ok || !l.unread {
		return false
	}
	id := chunkID(c.MessageID)
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	data, lines, cut := encode((*buf)[:0], c, id, index.End{}, s.maxBytes)
	*buf = data
	if len(data) > shortBytes {
		return false
	}
	err := write(func(ctx context.Context, tx *store.Tx) error { return s.rows.beginTx(ctx, tx, st.path, data) })
	if err != nil {
		_ = st.closeLocked() // nothing is open; what is stored, should only the answer be lost, is for Append to find out
		return false
	}
	l.begun(data)
	st.grewLocked(s, index.Hash(id), index.End{Size: int64(len(data)), Lines: lines}, len(data), cut)
	return true
}
