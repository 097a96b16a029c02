package hub

import (
	"context"
	"sync/atomic"
)

// maxResting bounds the goroutines that wait for another task.
const maxResting = 8

// crew does what a connection has to do for a moment. Its goroutines rest between two tasks instead of ending: the stack that
// storing what an agent says needs would have to grow anew for each. Ten thousand idle connections share the few that rest.
type crew struct {
	tasks   chan func() // to one who rests
	resting atomic.Int32
}

// work has a task done, which counts as open until it has ended.
func (h *Hub) work(task func()) {
	h.open.Add(1)
	select {
	case h.crew.tasks <- task:
	default:
		go h.crew.serve(h.ctx, h.open.Done, task)
	}
}

func (w *crew) serve(ctx context.Context, done, task func()) {
	for {
		task()
		done()
		if w.resting.Add(1) > maxResting {
			w.resting.Add(-1)
			return
		}
		select {
		case task = <-w.tasks:
			w.resting.Add(-1)
		case <-ctx.Done():
			return
		}
	}
}
