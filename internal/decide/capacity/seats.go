package capacity

import (
	"slices"

	"kici/internal/core/label"
)

// Seat is a connected agent and for how many more jobs it has room.
type Seat struct {
	label.Agent
	Free int
}

// Seats tells which waiting jobs the agents that are there can take, so that no agent is started for those. Jobs are
// asked about in the order in which they are given out; each takes a place from the next.
type Seats struct {
	agents []Seat
	// from is, by selector, the first agent worth a look: places only ever become fewer, so what did not do once never
	// will, and a thousand jobs of one selector look at every agent once.
	from map[string]int
}

// NewSeats makes the places of agents, in the order in which agents are preferred.
func NewSeats(agents []Seat) *Seats {
	return &Seats{agents: slices.Clone(agents), from: map[string]int{}}
}

// Take gives a place to a job and reports whether there was one. id is that of the job's selector.
func (s *Seats) Take(id string, selector label.Selector) bool {
	for i := s.from[id]; i < len(s.agents); i++ {
		s.from[id] = i
		if a := &s.agents[i]; a.Free > 0 && selector.Matches(a.Agent) {
			a.Free--
			return true
		}
	}
	s.from[id] = len(s.agents)
	return false
}
