package server

import (
	"context"
	"time"

	"kici/internal/kit/service"
)

// maintain runs a loop that looks after what the server keeps, and counts how its turns end, under the name that the loop has in
// the log.
func (s *Server) maintain(name string, run func(ctx context.Context) error) {
	s.counters.expect(name)
	s.loops.Go(name, func(ctx context.Context) error {
		return run(service.OnTurn(ctx, func(t service.Turn) { s.counters.countTurn(t, s.clock()) }))
	})
}

// The results of a turn.
const (
	turnWell   = "success"
	turnFailed = "failure"
)

// expect shows zeros for maintenance that has not had its first turn.
func (c *counters) expect(job string) {
	for _, result := range []string{turnWell, turnFailed} {
		c.turns.Add(0, job, result)
	}
	c.failedInARow.Set(0, job)
}

func (c *counters) countTurn(t service.Turn, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	result, last := turnWell, c.lastGood
	if t.Err != nil {
		result, last = turnFailed, c.lastBad
		c.inARow[t.Loop]++
	} else {
		c.inARow[t.Loop] = 0
	}
	c.turns.Inc(t.Loop, result)
	c.turn.Observe(t.Took.Seconds(), t.Loop)
	last.Set(float64(now.UnixMilli())/1000, t.Loop)
	c.failedInARow.Set(float64(c.inARow[t.Loop]), t.Loop)
}

// The states in which a connection to PostgreSQL may end by itself.
const (
	idleConnection = "idle-pool"
	usedConnection = "client"
)

// countLost takes over what the store has counted since the last time.
func (s *Server) countLost() {
	idle, used := s.db.Lost()
	s.counters.lost.Add(float64(idle), idleConnection)
	s.counters.lost.Add(float64(used), usedConnection)
}
