// Package service holds what owns a goroutine: loops that start, can be asked to stop, and are waited for; and pokes,
// the wake-ups between them.
package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// ErrStopped is the cause with which a loop's context ends when its owner stops it.
var ErrStopped = errors.New("service stopped")

// Poke is a wake-up of size one: it carries no data and never blocks. The receiver reads the truth again.
type Poke chan struct{}

// NewPoke makes a poke.
func NewPoke() Poke { return make(Poke, 1) }

// Wake wakes the receiver, or does nothing when it is already due to wake.
func (p Poke) Wake() {
	select {
	case p <- struct{}{}:
	default:
	}
}

// Group owns loops. Stop ends them all and returns when the last has ended.
type Group struct {
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// NewGroup makes a group whose loops end when parent ends or Stop is called.
func NewGroup(parent context.Context, log *slog.Logger) *Group {
	ctx, cancel := context.WithCancelCause(parent)
	return &Group{log: log, ctx: ctx, cancel: cancel}
}

// Context ends with the group.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs a loop. A loop that returns an error before it was stopped is logged and started again after a pause that
// doubles from 100 ms to 10 s, since a server must outlive a bad moment of its database; one that returns nil is done.
func (g *Group) Go(name string, run func(ctx context.Context) error) {
	g.wg.Go(func() {
		pause := 100 * time.Millisecond
		for {
			err := run(g.ctx)
			if g.ctx.Err() != nil || err == nil {
				return
			}
			g.log.Error("loop failed, starting it again", "loop", name, "err", err, "pause", pause)
			if !Sleep(g.ctx, pause) {
				return
			}
			pause = min(2*pause, 10*time.Second)
		}
	})
}

// Stop ends the loops and waits for them. It may be called more than once.
func (g *Group) Stop() {
	g.cancel(ErrStopped)
	g.wg.Wait()
}

// Sleep waits and reports whether the time passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Turn is one call of what a loop does.
type Turn struct {
	Loop string
	Took time.Duration
	Err  error
}

type turnKey struct{}

// OnTurn gives a context whose loops, those that Every runs, tell of each turn. One that was cut short is not told of.
func OnTurn(ctx context.Context, tell func(Turn)) context.Context {
	return context.WithValue(ctx, turnKey{}, tell)
}

// Every calls do at once when poked and otherwise once a period, until ctx ends. An error of do is logged: the next
// turn tries again. A nil poke leaves the period alone.
func Every(ctx context.Context, log *slog.Logger, name string, period time.Duration, poke Poke, do func(context.Context) error) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		began := time.Now()
		err := do(ctx)
		if err != nil && ctx.Err() == nil {
			log.Error("turn failed, the next one tries again", "loop", name, "err", err)
		}
		if told, ok := ctx.Value(turnKey{}).(func(Turn)); ok && ctx.Err() == nil {
			told(Turn{Loop: name, Took: time.Since(began), Err: err})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poke:
		case <-tick.C:
		}
	}
}
