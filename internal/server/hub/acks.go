package hub

import (
	"sync"
	"time"

	"kici/internal/core/wire"
)

// Consecutive chunks of one stream are acknowledged together: after so many, or so long after the first.
const (
	maxAckBatch = 64
	ackDelay    = 20 * time.Millisecond
)

// acks collects the acknowledgements of log chunks. It is on only for agents with frame-ack.
type acks struct {
	mu      sync.Mutex
	pending int // chunks since the last acknowledgement
	last    wire.LogChunk
	timer   *time.Timer
}

// acknowledge confirms a frame whose effect has been committed.
func (c *conn) acknowledge(messageID string) {
	if !c.has(wire.FeatureFrameAck) {
		return
	}
	c.flushAcks() // acknowledgements come in the order in which the frames were applied
	c.answer(wire.Ack{MessageID: messageID})
}

// acknowledgeChunk confirms a stored log chunk, together with its neighbours.
func (c *conn) acknowledgeChunk(m wire.LogChunk) {
	if !c.has(wire.FeatureFrameAck) {
		return
	}
	a := &c.acks
	a.mu.Lock()
	if a.pending > 0 && !sameStream(a.last, m) {
		c.flushAcksLocked()
	}
	a.pending++
	m.Lines = nil // they are stored; only the names of the chunk are needed
	a.last = m
	full := a.pending >= maxAckBatch
	if full {
		c.flushAcksLocked()
	} else if a.timer == nil {
		a.timer = time.AfterFunc(ackDelay, c.flushAcks)
	} else if a.pending == 1 {
		a.timer.Reset(ackDelay)
	}
	a.mu.Unlock()
}

func sameStream(a, b wire.LogChunk) bool {
	return a.RunID == b.RunID && a.JobID == b.JobID && a.StepIndex == b.StepIndex
}

func (c *conn) flushAcks() {
	c.acks.mu.Lock()
	defer c.acks.mu.Unlock()
	c.flushAcksLocked()
}

func (c *conn) flushAcksLocked() {
	a := &c.acks
	if a.pending == 0 {
		return
	}
	c.answer(wire.Ack{MessageID: a.last.MessageID, Through: a.pending > 1})
	a.pending, a.last = 0, wire.LogChunk{}
}

// stop ends the timer. An acknowledgement that it would have sent is not owed: the connection has ended.
func (a *acks) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = 0
	if a.timer != nil {
		a.timer.Stop()
	}
}
