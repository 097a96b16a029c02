package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kici/internal/kit/service"
	"kici/internal/server/engine"
)

const (
	// restOfJob is how long a job is not offered here that could not be sent: what it needs was away a moment ago.
	restOfJob = 5 * time.Second
	// maxResting bounds the jobs that rest. With so many nothing is offered until some of them have rested: the trouble
	// is not that of one job.
	maxResting = 256
)

// unsent are the claims that came to nothing at this node, for a reason that may be over in a moment: a secret store that
// does not answer, or the database itself. Nobody has heard of them, so they are given back at no cost. It is kept in memory
// alone: what a node that dies leaves comes back by its ack deadline.
type unsent struct {
	owed    map[string]claim // by job; those that are still to be given back
	resting map[string]int64 // by job; until when it is not offered, epoch milliseconds
}

// claim is one giving out of a job.
type claim struct {
	agentID string
	at      int64 // epoch milliseconds
}

// note keeps that a claim has to be given back, and has the job rest.
func (u *unsent) note(o offer, at int64) {
	if u.owed == nil {
		u.owed, u.resting = map[string]claim{}, map[string]int64{}
	}
	u.owed[o.jobID] = claim{o.agent.ID, at}
	u.resting[o.jobID] = at + restOfJob.Milliseconds()
}

// wake ends the rest of jobs whose time is up, and counts the others.
func (u *unsent) wake(now int64) int {
	for job, until := range u.resting {
		if until <= now {
			delete(u.resting, job)
		}
	}
	return len(u.resting)
}

func (u *unsent) rests(jobID string) bool {
	_, ok := u.resting[jobID]
	return ok
}

// full tells that too many jobs rest for any to be offered.
func (u *unsent) full(clock service.Clock) bool {
	return len(u.resting) >= maxResting && u.wake(clock.Millis()) >= maxResting
}

// giveBack takes back the claims that came to nothing. Until that is stored nothing else is claimed, so there are no more of
// them than one claim takes.
func (d *Dispatcher) giveBack(ctx context.Context) error {
	for job, c := range d.unsent.owed {
		err := d.engine.Deferred(ctx, c.agentID, job, c.at)
		if err != nil && !errors.Is(err, engine.ErrNotOwner) { // a job that is gone is nobody's
			return fmt.Errorf("give job %s back: %w", job, err)
		}
		delete(d.unsent.owed, job)
	}
	return nil
}
