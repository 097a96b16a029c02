package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/service"
	"kici/internal/server/inbox"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// clock is a time that tests move.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(1_700_000_000_000)
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func delivery(key string) inbox.Delivery {
	return inbox.Delivery{ID: inbox.DeliveryID("generic:o:s", key), OrgID: "o", RoutingKey: "generic:o:s", SourceID: "s", Provider: "local",
		Event: "push", Headers: map[string]string{"content-type": "application/json"}, Payload: []byte("{\"a\":\x00}"),
		RequestID: "r", Key: key, Window: 5 * time.Minute}
}

func open(db *store.DB, c *clock, o inbox.Options) *inbox.Inbox {
	if o.NodeID == "" {
		o.NodeID = "n1"
	}
	return inbox.New(db, c.now, nil, o)
}

func accept(t *testing.T, in *inbox.Inbox, d inbox.Delivery, want inbox.Outcome) {
	t.Helper()
	if got, err := in.Accept(t.Context(), d); err != nil || got != want {
		t.Fatalf("accept %s: %v, %v; want %v", d.ID, got, err, want)
	}
}

func next(t *testing.T, in *inbox.Inbox) (inbox.Delivery, inbox.Work) {
	t.Helper()
	w, ok, err := in.Next(t.Context())
	if err != nil || !ok {
		t.Fatalf("next: %v, %v; want a delivery", ok, err)
	}
	return w.Delivery, w
}

func none(t *testing.T, in *inbox.Inbox) {
	t.Helper()
	if w, ok, err := in.Next(t.Context()); err != nil || ok {
		t.Fatalf("next: %s, %v; want none", w.Delivery.ID, err)
	}
}

func finish(t *testing.T, db *store.DB, in *inbox.Inbox, w inbox.Work, r inbox.Result) error {
	t.Helper()
	return in.Record(w, &r, func(also func(ctx context.Context, tx *store.Tx) error) error { return db.Write(t.Context(), also) })
}

// logged is the event log's row as far as tests look at it.
func logged(t *testing.T, db *store.DB, id string) (status string, matched int, errorMessage string) {
	t.Helper()
	err := db.Read().QueryRowContext(t.Context(), "SELECT status, matched_count, COALESCE(error_message, '') FROM event_log WHERE delivery_id = $1", id).
		Scan(&status, &matched, &errorMessage)
	if err != nil {
		t.Fatal(err)
	}
	return status, matched, errorMessage
}

func wantStatus(t *testing.T, db *store.DB, id, want string) {
	t.Helper()
	if got, _, _ := logged(t, db, id); got != want {
		t.Errorf("event log says %s, want %s", got, want)
	}
}

func TestAcceptedDeliveryIsProcessedOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		poke := service.NewPoke()
		in := inbox.New(db, c.now, poke, inbox.Options{NodeID: "n1"})
		sent := delivery("k")
		accept(t, in, sent, inbox.Accepted)
		select {
		case <-poke:
		default:
			t.Error("nobody was woken")
		}
		wantStatus(t, db, sent.ID, inbox.StatusReceived)
		got, work := next(t, in)
		want := sent
		want.ReceivedAt, want.Provider, want.Key, want.Window = c.ms.Load(), "", "", 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-sent +processed):\n%s", diff)
		}
		none(t, in) // it is leased
		if err := finish(t, db, in, work, inbox.Result{Status: inbox.StatusProcessed, Matched: 2, RunID: "run", Repo: "a/b", Ref: "main"}); err != nil {
			t.Fatal(err)
		}
		none(t, in)
		if status, matched, _ := logged(t, db, sent.ID); status != inbox.StatusProcessed || matched != 2 {
			t.Errorf("event log says %s, %d", status, matched)
		}
		// A duplicate changes nothing of what is known.
		accept(t, in, sent, inbox.Duplicate)
		none(t, in)
		wantStatus(t, db, sent.ID, inbox.StatusProcessed)
	})
}

func TestConcurrentRedeliveriesClaimOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		in := open(db, newClock(), inbox.Options{})
		var accepted, duplicates atomic.Int32
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				switch outcome, err := in.Accept(t.Context(), delivery("k")); {
				case err != nil:
					t.Error(err)
				case outcome == inbox.Accepted:
					accepted.Add(1)
				default:
					duplicates.Add(1)
				}
			})
		}
		wg.Wait()
		if accepted.Load() != 1 || duplicates.Load() != 11 {
			t.Errorf("%d accepted, %d duplicates", accepted.Load(), duplicates.Load())
		}
	})
}

func TestWorkersOfTwoNodesNeverShareADelivery(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		const deliveries = 40
		in := open(db, c, inbox.Options{})
		for i := range deliveries {
			accept(t, in, delivery(fmt.Sprint(i)), inbox.Accepted)
		}
		var mu sync.Mutex
		taken := map[string]int{}
		var wg sync.WaitGroup
		for worker := range 4 {
			node := open(db, c, inbox.Options{NodeID: fmt.Sprint("n", worker%2)})
			wg.Go(func() {
				for {
					w, ok, err := node.Next(t.Context())
					if err != nil {
						t.Error(err)
					}
					if !ok || err != nil {
						return
					}
					mu.Lock()
					taken[w.Delivery.ID]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for id, n := range taken {
			if n != 1 {
				t.Errorf("%s was taken %d times", id, n)
			}
		}
		if len(taken) != deliveries {
			t.Errorf("%d were taken, want %d", len(taken), deliveries)
		}
	})
}

func TestLeaseRunsOutAndIsFenced(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in := open(db, c, inbox.Options{LeaseTime: time.Minute})
		d := delivery("k")
		accept(t, in, d, inbox.Accepted)
		_, first := next(t, in)
		c.advance(59 * time.Second)
		none(t, in)
		c.advance(time.Second)
		_, second := next(t, in)
		if first.Lease.Attempt != 1 || second.Lease.Attempt != 2 {
			t.Errorf("attempts %d and %d", first.Lease.Attempt, second.Lease.Attempt)
		}
		if err := finish(t, db, in, first, inbox.Result{Status: inbox.StatusFailed}); !errors.Is(err, inbox.ErrLeaseLost) {
			t.Errorf("a lost lease finished: %v", err)
		}
		wantStatus(t, db, d.ID, inbox.StatusReceived)
		if err := finish(t, db, in, second, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
			t.Error(err)
		}
	})
}

func TestRestartedNodeTakesUpItsDeliveriesAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in := open(db, c, inbox.Options{NodeID: "n1"})
		accept(t, in, delivery("k"), inbox.Accepted)
		next(t, in)
		again := open(db, c, inbox.Options{NodeID: "n1"})
		if err := again.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		next(t, again)
		other := open(db, c, inbox.Options{NodeID: "n2"})
		if err := other.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, ok, err := other.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// A file of SQLite has one process; on PostgreSQL the other node may be alive.
		if ok != (db.Dialect == store.SQLite) {
			t.Errorf("another node took it up: %v", ok)
		}
	})
}

func TestFailuresAreTriedAgainWithPausesAndGivenUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in := open(db, c, inbox.Options{MaxAttempts: 3})
		d := delivery("k")
		accept(t, in, d, inbox.Accepted)
		for _, pause := range []time.Duration{time.Second, 2 * time.Second} {
			_, work := next(t, in)
			if err := in.Retry(t.Context(), work, inbox.Result{Error: "git is away"}); err != nil {
				t.Fatal(err)
			}
			if status, _, message := logged(t, db, d.ID); status != inbox.StatusReceived || message != "git is away" {
				t.Errorf("event log says %s, %q", status, message)
			}
			c.advance(pause - time.Millisecond)
			none(t, in)
			c.advance(time.Millisecond)
		}
		_, work := next(t, in)
		if err := in.Retry(t.Context(), work, inbox.Result{Error: "git is away"}); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Hour)
		none(t, in)
		wantStatus(t, db, d.ID, inbox.StatusFailed)
		// Nothing was started, so the sender may send it again, key and all, and the run ids would be the same.
		if seen, err := in.Seen(t.Context(), d.SourceID, d.Key); err != nil || seen {
			t.Errorf("key seen %v, %v", seen, err)
		}
		accept(t, in, d, inbox.Accepted)
		wantStatus(t, db, d.ID, inbox.StatusReceived)
		again, work := next(t, in)
		if work.Lease.Attempt != 1 || again.ReceivedAt != newClock().ms.Load() {
			t.Errorf("attempt %d, received at %d", work.Lease.Attempt, again.ReceivedAt)
		}
	})
}

func TestFailureAfterTheFirstRunKeepsTheClaim(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		in := open(db, newClock(), inbox.Options{})
		d := delivery("k")
		accept(t, in, d, inbox.Accepted)
		_, work := next(t, in)
		if err := in.GiveUp(t.Context(), work, inbox.Result{RunID: "run", Error: "x"}); err != nil {
			t.Fatal(err)
		}
		accept(t, in, d, inbox.Duplicate)
		wantStatus(t, db, d.ID, inbox.StatusFailed)
	})
}

func TestDeliveryThatKillsItsWorkerIsGivenUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in := open(db, c, inbox.Options{MaxAttempts: 2})
		poison, good := delivery("poison"), delivery("good")
		accept(t, in, poison, inbox.Accepted)
		for range 2 {
			next(t, in) // and the worker dies
			c.advance(time.Hour)
		}
		accept(t, in, good, inbox.Accepted)
		if d, _ := next(t, in); d.ID != good.ID {
			t.Errorf("got %s", d.ID)
		}
		if status, _, message := logged(t, db, poison.ID); status != inbox.StatusFailed || message != "given up after 2 attempts that did not end" {
			t.Errorf("event log says %s, %q", status, message)
		}
	})
}

func TestReturnedDeliveryCostsNoAttempt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		in := open(db, newClock(), inbox.Options{})
		accept(t, in, delivery("k"), inbox.Accepted)
		_, work := next(t, in)
		if err := in.Return(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		if _, work := next(t, in); work.Lease.Attempt != 1 {
			t.Errorf("attempt %d", work.Lease.Attempt)
		}
	})
}

func TestExpiredClaimIsPurgedOrClaimedAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in := open(db, c, inbox.Options{DedupTTL: time.Hour})
		done, waiting := delivery("done"), delivery("waiting")
		accept(t, in, done, inbox.Accepted)
		_, work := next(t, in)
		if err := finish(t, db, in, work, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
			t.Fatal(err)
		}
		accept(t, in, waiting, inbox.Accepted)
		c.advance(time.Hour)
		accept(t, in, done, inbox.Accepted)
		accept(t, in, waiting, inbox.Duplicate) // it is still this server's duty
		if got, _ := next(t, in); got.ID != waiting.ID {
			t.Errorf("first of the queue is %s", got.ID)
		}
		again, work := next(t, in)
		if again.ID != done.ID || again.ReceivedAt != c.ms.Load() {
			t.Errorf("%s received at %d: a claim made again is another delivery", again.ID, again.ReceivedAt)
		}
		if err := finish(t, db, in, work, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Hour)
		// The two keys and the claim that is done go; the claim of what still waits stays.
		if n, err := in.Purge(t.Context(), 100); err != nil || n != 3 {
			t.Errorf("purged %d, %v; want 3", n, err)
		}
		c.advance(30*24*time.Hour - 2*time.Hour - time.Millisecond)
		if n, err := in.Purge(t.Context(), 100); err != nil || n != 0 {
			t.Errorf("purged %d, %v; want nothing of the event log yet", n, err)
		}
		c.advance(time.Millisecond) // the log keeps what waits, too
		if n, err := in.Purge(t.Context(), 100); err != nil || n != 1 {
			t.Errorf("purged %d, %v; want the row of what was done", n, err)
		}
	})
}

func TestAPayloadIsWrittenOnce(t *testing.T) {
	db := storetest.SQLite(t)
	in := open(db, newClock(), inbox.Options{})
	d := delivery("k")
	d.Payload = bytes.Repeat([]byte("pages"), 20_000)
	accept(t, in, d, inbox.Accepted)
	var path string
	if err := db.Read().QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list").Scan(&path); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	_, work := next(t, in)
	if err := finish(t, db, in, work, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
		t.Fatal(err)
	}
	if written := size() - before; written > int64(len(d.Payload))/4 {
		t.Errorf("%d bytes were written", written)
	}
}

func TestBacklogIsBounded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		in := open(db, newClock(), inbox.Options{MaxWaiting: 2})
		accept(t, in, delivery("1"), inbox.Accepted)
		accept(t, in, delivery("2"), inbox.Accepted)
		third := delivery("3")
		if _, err := in.Accept(t.Context(), third); !errors.Is(err, inbox.ErrBacklog) {
			t.Fatalf("got %v", err)
		}
		if err := in.Shed(t.Context(), third); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, db, third.ID, inbox.StatusShed)
		_, work := next(t, in)
		if err := finish(t, db, in, work, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
			t.Fatal(err)
		}
		accept(t, in, third, inbox.Accepted)
		wantStatus(t, db, third.ID, inbox.StatusReceived)
	})
}

func TestKeysAreRememberedForTheirWindow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in := open(db, c, inbox.Options{})
		d := delivery("k")
		accept(t, in, d, inbox.Accepted)
		for _, step := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {d.Window - time.Millisecond, true}, {time.Millisecond, false}} {
			c.advance(step.after)
			if seen, err := in.Seen(t.Context(), d.SourceID, d.Key); err != nil || seen != step.want {
				t.Errorf("after %s: seen %v, %v", step.after, seen, err)
			}
		}
		if seen, err := in.Seen(t.Context(), "another source", d.Key); err != nil || seen {
			t.Errorf("key of another source: %v, %v", seen, err)
		}
	})
}
