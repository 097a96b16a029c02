package logs

import "sync/atomic"

// Stats counts what a store did since it was opened.
type Stats struct {
	Chunks    int64 // stored
	Bytes     int64 // stored, as lines of the logs
	Replays   int64 // chunks that were there already
	Truncated int64 // chunks of which lines were dropped at the cap
	Failed    int64 // chunks that could not be stored; their senders were told

	Uploaded int64 // segments that went to the object store
	Unsent   int64 // failed attempts at that
	Owing    int64 // logs of which something is still to be uploaded, at present

	ExpiredRuns  int64 // whose logs were deleted
	ExpiredBytes int64 // that they had
	KeptBytes    int64 // of all logs, as the last sweep found and left them
}

type counters struct {
	chunks, bytes, replays, truncated, failed, uploaded, unsent, expiredRuns, expiredBytes, keptBytes atomic.Int64
}

// count counts a stored chunk.
func (c *counters) count(size int, cut bool) {
	c.chunks.Add(1)
	c.bytes.Add(int64(size))
	if cut {
		c.truncated.Add(1)
	}
}

// Stats tells what was done so far.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	owing := len(s.debts)
	s.mu.Unlock()
	return Stats{
		Chunks: s.chunks.Load(), Bytes: s.bytes.Load(), Replays: s.replays.Load(), Truncated: s.truncated.Load(), Failed: s.failed.Load(),
		Uploaded: s.uploaded.Load(), Unsent: s.unsent.Load(), Owing: int64(owing),
		ExpiredRuns: s.expiredRuns.Load(), ExpiredBytes: s.expiredBytes.Load(), KeptBytes: s.keptBytes.Load(),
	}
}
