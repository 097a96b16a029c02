// Package live lets people look at a run while it goes on. For every run that somebody looks at it has one feed, which
// reads the database and the logs whenever it is woken, and otherwise once a second, and numbers what has changed. It
// holds nothing that cannot be read again: after a restart, or on another node, a viewer who comes back gets the whole
// picture and goes on from there.
package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"kici/internal/core/adminwire"
	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// The bounds of a room. Beyond the number of feeds, one that nobody looks at makes room.
const (
	maxViewers      = 1024
	maxViewersOfRun = 128
	maxFeeds        = 512
)

// ErrBusy says that too many look on already.
var ErrBusy = errors.New("too many viewers")

// Logs reads the logs of steps; see the store of logs. A limit of 0 asks for the total alone.
type Logs interface {
	Lines(ctx context.Context, path string, from int64, limit int) (lines []string, total, next int64, err error)
}

// Step names a step whose log is wanted.
type Step struct {
	RunID, JobID string
	Index        int
}

// Place is where the log of a step is read.
type Place struct {
	Log  Logs
	Away bool // some of it is with other nodes, which have to be asked and may not answer
}

// Deps are what a room needs.
type Deps struct {
	DB *store.DB
	// LogOf finds the log of a step. Other nodes are asked in the name of a viewer.
	LogOf func(ctx context.Context, s Step, caller string) (Place, error)
	Clock service.Clock
	Log   *slog.Logger
}

// Room has the feeds of this node.
type Room struct {
	Deps
	group *service.Group

	mu      sync.Mutex
	feeds   map[string]*feed // by run
	viewers int
}

// New makes a room. Stop ends it.
func New(d Deps) *Room {
	return &Room{Deps: d, group: service.NewGroup(context.Background(), d.Log), feeds: map[string]*feed{}}
}

// Stop ends every feed; their viewers are told.
func (r *Room) Stop() { r.group.Stop() }

// Changed wakes the feed of a run, if somebody looks at it. It never blocks.
func (r *Room) Changed(runID string) {
	r.mu.Lock()
	f := r.feeds[runID]
	r.mu.Unlock()
	if f != nil {
		f.poke.Wake()
	}
}

// Watch begins to look at a run that exists. lastID is the id of the last message that the viewer has seen, "" for none:
// what came after it follows where it is still kept, else the whole picture comes first. caller is the credential with which
// the viewer came: nodes that have lines of the run are asked with one of a viewer. The viewer must be closed.
func (r *Room) Watch(ctx context.Context, runID, lastID, caller string) (*Viewer, error) {
	f, err := r.enter(runID, caller)
	if err != nil {
		return nil, err
	}
	v := &Viewer{feed: f, caller: caller, wake: service.NewPoke(), gaps: map[stepKey]*adminwire.Observed{}}
	select {
	case <-f.ready:
		if err = f.join(v, lastID); err == nil {
			return v, nil
		}
	case <-f.ended:
		err = fmt.Errorf("look at run %s: %w", runID, service.ErrStopped)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	r.left()
	return nil, err
}

// enter counts a viewer in and gives the feed of its run.
func (r *Room) enter(runID, caller string) (*feed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.group.Context().Err() != nil {
		return nil, service.ErrStopped
	}
	if r.viewers >= maxViewers {
		return nil, fmt.Errorf("%w: %d on this node", ErrBusy, r.viewers)
	}
	f := r.feeds[runID]
	if f == nil {
		if len(r.feeds) >= maxFeeds && !r.evictLocked() {
			return nil, fmt.Errorf("%w: they look at %d runs", ErrBusy, len(r.feeds))
		}
		f = newFeed(r, runID, caller)
		r.feeds[runID] = f
		r.group.Go("live feed", f.run)
	}
	r.viewers++
	return f, nil
}

// evictLocked ends a feed that nobody looks at.
func (r *Room) evictLocked() bool {
	for id, f := range r.feeds {
		if f.idleFor() > 0 {
			f.stop()
			delete(r.feeds, id)
			return true
		}
	}
	return false
}

func (r *Room) left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.viewers--
}

// forget ends a feed.
func (r *Room) forget(f *feed) {
	r.mu.Lock()
	if r.feeds[f.runID] == f {
		delete(r.feeds, f.runID)
	}
	r.mu.Unlock()
	close(f.ended)
}
