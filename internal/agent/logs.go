package agent

import (
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
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

// logs are the log streams of one job, one per step index.
type logs struct {
	j     *job
	limit int64 // bytes per stream

	mu      sync.Mutex
	streams map[int]*stream
	closed  bool
}

// stream is one log. Its fields are guarded by the mutex of logs.
type stream struct {
	lines     []string
	size      int
	counted   int64 // bytes accepted so far, after masking
	truncated bool
	dropped   int64 // lines lost since the last chunk
	timer     *time.Timer
}

func newLogs(j *job, limit int64) *logs {
	return &logs{j: j, limit: limit, streams: map[int]*stream{}}
}

// add takes one line. While the connection is full it waits, or in drop mode loses the line; waiting stops the reading
// of the runner's pipe, so a loud step waits too and memory stays bounded.
func (l *logs) add(step int, line string) {
	line = l.j.mask.String(line)
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

func (l *logs) addPiece(step int, line string) {
	keep := l.awaitRoom()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.streamLocked(step)
	switch {
	case l.closed || s.truncated:
		return
	case s.counted >= l.limit:
		s.truncated = true
		line = fmt.Sprintf("[TRUNCATED: log output exceeded %d bytes]", l.limit)
	case !keep:
		s.dropped++
		l.j.a.metrics.Dropped.Add(1)
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

func (l *logs) streamLocked(step int) *stream {
	s := l.streams[step]
	if s == nil {
		s = &stream{}
		l.streams[step] = s
	}
	return s
}

func (l *logs) startTimerLocked(step int, s *stream) {
	if s.timer != nil {
		s.timer.Reset(chunkDelay)
		return
	}
	s.timer = time.AfterFunc(chunkDelay, func() { l.flush(step) })
}

// awaitRoom waits until a line may be accepted. It gives up, and the line is lost, when nothing has moved for a while.
func (l *logs) awaitRoom() bool {
	a := l.j.a
	ok, unsent, changed := a.ledger.Room()
	if ok {
		return true
	}
	mode := a.cfg.Backpressure
	a.metrics.Pressed()
	if mode == BackpressureDrop {
		return false
	}
	a.metrics.Pausing.Add(1)
	defer a.metrics.Pausing.Add(-1)
	stall := time.NewTimer(stallLimit)
	defer stall.Stop()
	for {
		select {
		case <-changed:
		case <-stall.C:
			return false
		case <-l.j.ctx.Done():
			return true // the job ends; what it said last is still kept
		}
		before := unsent
		if ok, unsent, changed = a.ledger.Room(); ok {
			return true
		}
		if unsent < before {
			stall.Reset(stallLimit)
		}
	}
}

// flush sends what a stream holds.
func (l *logs) flush(step int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[step]; s != nil {
		l.flushLocked(step, s)
	}
}

func (l *logs) flushLocked(step int, s *stream) {
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
	key := ledger.Stream{Job: l.j.ref, Step: step}
	taken := l.j.a.ledger.Post(wire.LogChunk{MessageID: uuid.NewString(), RunID: l.j.ref.Run, JobID: l.j.ref.ID, StepIndex: step,
		Lines: lines, Timestamp: time.Now().UnixMilli()}, ledger.Entry{Keep: ledger.KeepAcked, Job: l.j.ref, Stream: &key})
	if taken {
		l.j.a.metrics.LogBytes.Add(int64(s.size - len(s.lines)))
		s.dropped = 0
	} else {
		s.dropped += int64(len(s.lines))
		l.j.a.metrics.Dropped.Add(int64(len(s.lines)))
	}
	s.lines, s.size = nil, 0
}

// streamed is how many bytes of the stream were accepted.
func (l *logs) streamed(step int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[step]; s != nil {
		return s.counted
	}
	return 0
}

// close sends the rest of all streams. Nothing is accepted afterwards.
func (l *logs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for step, s := range l.streams {
		l.flushLocked(step, s)
	}
}
