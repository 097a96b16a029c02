package hub

import (
	"slices"
	"sync"
	"time"

	"kici/internal/core/wire"
	"kici/internal/kit/service"
)

// Bounds of what is read of one connection ahead of what is applied. The reader stops at them; what the agent sends
// meanwhile waits in the network.
const (
	maxBacklog      = 64
	maxBacklogBytes = 1 << 20
)

// backlog are the frames of a connection that wait to be applied while its reader goes on, in their order but for stretch. What
// an agent says of a job in a row is applied in one transaction, and under load that is most of what it says. Whoever applies them
// is there only while there are some: most connections have none.
type backlog struct {
	mu     sync.Mutex
	change *sync.Cond // there is more room, or nobody works
	frames []wire.Message
	bytes  int   // of frames
	works  bool  // somebody applies
	ended  error // why nothing more is applied
}

// enqueue leaves a frame to whoever applies them, and waits while too many wait already. The error is the one with which
// applying ended.
func (c *conn) enqueue(m wire.Message, size int) error {
	b := &c.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.ended == nil && len(b.frames) > 0 && (len(b.frames) >= maxBacklog || b.bytes+size > maxBacklogBytes) {
		b.change.Wait()
	}
	if b.ended != nil {
		return b.ended
	}
	b.frames = append(b.frames, m)
	b.bytes += size
	if !b.works {
		b.works = true
		c.hub.work(c.applyAll)
	}
	return nil
}

// applied waits until everything that was read has been applied, or nothing more is.
func (c *conn) applied() error {
	b := &c.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.works {
		b.change.Wait()
	}
	return b.ended
}

// pinged lets a ping be answered in its turn, when everything that came before it has been applied.
func (c *conn) pinged() (answer bool) {
	c.busy.Store(true)
	_ = c.applied()
	c.hear()
	c.busy.Store(false)
	return true
}

// applyAll applies what waits, until nothing does.
func (c *conn) applyAll() {
	b := &c.backlog
	var err error
	for {
		frames := b.next(err)
		if len(frames) == 0 {
			return
		}
		if c.mayWait(frames) {
			service.Sleep(c.hub.ctx, answerRest)
			frames = append(frames, b.also()...)
		}
		err = c.applyInOrder(frames)
	}
}

// answerRest is how long the answer to a dispatch waits for what its agent says next. Agents say much within a moment, where their
// job is a small one, and all of it is then one transaction.
const answerRest = time.Millisecond

// mayWait tells of an answer to a dispatch alone. Nobody waits for it but agents with start-fence, which begin no sooner.
func (c *conn) mayWait(frames []wire.Message) bool {
	return len(frames) == 1 && answers(frames) && !c.has(wire.FeatureStartFence)
}

// also takes what has come since, unless nothing more is to be applied.
func (b *backlog) also() []wire.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	frames := b.frames
	b.frames, b.bytes = nil, 0
	b.change.Broadcast()
	return frames
}

// next takes what is to be applied now, after how it went before. Nothing means that nobody applies any more.
func (b *backlog) next(err error) []wire.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended == nil {
		b.ended = err
	}
	frames := b.frames
	if b.ended != nil {
		frames = nil
	}
	b.frames, b.bytes = nil, 0
	b.works = len(frames) > 0
	b.change.Broadcast()
	return frames
}

// supersede lets go of what waits: the agent has a newer connection, on which it goes on with what it says.
func (b *backlog) supersede() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frames, b.bytes, b.ended = nil, 0, errClosed
	b.change.Broadcast()
}

// applyInOrder applies also what was read of a connection that is being closed: not every agent sends it again.
func (c *conn) applyInOrder(frames []wire.Message) error {
	for len(frames) > 0 {
		chunks, words, rest := stretch(frames)
		frames = rest
		if c.withLog(chunks, words) {
			continue
		}
		for _, chunk := range chunks {
			if err := c.applyOne(chunk); err != nil {
				return err
			}
		}
		if err := c.apply(words...); err != nil {
			return err
		}
	}
	return nil
}

// stretch are the first frames that are applied together: what is said of the state of one job and of its steps in a row, up
// to the end of the job. What their log says in between is applied before them, so that it does not keep them apart: lines
// are worth the same whatever became of their step. Any other frame stands alone.
func stretch(frames []wire.Message) (chunks, words, rest []wire.Message) {
	var job string
	for n, m := range frames {
		chunk, said := m.(wire.LogChunk)
		about, last := jobOfWord(m)
		if said {
			about = chunk.JobID
		}
		switch {
		case n == 0 && about == "":
			return nil, frames[:1], frames[1:]
		case n == 0:
			job = about
		case about != job:
			return chunks, words, frames[n:]
		}
		if said {
			chunks = append(chunks, m)
		} else {
			words = append(words, m)
		}
		if last {
			return chunks, words, frames[n+1:]
		}
	}
	return chunks, words, nil
}

// jobOfWord is the job of whose dispatch, state or steps a frame tells, "" for another frame; last tells that it is the job's end.
func jobOfWord(m wire.Message) (jobID string, last bool) {
	switch m := m.(type) {
	case wire.JobStatus:
		return m.JobID, m.State.Terminal()
	case wire.StepStatus:
		return m.JobID, false
	case wire.JobAck:
		return m.JobID, false
	}
	return "", false
}

// answers tells whether the answer to a dispatch is among words about a job.
func answers(words []wire.Message) bool {
	return slices.ContainsFunc(words, func(m wire.Message) bool {
		_, ok := m.(wire.JobAck)
		return ok
	})
}

// ends tells whether the end of a job is among words about it.
func ends(words []wire.Message) bool {
	_, last := jobOfWord(words[len(words)-1])
	return last
}
