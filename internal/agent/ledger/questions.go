package ledger

import (
	"errors"
	"sync"

	"kici/internal/core/wire"
)

// Questions are the requests that wait for the server's answer. Its zero value has none.
type Questions struct {
	mu    sync.Mutex
	waits map[string]*Question // by the id under which the server answers
}

// Question waits for one answer, or for several in the case of a concurrency group.
type Question struct {
	Job     Job  // of a question about a concurrency group
	Lasting bool // survives the end of the connection: the frame is sent again on the next
	Answer  func(wire.Message, error)
}

// Add registers a question; its answer function is called once for each answer, without a lock held.
func (p *Questions) Add(id string, q *Question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits == nil {
		p.waits = map[string]*Question{}
	}
	p.waits[id] = q
}

// Take removes a question and reports whether it was still open.
func (p *Questions) Take(id string) (*Question, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, ok := p.waits[id]
	delete(p.waits, id)
	return q, ok
}

// Answer gives the answer to the question that waits under the id, if there is one.
func (p *Questions) Answer(id string, m wire.Message) {
	if q, ok := p.Take(id); ok {
		q.Answer(m, nil)
	}
}

// Concurrency finds the question of an answer by its id, or by the job: servers wake a waiting job under a new id.
func (p *Questions) Concurrency(m wire.ConcurrencyAck) {
	p.mu.Lock()
	id := m.RequestID
	if _, ok := p.waits[id]; !ok && m.JobID != "" {
		for other, q := range p.waits {
			if q.Lasting && q.Job == (Job{Run: m.RunID, ID: m.JobID}) {
				id = other
			}
		}
	}
	q, ok := p.waits[id]
	if m.Action != wire.ConcurrencyWait {
		delete(p.waits, id)
	}
	p.mu.Unlock()
	if ok {
		m.RequestID = id
		q.Answer(m, nil)
	}
}

// Why a question has no answer.
var (
	ErrConnectionLost = errors.New("the connection to the server was lost")
	ErrNoAnswer       = errors.New("the server gave no answer in time")
)

// Lost fails the questions of an ended connection. Lasting ones go on when the server is one to which they are sent
// again; other servers have forgotten who asked.
func (p *Questions) Lost(resent bool) {
	p.mu.Lock()
	var failed []*Question
	for id, q := range p.waits {
		if q.Lasting && resent {
			continue
		}
		failed = append(failed, q)
		delete(p.waits, id)
	}
	p.mu.Unlock()
	for _, q := range failed {
		q.Answer(nil, ErrConnectionLost)
	}
}
