package agent

import (
	"context"
	"sync"
)

// Bounds of what waits for the server. Beyond the first, frames lie on disk; beyond the second, log lines wait with
// the step that writes them.
const (
	maxLedgerMemory = 16 << 20
	maxLedgerDisk   = 256 << 20
	maxUnsent       = 1 << 20 // while connected: more means that the connection is slower than the steps
	frameRoom       = 1 << 20 // no log chunk is larger
)

// keep says how long a frame stays in the ledger.
type keep int

const (
	// keepAnswered stays until the answer to it has come: a server that restarts has forgotten who waits.
	keepAnswered keep = iota
	// keepAcked stays until the server has acknowledged it; with a server that does not, until it was written.
	keepAcked
	// keepWritten stays until it was written to a registered connection.
	keepWritten
	// keepNot is dropped when the connection ends.
	keepNot
)

// jobRef names one job.
type jobRef struct{ run, job string }

// streamKey names one log.
type streamKey struct {
	jobRef
	step int
}

// entry is one frame on its way to the server.
type entry struct {
	id     string // message id, "" for frames that are never acknowledged
	keep   keep
	job    jobRef     // zero, or the job that it belongs to
	end    bool       // the job's terminal status
	stream *streamKey // of a log chunk
	size   int64

	raw  []byte // nil while it lies on disk
	spot *spot

	prev, next *entry
	queued     bool          // not yet taken by the present connection
	sent       bool          // written to the present connection
	gone       bool          // no longer in the ledger
	settled    chan struct{} // closed when it leaves the ledger; nil when nobody asks
}

// ledger holds the frames that the server may not have yet, in the order in which they came to be. One connection at a
// time takes them from it; a new connection begins at the front again.
type ledger struct {
	mu          sync.Mutex
	front, back *entry
	cursor      *entry // the next to send on the present connection; nil when all are sent
	byID        map[string]*entry
	streams     map[streamKey][]*entry // unacknowledged chunks, oldest first
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

func newLedger(dir string) *ledger {
	return &ledger{
		byID:    map[string]*entry{},
		streams: map[streamKey][]*entry{},
		spill:   spill{dir: dir},
		limit:   maxLedgerMemory,
		disk:    maxLedgerDisk,
		changed: make(chan struct{}),
	}
}

// add appends a frame. Frames that live for a connection only are dropped while there is none. add is false when the
// frame was not taken: there is no room, which concerns log chunks alone.
func (l *ledger) add(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.keep == keepNot && !l.online {
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
	if e.id != "" {
		l.byID[e.id] = e
	}
	if e.stream != nil {
		l.streams[*e.stream] = append(l.streams[*e.stream], e)
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
func (l *ledger) spillLocked(e *entry) bool {
	if l.spill.size+e.size <= l.disk {
		if spot, err := l.spill.put(e.raw); err == nil {
			e.spot, e.raw = spot, nil
			return true
		}
	}
	return e.stream == nil
}

// take waits for the next frame to send and gives its bytes.
func (l *ledger) take(ctx context.Context) (*entry, []byte, error) {
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

func (l *ledger) takeLocked(e *entry) ([]byte, error) {
	l.cursor = e.next
	e.queued = false
	l.unsent -= e.size
	if e.spot != nil {
		return e.spot.read()
	}
	return e.raw, nil
}

// wrote notes that the frame was written to the present connection.
func (l *ledger) wrote(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.gone { // the answer was faster than this note
		return
	}
	e.sent = true
	if e.keep >= keepWritten || e.keep == keepAcked && !l.acks {
		l.removeLocked(e)
	}
	l.tellLocked()
}

// ack removes the frame with that id, and with through all earlier chunks of its log that were sent on this
// connection. An answer to a request removes the request the same way.
func (l *ledger) ack(id string, through bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byID[id]
	if e == nil || e.keep == keepAnswered {
		return
	}
	if through && e.stream != nil {
		for _, earlier := range append([]*entry(nil), l.streams[*e.stream]...) {
			if earlier == e {
				break
			}
			if earlier.sent {
				l.removeLocked(earlier)
			}
		}
	}
	l.removeLocked(e)
	l.tellLocked()
}

// answered removes a request, whose answer has come or is no longer wanted.
func (l *ledger) answered(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byID[id]; e != nil {
		l.removeLocked(e)
		l.tellLocked()
	}
}

// release lets the frames of a job go once they have been written: the server has told that the job is not this
// agent's any more, and may never acknowledge them.
func (l *ledger) release(job jobRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.front; e != nil; {
		next := e.next
		if e.job == job && e.keep < keepWritten {
			e.keep = keepWritten
			if e.sent {
				l.removeLocked(e)
			}
		}
		e = next
	}
	l.tellLocked()
}

func (l *ledger) removeLocked(e *entry) {
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
	if e.id != "" {
		delete(l.byID, e.id)
	}
	if e.stream != nil {
		l.forgetChunkLocked(e)
	}
	if e.spot != nil {
		l.spill.drop(e.spot)
	} else {
		l.memory -= e.size
	}
	l.count--
	l.size -= e.size
	if e.settled != nil {
		close(e.settled)
		e.settled = nil
	}
}

func (l *ledger) forgetChunkLocked(e *entry) {
	chunks := l.streams[*e.stream]
	for i, c := range chunks {
		if c == e {
			chunks = append(chunks[:i], chunks[i+1:]...)
			break
		}
	}
	if len(chunks) == 0 {
		delete(l.streams, *e.stream)
	} else {
		l.streams[*e.stream] = chunks
	}
}

// connect begins a connection: everything is sent again, from the front. It returns how many frames wait.
func (l *ledger) connect(acks bool) int {
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

// disconnect ends it.
func (l *ledger) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.online = false
	for e := l.front; e != nil; {
		next := e.next
		if e.keep == keepNot {
			l.removeLocked(e)
		}
		e = next
	}
	l.tellLocked()
}

// tellLocked wakes whoever waits for a change.
func (l *ledger) tellLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// room tells whether log lines should be accepted now, how much waits to be sent, and what to wait for otherwise.
func (l *ledger) room() (ok bool, unsent int64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.memory > l.limit-frameRoom && l.spill.size > l.disk-frameRoom || l.online && l.unsent > maxUnsent
	return !full, l.unsent, l.changed
}

// openJobs lists the ended jobs whose terminal status the server may not have.
func (l *ledger) openJobs() (jobs []jobRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.front; e != nil; e = e.next {
		if e.end && e.keep < keepWritten {
			jobs = append(jobs, e.job)
		}
	}
	return jobs
}

// drained waits until nothing is left that must reach the server.
func (l *ledger) drained(ctx context.Context) bool {
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

// close deletes what lies on disk.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spill.close()
}
