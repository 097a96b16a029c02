// Package scaler starts agents when none is free. So far it holds what the rest of the server asks of scalers and the
// loop that asks; a server without any starts no agents.
package scaler

import (
	"context"

	"kici/internal/core/label"
	"kici/internal/core/lockfile"
)

// Scaler starts agents.
type Scaler interface {
	// Request asks for an agent for one waiting job and answers at once. Asking again for a job whose agent is on its way
	// starts no second one.
	Request(ctx context.Context, r Request) Answer
	// Routable tells whether some pool could start an agent for the selector, whether or not it has room: see
	// capacity.Routable. It starts nothing.
	Routable(s label.Selector) bool
	// Spawned tells how the agent came to be; ok is false for one that no scaler started. The error is temporary.
	Spawned(ctx context.Context, agentID string) (s Spawn, ok bool, err error)
}

// Request is a job that waits for an agent. Patterns of its selector are not part of it: only exact labels choose a pool.
type Request struct {
	JobID, RunID string
	Org          string
	Labels       []string // exact labels that the agent must have
	Exclude      []string // exact labels that it must not have
	Resources    lockfile.Resources
}

// Action is what a scaler did about a request.
type Action string

// The actions. After all but Spawning the job waits on, and is offered again.
const (
	Spawning   Action = "spawning"    // an agent is on its way
	AtCapacity Action = "at-capacity" // a pool fits and has no room
	NoBackend  Action = "no-backend"  // no pool fits
	Failed     Action = "failed"      // trouble before anything was started
	Skipped    Action = "skipped"     // not tried, because the server drains for example
)

// Answer is what a scaler says to a request.
type Answer struct {
	Action  Action
	Backend string // of Spawning: container, bare-metal, …
	Known   bool   // of Spawning: the agent was on its way before
	Reason  string // of Failed the error, of Skipped why; a sentence for people, without secrets
}

// Spawn is how the server came to start an agent.
type Spawn struct {
	Scaler          string   // name of the pool
	Backend         string   // container, bare-metal, …
	MandatoryLabels []string // what a job must name to run on it
	PendingJob      bool     // a job bound to it will be dispatched now
}

// Ask asks a scaler, or says for a server without one (nil) that no pool fits.
func Ask(ctx context.Context, s Scaler, r Request) Answer {
	if s == nil {
		return Answer{Action: NoBackend}
	}
	return s.Request(ctx, r)
}

// Routable asks a scaler, which may be nil, whether a pool could serve the selector.
func Routable(s Scaler, selector label.Selector) bool { return s != nil && s.Routable(selector) }
