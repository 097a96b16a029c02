package hub

import (
	"context"
	"sync"
)

// maxAside bounds what one connection has waiting beside its reader. The reader stops at it.
const maxAside = 64

// lanes run what may take long beside the reader of a connection: one after the other for each job, jobs side by side.
// A lane lives only while it has something to do.
type lanes struct {
	room chan struct{} // a place for each task that waits or runs
	mu   sync.Mutex
	of   map[string]*lane
}

// lane is the tasks of one job. Its fields are guarded by lanes.mu.
type lane struct {
	waiting []func()
	empty   chan struct{} // closed when the last task has run
}

func newLanes() lanes { return lanes{room: make(chan struct{}, maxAside), of: map[string]*lane{}} }

// aside runs a task beside the reader, after those of the same job. It waits while too many wait already. What an agent
// has asked is worked on even when it leaves at once; only the end of the hub cuts it short.
func (c *conn) aside(jobID string, task func(ctx context.Context)) {
	select {
	case c.lanes.room <- struct{}{}:
	case <-c.hub.ctx.Done():
		return
	}
	run := func() {
		defer func() { <-c.lanes.room }()
		ctx, cancel := c.applyContext()
		defer cancel()
		task(ctx)
	}
	l := &c.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	if on, ok := l.of[jobID]; ok {
		on.waiting = append(on.waiting, run)
		return
	}
	on := &lane{waiting: []func(){run}, empty: make(chan struct{})}
	l.of[jobID] = on
	c.hub.open.Go(func() { l.work(jobID, on) })
}

// work runs the tasks of a lane and ends with the last one.
func (l *lanes) work(jobID string, on *lane) {
	for {
		l.mu.Lock()
		if len(on.waiting) == 0 {
			delete(l.of, jobID)
			close(on.empty)
			l.mu.Unlock()
			return
		}
		next := on.waiting[0]
		on.waiting = on.waiting[1:]
		l.mu.Unlock()
		next()
	}
}

// awaitLane waits until everything has run that the agent asked for a job.
func (c *conn) awaitLane(ctx context.Context, jobID string) error {
	c.lanes.mu.Lock()
	on := c.lanes.of[jobID]
	c.lanes.mu.Unlock()
	if on == nil {
		return nil
	}
	select {
	case <-on.empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
