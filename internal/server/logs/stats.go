package logs

import (
	"sync/atomic"

	"kici/internal/server/logs/retention"
	"kici/internal/server/logs/segments"
)

// Stats counts what a store did since it was opened.
type Stats struct {
	Chunks    int64 // stored
	Bytes     int64 // stored, as lines of the logs
	Replays   int64 // chunks that were there already
	Truncated int64 // chunks of which lines were dropped at the cap
	Failed    int64 // chunks that could not be stored; their senders were told

	segments.Stats

	ExpiredRuns  int64 // whose logs were deleted
	ExpiredBytes int64 // that they had
	KeptBytes    int64 // of all logs, as the last sweep found and left them
}

type counters struct {
	chunks, bytes, replays, truncated, failed, expiredRuns, expiredBytes, keptBytes atomic.Int64
}

// count counts a stored chunk.
func (c *counters) count(size int, cut bool) {
	c.chunks.Add(1)
	c.bytes.Add(int64(size))
	if cut {
		c.truncated.Add(1)
	}
}

// swept counts what a sweep did.
func (c *counters) swept(s retention.Swept) {
	c.expiredRuns.Add(s.Runs)
	c.expiredBytes.Add(s.Freed)
	c.keptBytes.Store(s.Kept)
}

// Stats tells what was done so far.
func (s *Store) Stats() Stats {
	out := Stats{
		Chunks: s.chunks.Load(), Bytes: s.bytes.Load(), Replays: s.replays.Load(), Truncated: s.truncated.Load(), Failed: s.failed.Load(),
		ExpiredRuns: s.expiredRuns.Load(), ExpiredBytes: s.expiredBytes.Load(), KeptBytes: s.keptBytes.Load(),
	}
	if s.segments != nil {
		out.Stats = s.segments.Stats()
	}
	return out
}
