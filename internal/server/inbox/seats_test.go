package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/service"
	"kici/internal/server/inbox"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// seated is an inbox with so many workers, who have found that nothing waits.
func seated(t *testing.T, db *store.DB, c *clock, workers int) (*inbox.Inbox, service.Poke, <-chan inbox.Work) {
	t.Helper()
	poke := service.NewPoke()
	in := inbox.New(db, c.now, poke, inbox.Options{NodeID: "n1"})
	handed := in.Open(workers, 0)
	if !in.Sit() {
		t.Fatal("no seat is free at the beginning")
	}
	none(t, in)
	if in.Leave(false) {
		t.Fatal("something waits at the beginning")
	}
	return in, poke, handed
}

func TestDeliveryIsHandedToAFreeWorkerAsItIsStored(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in, poke, handed := seated(t, db, c, 1)
		d := delivery("a")
		d.Event, d.Headers = "push\x00\xff", map[string]string{"x-odd": "\x00\xff\xfe", "x-plain": "v"}
		accept(t, in, d, inbox.Accepted)
		w := <-handed
		select {
		case <-poke:
			t.Error("the workers were woken to look for what had been handed over")
		default:
		}
		none(t, in)

		// Another node finds the same once the lease has run out.
		c.advance(31 * time.Second)
		again, work := next(t, open(db, c, inbox.Options{NodeID: "n2"}))
		if diff := cmp.Diff(again, w.Delivery); diff != "" {
			t.Errorf("what is stored and what was handed over (-stored +handed):\n%s", diff)
		}
		if w.Lease.Attempt != 1 || work.Lease.Attempt != 2 {
			t.Errorf("attempts %d and %d", w.Lease.Attempt, work.Lease.Attempt)
		}
		if err := finish(t, db, in, w, inbox.Result{}); err == nil {
			t.Error("a lease that had run out could finish")
		}
	})
}

func TestDeliveryThatIsHandedOverIsFinishedLikeAnyOther(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		c := newClock()
		in, _, handed := seated(t, db, c, 1)
		accept(t, in, delivery("a"), inbox.Accepted)
		if err := finish(t, db, in, <-handed, inbox.Result{Status: inbox.StatusProcessed}); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Minute)
		none(t, in)
		accept(t, in, delivery("a"), inbox.Duplicate)
	})
}

func TestNobodyOvertakesADeliveryThatWaits(t *testing.T) {
	c := newClock()
	in, poke, handed := seated(t, storetest.SQLite(t), c, 1)
	accept(t, in, delivery("a"), inbox.Accepted)
	<-handed
	accept(t, in, delivery("b"), inbox.Accepted) // finds no seat
	<-poke
	if in.Sit() {
		t.Fatal("there are two seats")
	}
	if !in.Leave(true) {
		t.Error("the worker of a leaves and is not told that b waits")
	}
	c.advance(time.Second)
	accept(t, in, delivery("c"), inbox.Accepted) // finds the seat and b before it
	select {
	case w := <-handed:
		t.Fatalf("%s was handed over", w.Delivery.ID)
	default:
	}
	for _, want := range []string{"b", "c"} {
		if d, _ := next(t, in); d.ID != delivery(want).ID {
			t.Errorf("%s is next, want %s", d.ID, want)
		}
	}
}

func TestSmallDeliveriesWaitForABusyWorker(t *testing.T) {
	c := newClock()
	in := inbox.New(storetest.SQLite(t), c.now, service.NewPoke(), inbox.Options{NodeID: "n1"})
	handed := in.Open(1, 2)
	if !in.Sit() {
		t.Fatal("no seat is free at the beginning")
	}
	none(t, in)
	in.Leave(false)
	large := delivery("large")
	large.Payload = make([]byte, 100_000)
	accept(t, in, delivery("a"), inbox.Accepted)
	accept(t, in, delivery("b"), inbox.Accepted)
	if in.Sit() {
		t.Error("a busy worker would look for deliveries")
	}
	accept(t, in, large, inbox.Accepted)
	accept(t, in, delivery("c"), inbox.Accepted) // behind the large one, though a seat is free
	for _, want := range []string{"a", "b"} {
		if w := <-handed; w.Delivery.ID != delivery(want).ID {
			t.Errorf("%s was handed over, want %s", w.Delivery.ID, want)
		}
	}
	if len(handed) > 0 {
		t.Errorf("%d more were handed over", len(handed))
	}
	in.Leave(true)
	if !in.Leave(true) || !in.Sit() {
		t.Error("nobody looks for the others")
	}
	c.advance(time.Second)
	for _, want := range []string{"c", "large"} { // of one moment, by name
		if d, _ := next(t, in); d.ID != delivery(want).ID {
			t.Errorf("%s is next, want %s", d.ID, want)
		}
	}
}

func TestSeatIsFreeAgainWhateverWasHandedOver(t *testing.T) {
	db := storetest.SQLite(t)
	in, _, handed := seated(t, db, newClock(), 1)
	accept(t, in, delivery("a"), inbox.Accepted)
	<-handed
	in.Leave(true)
	accept(t, in, delivery("a"), inbox.Duplicate)
	<-handed
	in.Leave(true)
	if _, err := in.Accept(cancelled(t), delivery("b")); err == nil {
		t.Error("a delivery was accepted after its sender had gone")
	}
	<-handed
	in.Leave(true)
	accept(t, in, delivery("c"), inbox.Accepted)
	if w := <-handed; w.Delivery.ID != delivery("c").ID {
		t.Errorf("%s was handed over", w.Delivery.ID)
	}
}

func TestNothingIsHandedOverAfterTheEnd(t *testing.T) {
	in, _, handed := seated(t, storetest.SQLite(t), newClock(), 2)
	in.Close()
	accept(t, in, delivery("a"), inbox.Accepted)
	select {
	case <-handed:
		t.Error("a delivery was handed over to nobody")
	default:
	}
	if d, _ := next(t, in); d.ID != delivery("a").ID {
		t.Errorf("%s is next", d.ID)
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
