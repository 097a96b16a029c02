package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"kici/internal/server/inbox"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// patient is an inbox with so many workers, whose senders wait for as long as the worker takes.
func patient(t *testing.T, db *store.DB, c *clock, workers int) (*inbox.Inbox, <-chan inbox.Work) {
	t.Helper()
	in := open(db, c, inbox.Options{Patience: time.Hour})
	handed := in.Open(workers, 0)
	in.Sit()
	none(t, in)
	in.Leave(false)
	return in, handed
}

// answer is what Accept gives.
type answer struct {
	outcome inbox.Outcome
	err     error
}

// sent takes in a delivery meanwhile.
func sent(ctx context.Context, in *inbox.Inbox, d inbox.Delivery) <-chan answer {
	answered := make(chan answer, 1)
	go func() {
		outcome, err := in.Accept(ctx, d)
		answered <- answer{outcome, err}
	}()
	return answered
}

// known tells whether a delivery has a row.
func known(t *testing.T, db *store.DB, id string) bool {
	t.Helper()
	var n int
	err := db.Read().QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM inbox WHERE delivery_id = $1) + (SELECT count(*) FROM event_log WHERE delivery_id = $1)", id).Scan(&n)
	if err != nil || n == 1 {
		t.Fatalf("%d rows, %v", n, err)
	}
	return n == 2
}

func TestWorkerStoresADeliveryWithWhatComesOfIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		in, handed := patient(t, db, newClock(), 1)
		d := delivery("k")
		answered := sent(t.Context(), in, d)
		w := <-handed
		if known(t, db, d.ID) {
			t.Error("it is stored already")
		}
		if err := finish(t, db, in, w, inbox.Result{Status: inbox.StatusProcessed, Matched: 2, RunID: "run", Repo: "a/b", Ref: "main"}); err != nil {
			t.Fatal(err)
		}
		if got := <-answered; got != (answer{inbox.Accepted, nil}) {
			t.Errorf("the sender is told %v", got)
		}
		if status, matched, _ := logged(t, db, d.ID); status != inbox.StatusProcessed || matched != 2 {
			t.Errorf("event log says %s, %d", status, matched)
		}
		none(t, in)
		if seen, err := in.Seen(t.Context(), d.SourceID, d.Key); err != nil || !seen {
			t.Errorf("its key is remembered: %v, %v", seen, err)
		}
		in.Leave(true)
		in.Close()
		accept(t, in, d, inbox.Duplicate)
		wantStatus(t, db, d.ID, inbox.StatusProcessed)
	})
}

func TestWorkerStoresADeliveryThatGoesOn(t *testing.T) {
	failed := inbox.Result{Error: "git is away"}
	ways := map[string]struct {
		do   func(in *inbox.Inbox, ctx context.Context, w inbox.Work) error
		next bool // it waits for another attempt
		ends string
	}{
		"retry":   {func(in *inbox.Inbox, ctx context.Context, w inbox.Work) error { return in.Retry(ctx, w, failed) }, true, inbox.StatusReceived},
		"return":  {func(in *inbox.Inbox, ctx context.Context, w inbox.Work) error { return in.Return(ctx, w) }, true, inbox.StatusReceived},
		"give up": {func(in *inbox.Inbox, ctx context.Context, w inbox.Work) error { return in.GiveUp(ctx, w, failed) }, false, inbox.StatusFailed},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			c, db := newClock(), storetest.SQLite(t)
			in, handed := patient(t, db, c, 1)
			d := delivery("k")
			answered := sent(t.Context(), in, d)
			if err := way.do(in, t.Context(), <-handed); err != nil {
				t.Fatal(err)
			}
			if got := <-answered; got != (answer{inbox.Accepted, nil}) {
				t.Errorf("the sender is told %v", got)
			}
			wantStatus(t, db, d.ID, way.ends)
			c.advance(time.Second)
			if w, ok, err := in.Next(t.Context()); err != nil || ok != way.next || ok && w.Delivery.ID != d.ID {
				t.Errorf("next is %s, %v, %v", w.Delivery.ID, ok, err)
			}
		})
	}
}

func TestSenderIsAnsweredBeforeLongWorkHasEnded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		in, _, handed := seated(t, db, newClock(), 1)
		d := delivery("k")
		accept(t, in, d, inbox.Accepted)
		wantStatus(t, db, d.ID, inbox.StatusReceived)
		none(t, in) // it is leased
		if err := finish(t, db, in, <-handed, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, db, d.ID, inbox.StatusProcessed)
	})
}

// What a worker makes of a redelivery is not kept.
func TestWorkerOfARedeliveryKeepsNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		in, handed := patient(t, db, newClock(), 2)
		d, made := delivery("k"), delivery("made")
		first := sent(t.Context(), in, d)
		w := <-handed
		again := sent(t.Context(), in, d)
		redelivered := <-handed
		if err := finish(t, db, in, w, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := in.Record(redelivered, &inbox.Result{Status: inbox.StatusFailed}, func(also func(ctx context.Context, tx *store.Tx) error) error {
				return db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					if _, err := in.AcceptTx(ctx, tx, made); err != nil {
						return err
					}
					return also(ctx, tx)
				})
			})
			if !errors.Is(err, inbox.ErrNotTaken) {
				t.Errorf("its worker is told %v", err)
			}
		}
		if got := <-first; got != (answer{inbox.Accepted, nil}) {
			t.Errorf("the first sender is told %v", got)
		}
		if got := <-again; got != (answer{inbox.Duplicate, nil}) {
			t.Errorf("the second sender is told %v", got)
		}
		if known(t, db, made.ID) {
			t.Error("what came of the redelivery is there")
		}
		wantStatus(t, db, d.ID, inbox.StatusProcessed)
	})
}

func TestDeliveryIsStoredAllTheSameWhenItsWorkerFails(t *testing.T) {
	in, _, handed := seated(t, storetest.SQLite(t), newClock(), 1)
	answered := sent(t.Context(), in, delivery("k"))
	broken := errors.New("the database is away")
	err := in.Record(<-handed, nil, func(func(ctx context.Context, tx *store.Tx) error) error { return broken })
	if !errors.Is(err, broken) && !errors.Is(err, inbox.ErrNotTaken) {
		t.Errorf("the worker is told %v", err)
	}
	if got := <-answered; got != (answer{inbox.Accepted, nil}) {
		t.Errorf("the sender is told %v", got)
	}
}

func TestDeliveryWhoseSenderHasLeftIsNotStoredLater(t *testing.T) {
	db := storetest.SQLite(t)
	in, handed := patient(t, db, newClock(), 1)
	ctx, leave := context.WithCancel(t.Context())
	d := delivery("k")
	answered := sent(ctx, in, d)
	w := <-handed
	leave()
	if got := <-answered; !errors.Is(got.err, context.Canceled) {
		t.Errorf("the sender is told %v", got)
	}
	if err := finish(t, db, in, w, inbox.Result{Status: inbox.StatusProcessed}); !errors.Is(err, inbox.ErrNotTaken) {
		t.Errorf("the worker is told %v", err)
	}
	if err := in.Return(t.Context(), w); !errors.Is(err, inbox.ErrNotTaken) {
		t.Errorf("the worker is told %v", err)
	}
	if known(t, db, d.ID) {
		t.Error("it is stored")
	}
}

// Who stores a delivery is a matter of moments, and what is stored is the same.
func TestWorkerAndSenderStoreADeliveryOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const deliveries = 60
		in := open(db, newClock(), inbox.Options{Patience: time.Microsecond})
		handed := in.Open(deliveries, 0)
		in.Sit()
		none(t, in)
		in.Leave(false)
		var workers, senders sync.WaitGroup
		for range 2 {
			workers.Go(func() {
				for w := range handed {
					if err := finish(t, db, in, w, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
						t.Error(err)
					}
					in.Leave(true)
				}
			})
		}
		for sender := range 4 {
			senders.Go(func() {
				for i := sender; i < deliveries; i += 4 {
					if outcome, err := in.Accept(t.Context(), delivery(fmt.Sprint(i))); err != nil || outcome != inbox.Accepted {
						t.Errorf("%v, %v", outcome, err)
					}
				}
			})
		}
		senders.Wait()
		close(handed)
		workers.Wait()
		for i := range deliveries {
			wantStatus(t, db, delivery(fmt.Sprint(i)).ID, inbox.StatusProcessed)
		}
		none(t, in)
	})
}
