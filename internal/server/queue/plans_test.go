package queue_test

import (
	"errors"
	"strings"
	"testing"

	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// TestWhatHasEndedIsNotGoneThrough is about queries that are asked all the time, or while a server starts. Most rows of the
// queue are of jobs that have ended.
func TestWhatHasEndedIsNotGoneThrough(t *testing.T) {
	ctx := t.Context()
	scans := storetest.Scans(t, func(q store.Querier) {
		errs := []error{q.All(ctx, queue.AskDepth(9, new(int)), queue.AskLine("s", 1, 9, func(queue.Head) {}), queue.AskDemand(&queue.Demand{}))}
		also := func(_ any, err error) { errs = append(errs, err) }
		also(queue.UnansweredSince(ctx, q, 1, 9))
		also(queue.UnrecoveredSince(ctx, q, 1, 9))
		also(queue.ExpiredSince(ctx, q, 1, 9))
		also(queue.FirstExpiry(ctx, q))
		also(queue.OfAgent(ctx, q, "a"))
		also(queue.DispatchedBy(ctx, q, "n"))
		also(queue.Dispatched(ctx, q, "n"))
		also(queue.Held(ctx, q))
		also(queue.Heads(ctx, q))
		also(queue.WaitingBySelector(ctx, q))
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
	for _, scan := range scans {
		live := strings.HasSuffix(scan, " dispatch_queue_agents") || strings.HasSuffix(scan, " dispatch_queue_heads")
		if ofThat := scan == "SCAN s" || scan == "SCAN p" || scan == "SCAN f"; !live && !ofThat {
			t.Errorf("%s", scan)
		}
	}
}
