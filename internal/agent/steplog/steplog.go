// Package steplog sends what the steps of one job say: masked, in chunks, bounded, and no faster than the connection takes
// it.
package steplog

import (
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"kici/internal/agent/ledger"
	"kici/internal/agent/metrics"
	"kici/internal/core/wire"
	"kici/internal/kit/redact"
)

// When a chunk of a log is sent: whatever comes first.
const (
	chunkLines = 50
	chunkBytes = 64 << 10
	chunkDelay = 100 * time.Millisecond
	maxLine    = 64 << 10 // longer lines are cut into several
	// stallLimit is how long a full connection may stand still before lines are dropped.
	stallLimit = 30 * time.Second
)

// Logs are the log streams of one job, one per step index. What is exported is set before the first line.
type Logs struct {
	Job     ledger.Job
	Limit   int64 // bytes per stream, after which a stream is cut off
	Drop    bool  // lines that come while the connection is full, instead of waiting for it
	Mask    *redact.Redactor
	Ledger  *ledger.Ledger
	Metrics *metrics.Metrics
	Ended   <-chan struct{} // closed when the job ends; nobody waits for the connection then

	mu      sync.Mutex
	streams map[int]*stream
	closed  bool
}

// stream is one log. Its fields are guarded by the mutex of Logs.
type stream struct {
	lines     []string
	size      int
	counted   int64 // bytes accepted so far, after masking
	truncated bool
	dropped   int64 // lines lost since the last chunk
	timer     *time.Timer
}

// Add takes one line. While the connection is full it waits, or in drop mode loses the line; waiting stops the reading
// of the runner's pipe, so a loud step waits too and memory stays bounded.
func (l *Logs) Add(step int, line string) {
	line = l.Mask.String(line)
	for len(line) > maxLine {
		end := maxLine
		for end > maxLine-utf8.UTFMax && !utf8.RuneStart(line[end]) {
			end--
		}
		l.addPiece(step, line[:end])
		line = line[end:]
	}
	l.addPiece(step, line)
}

func (l *Logs) addPiece(step int, line string) {
	keep := l.awaitRoom()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.streamLocked(step)
	switch {
	case l.closed || s.truncated:
		return
	case s.counted >= l.Limit:
		s.truncated = true
		line = fmt.Sprintf("[TRUNCATED: log output exceeded %d bytes]", l.Limit)
	case !keep:
		s.dropped++
		l.Metrics.Dropped.Add(1)
		return
	default:
		s.counted += int64(len(line))
	}
	if s.size > 0 && s.size+len(line) > chunkBytes {
		l.flushLocked(step, s)
	}
	s.lines = append(s.lines, line)
	s.size += len(line) + 1
	switch {
	case len(s.lines) >= chunkLines || s.size >= chunkBytes:
		l.flushLocked(step, s)
	case len(s.lines) == 1:
		l.startTimerLocked(step, s)
	}
}

func (l *Logs) streamLocked(step int) *stream {
	s := l.streams[step]
	if s == nil {
		if l.streams == nil {
			l.streams = map[int]*stream{}
		}
		s = &stream{}
		l.streams[step] = s
	}
	return s
}

func (l *Logs) startTimerLocked(step int, s *stream) {
	if s.timer != nil {
		s.timer.Reset(chunkDelay)
		return
	}
	s.timer = time.AfterFunc(chunkDelay, func() { l.Flush(step) })
}

// awaitRoom waits until a line may be accepted. It gives up, and the line is lost, when nothing has moved for a while.
func (l *Logs) awaitRoom() bool {
	ok, unsent, changed := l.Ledger.Room()
	if ok {
		return true
	}
	l.Metrics.Pressed()
	if l.Drop {
		return false
	}
	l.Metrics.Pausing.Add(1)
	defer l.Metrics.Pausing.Add(-1)
	stall := time.NewTimer(stallLimit)
	defer stall.Stop()
	for {
		select {
		case <-changed:
		case <-stall.C:
			return false
		case <-l.Ended:
			return true // the job ends; what it said last is still kept
		}
		before := unsent
		if ok, unsent, changed = l.Ledger.Room(); ok {
			return true
		}
		if unsent < before {
			stall.Reset(stallLimit)
		}
	}
}

// Flush sends what a stream holds.
func (l *Logs) Flush(step int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[step]; s != nil {
		l.flushLocked(step, s)
	}
}

func (l *Logs) flushLocked(step int, s *stream) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if len(s.lines) == 0 && s.dropped == 0 {
		return
	}
	lines := s.lines
	if s.dropped > 0 {
		lines = append([]string{fmt.Sprintf("[%d lines dropped due to backpressure]", s.dropped)}, lines...)
	}
	key := ledger.Stream{Job: l.Job, Step: step}
	taken := l.Ledger.Post(wire.LogChunk{MessageID: uuid.NewString(), RunID: l.Job.Run, JobID: l.Job.ID, StepIndex: step,
		Lines: lines, Timestamp: time.Now().UnixMilli()}, ledger.Entry{Keep: ledger.KeepAcked, Job: l.Job, Stream: &key})
	if taken {
		l.Metrics.LogBytes.Add(int64(s.size - len(s.lines)))
		s.dropped = 0
	} else {
		s.dropped += int64(len(s.lines))
		l.Metrics.Dropped.Add(int64(len(s.lines)))
	}
	s.lines, s.size = nil, 0
}

// Streamed is how many bytes of the stream were accepted.
func (l *Logs) Streamed(step int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[step]; s != nil {
		return s.counted
	}
	return 0
}

// Close sends the rest of all streams. Nothing is accepted afterwards.
func (l *Logs) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for step, s := range l.streams {
		l.flushLocked(step, s)
	}
}
