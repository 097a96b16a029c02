package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/kit/service"
	"kici/internal/server/fleet"
	"kici/internal/server/report"
)

const (
	// countEvery is how often what has changed is counted.
	countEvery = 5 * time.Second
	// maxChanged bounds the runs that wait to be looked at. Beyond it some are counted when they change again.
	maxChanged = 50_000
	// maxCounted bounds the runs that are remembered as counted. One that changes after it was forgotten has ended long
	// ago, which tells that it was counted.
	maxCounted = 50_000
	// countedFor is how old the end of a run may be that is counted now.
	countedFor = 10 * time.Minute
)

// changedRuns are the runs that this node changed since they were looked at last. The engine tells after every commit,
// so what is counted of them is what the database has, each run at the node that ended it.
type changedRuns struct {
	mu      sync.Mutex
	waiting map[string]struct{}
	counted *lru.Cache[string, struct{}]
}

func newChangedRuns() *changedRuns {
	counted, err := lru.New[string, struct{}](maxCounted)
	if err != nil {
		panic(err) // the size is positive
	}
	return &changedRuns{waiting: map[string]struct{}{}, counted: counted}
}

// note takes a run down. It never blocks for long.
func (c *changedRuns) note(runID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) < maxChanged {
		c.waiting[runID] = struct{}{}
	}
}

func (c *changedRuns) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := slices.Collect(maps.Keys(c.waiting))
	clear(c.waiting)
	return taken
}

// count keeps the counters of runs and the gauges that need a look at the database.
func (s *Server) count(ctx context.Context) error {
	return service.Every(ctx, s.log, "counts", countEvery, nil, s.countOnce)
}

func (s *Server) countOnce(ctx context.Context) error {
	s.countLost()
	now := s.clock()
	ended, err := report.Ended(ctx, s.db.Read(), s.changed.take())
	if err != nil {
		return err
	}
	for _, run := range ended {
		late := now.Sub(time.UnixMilli(run.CompletedAt)) > countedFor
		if found, _ := s.changed.counted.ContainsOrAdd(run.RunID, struct{}{}); !found && !late {
			s.counters.countRun(run)
		}
	}
	stale, err := report.StaleRuns(ctx, s.db.Read(), now.Add(-s.settings.Engine.StaleAfter).UnixMilli())
	if err != nil {
		return err
	}
	s.counters.stale.Set(float64(stale))
	return s.countHosts(ctx)
}

// countHosts shows, at one node of several, how many of the hosts that should be there are not.
func (s *Server) countHosts(ctx context.Context) error {
	mine, err := s.acquire(ctx, hostWatch, 3*countEvery)
	if err != nil {
		return err
	}
	missing := 0
	if mine {
		if missing, err = fleet.Unreachable(ctx, s.db.Read()); err != nil {
			return err
		}
	}
	s.counters.unreachable.Set(float64(missing))
	return nil
}

// hostWatch is the lease of the node that shows the missing hosts.
const hostWatch = "host-watch"
