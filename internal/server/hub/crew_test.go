package hub

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

func TestCrewRestsInSmallNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := &Hub{ctx: ctx, crew: crew{tasks: make(chan func())}}
		for round := range 2 {
			release := make(chan struct{})
			var all sync.WaitGroup
			for range 3 * maxResting {
				all.Add(1)
				h.work(func() {
					all.Done()
					<-release
				})
			}
			all.Wait() // however many rest, none waits for another to end
			close(release)
			h.open.Wait()
			synctest.Wait()
			if n := h.crew.resting.Load(); n != maxResting {
				t.Errorf("round %d: %d rest", round, n)
			}
		}
		done := false
		h.work(func() { done = true })
		if h.open.Wait(); !done {
			t.Error("a task counted as done before it was")
		}
		stop() // and nobody is left, or the bubble does not end
	})
}
