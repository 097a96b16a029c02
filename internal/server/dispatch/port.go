// Package dispatch gives pending jobs to free agents: one loop a node, which claims a row in the database before the
// frame leaves, so that two agents never hold one job.
package dispatch

import (
	"context"

	"kici/internal/core/label"
	"kici/internal/core/wire"
)

// Agent is one agent connected to this node, as the dispatcher sees it.
type Agent struct {
	label.Agent
	ConnectionID   string
	Platform, Arch string // in Node's words: linux, x64
	MaxConcurrency int    // jobs it runs at a time, at least 1
	// KnowsUnroutable tells that the agent understands the status unroutable among upstream statuses; others would drop
	// the whole dispatch for it and are told timed_out_stale.
	KnowsUnroutable bool
}

// Hub is what the dispatcher needs of the agent connections.
type Hub interface {
	// Ready lists, in the order of names, the agents that may be offered work: registered, not draining, not held off
	// after a refusal. Whether one has room is the queue's to say.
	Ready() []Agent
	// Takes tells whether that connection may still be offered work. An agent that gives a job back is held off before the
	// queue shows the job as pending, so who has read the queue and asks then does not offer it the job that it still ends.
	Takes(connectionID string) bool
	// Active is the number of jobs that the agents connected here said they have.
	Active() int
	// Dispatch writes the frame to that connection. An error means that the connection is gone; its loss is handled as
	// any other.
	Dispatch(ctx context.Context, connectionID, jobName string, frame wire.JobDispatch) error
}
