package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kici/internal/server/inbox"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// somebodyWaits returns once a transaction waits for another.
func somebodyWaits(t *testing.T, db *store.DB) {
	t.Helper()
	for waiting := false; !waiting; {
		err := db.Read().QueryRowContext(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A claim may run out in the moment in which its sender sends the delivery again.
func TestAPurgeLeavesWhatIsTakenInMeanwhile(t *testing.T) {
	db := storetest.Postgres(t) // SQLite has one writer
	c := newClock()
	in := open(db, c, inbox.Options{DedupTTL: time.Hour})
	d := delivery("k")
	accept(t, in, d, inbox.Accepted)
	_, work := next(t, in)
	if err := finish(t, db, in, work, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Hour)
	purged := make(chan error, 1)
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if outcome, err := in.AcceptTx(ctx, tx, d); err != nil || outcome != inbox.Accepted {
			t.Errorf("%v, %v", outcome, err)
		}
		if err := storetest.Send(ctx, tx); err != nil {
			return err
		}
		go func() {
			_, err := in.Purge(t.Context(), 100)
			purged <- err
		}()
		somebodyWaits(t, db)
		return nil
	})
	if err := errors.Join(err, <-purged); err != nil {
		t.Fatal(err)
	}
	if got, _ := next(t, in); got.ID != d.ID {
		t.Errorf("next is %s", got.ID)
	}
	if seen, err := in.Seen(t.Context(), "s", "k"); err != nil || !seen {
		t.Errorf("its key is remembered: %v, %v", seen, err)
	}
}

// A worker that stood still must not end what another life of the same delivery does.
func TestALeaseIsFencedFromLaterLivesOfItsDelivery(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in := open(db, c, inbox.Options{LeaseTime: time.Minute})
		accept(t, in, delivery("k"), inbox.Accepted)
		_, stale := next(t, in)
		c.advance(time.Minute)
		_, second := next(t, in)
		if err := in.GiveUp(t.Context(), second, inbox.Result{Error: "no"}); err != nil {
			t.Fatal(err)
		}
		accept(t, in, delivery("k"), inbox.Accepted)
		_, third := next(t, in)
		if third.Lease.Attempt != stale.Lease.Attempt {
			t.Fatalf("attempt %d", third.Lease.Attempt)
		}
		for what, do := range map[string]func() error{
			"finish": func() error { return finish(t, db, in, stale, inbox.Result{Status: inbox.StatusFailed}) },
			"retry":  func() error { return in.Retry(t.Context(), stale, inbox.Result{}) },
			"return": func() error { return in.Return(t.Context(), stale) },
		} {
			if err := do(); !errors.Is(err, inbox.ErrLeaseLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := in.Return(t.Context(), third); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Millisecond)
		_, fourth := next(t, in)
		if err := in.Return(t.Context(), third); !errors.Is(err, inbox.ErrLeaseLost) { // again, since nobody heard the answer
			t.Errorf("returned twice: %v", err)
		}
		if err := finish(t, db, in, fourth, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
			t.Error(err)
		}
	})
}

// A delivery that is released while many senders send it again is taken in once more, and once only.
func TestAReleasedDeliveryIsTakenInOnceMore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in := open(db, c, inbox.Options{})
		accept(t, in, delivery("k"), inbox.Accepted)
		handed := in.Open(3, 0)
		defer close(handed)
		go func() { // workers who find out that theirs was another's
			for range handed {
				in.Leave(true)
			}
		}()
		in.Sit()
		in.Leave(false)
		_, work := next(t, in)
		var accepted atomic.Int64
		var all sync.WaitGroup
		send := func() {
			switch outcome, err := in.Accept(t.Context(), delivery("k")); {
			case err != nil:
				t.Error(err)
			case outcome == inbox.Accepted:
				accepted.Add(1)
			}
		}
		for range 5 {
			all.Go(send)
		}
		all.Go(func() {
			if err := in.GiveUp(t.Context(), work, inbox.Result{Error: "no"}); err != nil {
				t.Error(err)
			}
		})
		for range 5 {
			all.Go(send)
		}
		all.Wait()
		send()
		if accepted.Load() != 1 {
			t.Errorf("accepted %d times", accepted.Load())
		}
	})
}

// A connection that ends while a delivery is stored leaves it to its sender to send it again, and then it is there once.
func TestADeliveryWhoseAnswerIsLost(t *testing.T) {
	db, scissors := storetest.Faulty(t, storetest.PostgresURL(t))
	c := newClock()
	in := open(db, c, inbox.Options{LeaseTime: time.Minute})
	in.Open(200, 0) // of whom none takes what he is given
	stored, n := 0, 0
	for _, up := range []bool{true, false} {
		for at, cut := 0, true; cut; at += 131 {
			n++
			d := delivery(fmt.Sprint("k", n))
			if in.Sit() {
				in.Leave(false) // nobody is before it
			}
			scissors.CutAfter(at, up)
			outcome, err := in.Accept(t.Context(), d)
			cut = scissors.Mend()
			if err != nil {
				if outcome, err = in.Accept(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				if outcome == inbox.Duplicate {
					stored++
				}
			}
			c.advance(time.Minute) // by then nobody has its lease
			got, work := next(t, in)
			if got.ID != d.ID {
				t.Fatalf("%v after %d bytes (up: %v): next is %s", outcome, at, up, got.ID)
			}
			if err := finish(t, db, in, work, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
				t.Fatal(err)
			}
			none(t, in)
		}
	}
	if stored == 0 {
		t.Error("no answer was lost")
	}
}
