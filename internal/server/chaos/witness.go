package chaos

import (
	"sync"
	"time"

	"kici/internal/core/wire"
)

// witness reads along between agents and servers and notes what was acknowledged. A server that has sent an
// acknowledgement is held to it, whether or not it arrives.
type witness struct {
	mu    sync.Mutex
	acked ackedFacts
}

// conversation is what the witness knows of one connection.
type conversation struct {
	w       *witness
	agent   string               // who registered
	chunks  map[string]sentChunk // not acknowledged yet, by message id
	streams map[stepKey][]string // their ids, in the order in which they were sent
	ends    map[string]wire.JobStatus
	answers map[string]bool // ids of answers to dispatches
}

// sentChunk is a chunk of a log and when it was sent.
type sentChunk struct {
	wire.LogChunk
	at int64
}

func (w *witness) listen() *conversation {
	return &conversation{w: w, chunks: map[string]sentChunk{}, streams: map[stepKey][]string{}, ends: map[string]wire.JobStatus{},
		answers: map[string]bool{}}
}

// The frames at which a line can be cut, beyond those that are named by their type.
const (
	frameRunning    = "job.status running"
	frameEnd        = "job.status end"
	frameAckOfEnd   = "ack of job.status end"
	frameAckOfJob   = "ack of job.ack"
	frameAckOfChunk = "ack of log.chunk"
)

// agentSays takes a message of the agent and names it.
func (c *conversation) agentSays(text []byte) (frame string) {
	m, err := wire.DecodeFromAgent(text)
	if err != nil {
		return "" // the server judges it
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch m := m.(type) {
	case wire.AgentRegister:
		c.agent = m.AgentID
	case wire.JobAck:
		c.answers[m.MessageID] = true
	case wire.LogChunk:
		key := stepKey{m.JobID, m.StepIndex}
		c.chunks[m.MessageID] = sentChunk{m, time.Now().UnixMilli()}
		c.streams[key] = append(c.streams[key], m.MessageID)
	case wire.JobStatus:
		if !m.State.Terminal() {
			return frameRunning
		}
		c.ends[m.MessageID] = m
		return frameEnd
	}
	return m.MessageType()
}

// serverSays takes a message of the server and names it.
func (c *conversation) serverSays(text []byte) (frame string) {
	m, err := wire.DecodeFromServer(text)
	if err != nil {
		return "" // the agent judges it
	}
	ack, ok := m.(wire.Ack)
	if !ok {
		return m.MessageType()
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	now := time.Now().UnixMilli()
	if end, ok := c.ends[ack.MessageID]; ok {
		c.w.acked.Ends = append(c.w.acked.Ends, ackedEnd{Job: end.JobID, Agent: c.agent, Status: end.State, At: now})
		return frameAckOfEnd
	}
	if chunk, ok := c.chunks[ack.MessageID]; ok {
		c.chunkAckedLocked(ack, stepKey{chunk.JobID, chunk.StepIndex}, now)
		return frameAckOfChunk
	}
	if c.answers[ack.MessageID] {
		return frameAckOfJob
	}
	return m.MessageType()
}

// chunkAckedLocked notes the lines of a chunk, and of those before it that the acknowledgement stands for as well.
func (c *conversation) chunkAckedLocked(ack wire.Ack, key stepKey, now int64) {
	if !ack.Through {
		c.ackedLocked(ack.MessageID, now)
		return
	}
	for i, id := range c.streams[key] {
		c.ackedLocked(id, now)
		if id == ack.MessageID {
			c.streams[key] = c.streams[key][i+1:]
			return
		}
	}
}

func (c *conversation) ackedLocked(id string, now int64) {
	chunk := c.chunks[id]
	for _, line := range chunk.Lines {
		c.w.acked.Lines = append(c.w.acked.Lines, ackedLine{stepKey: stepKey{chunk.JobID, chunk.StepIndex}, Agent: c.agent, Text: line, Sent: chunk.at, At: now})
	}
	delete(c.chunks, id)
}

// seen is everything that was acknowledged so far.
func (w *witness) seen() ackedFacts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}
