// Package ledger holds what an agent has to tell its server: the frames that the server may not have yet, and the questions
// that it has not answered. Both outlive a connection.
package ledger

import (
	"context"
	"log/slog"
	"sync"
)

// Bounds of what waits for the server. Beyond the first, frames lie on disk; beyond the second, log lines wait with
// the step that writes them.
const (
	maxMemory = 16 << 20
	maxDisk   = 256 << 20
	maxUnsent = 1 << 20 // while connected: more means that the connection is slower than the steps
	frameRoom = 1 << 20 // no log chunk is larger
)

// Keep says how long a frame stays in the ledger.
type Keep int

const (
	// KeepAnswered stays until the answer to it has come: a server that restarts has forgotten who waits.
	KeepAnswered Keep = iota
	// KeepAcked stays until the server has acknowledged it; with a server that does not, until it was written.
	KeepAcked
	// KeepWritten stays until it was written to a registered connection.
	KeepWritten
	// KeepNot is dropped when the connection ends.
	KeepNot
)

// Job names one job of a run.
type Job struct{ Run, ID string }

// Stream names the log of one step of a job.
type Stream struct {
	Job
	Step int
}

// Entry is one frame on its way to the server.
type Entry struct {
	ID     string // of the message, "" for frames that are never acknowledged; Post sets it
	Keep   Keep
	Job    Job     // zero, or the job that it belongs to
	End    bool    // the job's terminal status
	Stream *Stream // of a log chunk
	// Settled is closed when the frame leaves the ledger; nil when nobody asks.
	Settled chan struct{}

	size int64
	raw  []byte // nil while it lies on disk
	spot *spot

	prev, next *Entry
	queued     bool // not yet taken by the present connection
	sent       bool // written to the present connection
	gone       bool // no longer in the ledger
}

// Ledger holds the frames that the server may not have yet, in the order in which they came to be. One connection at a
// time takes them from it; a new connection begins at the front again.
type Ledger struct {
	log *slog.Logger

	mu          sync.Mutex
	front, back *Entry
	cursor      *Entry // the next to send on the present connection; nil when all are sent
	byID        map[string]*Entry
	streams     map[Stream][]*Entry // unacknowledged chunks, oldest first
	count       int
	size        int64 // of all frames
	memory      int64 // of those in memory
	unsent      int64 // of those from the cursor on
	online      bool
	acks        bool // the present server acknowledges
	spill       spill
	limit       int64         // of frames in memory
	disk        int64         // of frames on disk
	changed     chan struct{} // closed and replaced whenever something happens
}

// New makes a ledger whose backlog lies in files of the folder dir; "" is the system's.
func New(dir string, log *slog.Logger) *Ledger {
	return &Ledger{
		log:     log,
		byID:    map[string]*Entry{},
		streams: map[Stream][]*Entry{},
		spill:   spill{dir: dir},
		limit:   maxMemory,
		disk:    maxDisk,
		changed: make(chan struct{}),
	}
}

// add appends a frame. Frames that live for a connection only are dropped while there is none. add is false when the
// frame was not taken: there is no room, which concerns log chunks alone.
func (l *Ledger) add(e *Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Keep == KeepNot && !l.online {
		return false
	}
	e.size = int64(len(e.raw))
	if l.memory+e.size > l.limit && !l.spillLocked(e) {
		return false
	}
	if e.raw != nil {
		l.memory += e.size
	}
	e.prev = l.back
	if l.back != nil {
		l.back.next = e
	} else {
		l.front = e
	}
	l.back = e
	if e.ID != "" {
		l.byID[e.ID] = e
	}
	if e.Stream != nil {
		l.streams[*e.Stream] = append(l.streams[*e.Stream], e)
	}
	l.count++
	l.size += e.size
	if l.cursor == nil {
		l.cursor = e
	}
	e.queued = true
	l.unsent += e.size
	l.tellLocked()
	return true
}

// spillLocked moves a new frame to disk. When that fails, a log chunk is refused, and anything else stays in memory:
// states of jobs and steps are few and small, and must not be lost.
func (l *Ledger) spillLocked(e *Entry) bool {
	if l.spill.size+e.size <= l.disk {
		if spot, err := l.spill.put(e.raw); err == nil {
			e.spot, e.raw = spot, nil
			return true
		}
	}
	return e.Stream == nil
}

// Take waits for the next frame to send and gives its bytes.
func (l *Ledger) Take(ctx context.Context) (*Entry, []byte, error) {
	for {
		l.mu.Lock()
		e, changed := l.cursor, l.changed
		if e != nil {
			raw, err := l.takeLocked(e)
			l.mu.Unlock()
			return e, raw, err
		}
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (l *Ledger) takeLocked(e *Entry) ([]byte, error) {
	l.cursor = e.next
	e.queued = false
	l.unsent -= e.size
	if e.spot != nil {
		return e.spot.read()
	}
	return e.raw, nil
}

// Wrote notes that the frame was written to the present connection.
func (l *Ledger) Wrote(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.gone { // the answer was faster than this note
		return
	}
	e.sent = true
	if e.Keep >= KeepWritten || e.Keep == KeepAcked && !l.acks {
		l.removeLocked(e)
	}
	l.tellLocked()
}

// Ack removes the frame with that id, and with through all earlier chunks of its log that were sent on this
// connection. An answer to a request removes the request the same way.
func (l *Ledger) Ack(id string, through bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byID[id]
	if e == nil || e.Keep == KeepAnswered {
		return
	}
	if through && e.Stream != nil {
		for _, earlier := range append([]*Entry(nil), l.streams[*e.Stream]...) {
			if earlier == e {
				break
			}
			if earlier.sent {
				l.removeLocked(earlier)
			}
		}
	}
	if e.End {
		l.overLocked(e)
	}
	l.removeLocked(e)
	l.tellLocked()
}

// overLocked lets go of what a job said before its end. A server has taken all of that when it acknowledges the end: what it
// has not acknowledged by then it never will, be it that it could not store an archive or that it acknowledges no word of
// that kind. Log chunks have bounds of their own.
func (l *Ledger) overLocked(end *Entry) {
	for e := end.prev; e != nil; {
		before := e.prev
		if e.Job == end.Job && e.Keep == KeepAcked && e.Stream == nil && e.sent {
			l.removeLocked(e)
		}
		e = before
	}
}

// Answered removes a request, whose answer has come or is no longer wanted.
func (l *Ledger) Answered(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byID[id]; e != nil {
		l.removeLocked(e)
		l.tellLocked()
	}
}

// Release lets the frames of a job go once they have been written: the server has told that the job is not this
// agent's any more, and may never acknowledge them.
func (l *Ledger) Release(job Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.front; e != nil; {
		next := e.next
		if e.Job == job && e.Keep < KeepWritten {
			e.Keep = KeepWritten
			if e.sent {
				l.removeLocked(e)
			}
		}
		e = next
	}
	l.tellLocked()
}

func (l *Ledger) removeLocked(e *Entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.front = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.back = e.prev
	}
	e.gone = true
	if l.cursor == e {
		l.cursor = e.next
	}
	if e.queued {
		l.unsent -= e.size
	}
	if e.ID != "" {
		delete(l.byID, e.ID)
	}
	if e.Stream != nil {
		l.forgetChunkLocked(e)
	}
	if e.spot != nil {
		l.spill.drop(e.spot)
	} else {
		l.memory -= e.size
	}
	l.count--
	l.size -= e.size
	if e.Settled != nil {
		close(e.Settled)
		e.Settled = nil
	}
}

func (l *Ledger) forgetChunkLocked(e *Entry) {
	chunks := l.streams[*e.Stream]
	for i, c := range chunks {
		if c == e {
			chunks = append(chunks[:i], chunks[i+1:]...)
			break
		}
	}
	if len(chunks) == 0 {
		delete(l.streams, *e.Stream)
	} else {
		l.streams[*e.Stream] = chunks
	}
}

// Connect begins a connection: everything is sent again, from the front. It returns how many frames wait.
func (l *Ledger) Connect(acks bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.online, l.acks = true, acks
	l.cursor, l.unsent = l.front, l.size
	for e := l.front; e != nil; e = e.next {
		e.sent, e.queued = false, true
	}
	l.tellLocked()
	return l.count
}

// Disconnect ends it.
func (l *Ledger) Disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.online = false
	for e := l.front; e != nil; {
		next := e.next
		if e.Keep == KeepNot {
			l.removeLocked(e)
		}
		e = next
	}
	l.tellLocked()
}

// tellLocked wakes whoever waits for a change.
func (l *Ledger) tellLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Room tells whether log lines should be accepted now, how much waits to be sent, and what to wait for otherwise.
func (l *Ledger) Room() (ok bool, unsent int64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.memory > l.limit-frameRoom && l.spill.size > l.disk-frameRoom || l.online && l.unsent > maxUnsent
	return !full, l.unsent, l.changed
}

// OpenJobs lists the ended jobs whose terminal status the server may not have.
func (l *Ledger) OpenJobs() (jobs []Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.front; e != nil; e = e.next {
		if e.End && e.Keep < KeepWritten {
			jobs = append(jobs, e.Job)
		}
	}
	return jobs
}

// Drained waits until nothing is left that must reach the server.
func (l *Ledger) Drained(ctx context.Context) bool {
	for {
		l.mu.Lock()
		empty, changed := l.front == nil, l.changed
		l.mu.Unlock()
		if empty {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Told waits until every frame has been written and the server has the ends of all jobs. It reports false when ctx ends first.
func (l *Ledger) Told(ctx context.Context) bool {
	for {
		l.mu.Lock()
		told, changed := l.toldLocked(), l.changed
		l.mu.Unlock()
		if told {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (l *Ledger) toldLocked() bool {
	for e := l.front; e != nil; e = e.next {
		if e.End || !e.sent {
			return false
		}
	}
	return true
}

// Close deletes what lies on disk.
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spill.close()
}
