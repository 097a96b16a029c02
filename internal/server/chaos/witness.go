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
	agent   string                   // who registered
	chunks  map[string]wire.LogChunk // not acknowledged yet, by message id
	streams map[stepKey][]string     // their ids, in the order in which they were sent
	ends    map[string]wire.JobStatus
}

func (w *witness) listen() *conversation {
	return &conversation{w: w, chunks: map[string]wire.LogChunk{}, streams: map[stepKey][]string{}, ends: map[string]wire.JobStatus{}}
}

// agentSays takes a message of the agent.
func (c *conversation) agentSays(text []byte) {
	m, err := wire.DecodeFromAgent(text)
	if err != nil {
		return // the server judges it
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch m := m.(type) {
	case wire.AgentRegister:
		c.agent = m.AgentID
	case wire.LogChunk:
		key := stepKey{m.JobID, m.StepIndex}
		c.chunks[m.MessageID] = m
		c.streams[key] = append(c.streams[key], m.MessageID)
	case wire.JobStatus:
		if m.State.Terminal() {
			c.ends[m.MessageID] = m
		}
	}
}

// serverSays takes a message of the server.
func (c *conversation) serverSays(text []byte) {
	m, err := wire.DecodeFromServer(text)
	ack, ok := m.(wire.Ack)
	if err != nil || !ok {
		return
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	now := time.Now().UnixMilli()
	if end, ok := c.ends[ack.MessageID]; ok {
		c.w.acked.Ends = append(c.w.acked.Ends, ackedEnd{Job: end.JobID, Status: end.State, At: now})
	}
	chunk, ok := c.chunks[ack.MessageID]
	if !ok {
		return
	}
	if !ack.Through {
		c.ackedLocked(ack.MessageID, now)
		return
	}
	key := stepKey{chunk.JobID, chunk.StepIndex}
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
		c.w.acked.Lines = append(c.w.acked.Lines, ackedLine{stepKey: stepKey{chunk.JobID, chunk.StepIndex}, Agent: c.agent, Text: line, At: now})
	}
	delete(c.chunks, id)
}

// seen is everything that was acknowledged so far.
func (w *witness) seen() ackedFacts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}
