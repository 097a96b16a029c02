package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// receipt is the storing of a new delivery. One that a worker gets before it is stored is stored by whoever comes first: the
// worker, in the same transaction with what comes of it, or Accept, when that takes longer than its sender should wait.
type receipt struct {
	d       Delivery // with texts as they are stored
	headers string
	lease   Lease         // that the row begins with
	expires int64         // when the claim ends
	known   chan struct{} // closed once decided

	mu      sync.Mutex // held by who stores it
	decided bool
	err     error // why it is not stored and never will be by this receipt
}

// ErrNotTaken tells a worker that the delivery is not stored and that whoever took it in does what is still to be done.
var ErrNotTaken = errors.New("the delivery was not taken in")

// errClaimed says that a delivery is not new, or its source not as it was.
var errClaimed = errors.New("the delivery was claimed before")

// newReceipt makes the receipt of a delivery that is to wait. It is as if a lease had run out long ago, so that taking it leaves
// the row as long as it is: see finishDelivery.
func (in *Inbox) newReceipt(d Delivery) (*receipt, error) {
	d.Headers = cleanHeaders(d.Headers)
	headers, err := json.Marshal(d.Headers)
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	d.Event, d.Action = ci.CutName(d.Event), ci.CutName(d.Action)
	if d.Payload == nil {
		d.Payload = []byte{} // an empty body is a body
	}
	lease := Lease{node: in.opts.NodeID, until: d.ReceivedAt - in.opts.DedupTTL.Milliseconds()}
	return &receipt{d: d, headers: string(headers), lease: lease, expires: d.ReceivedAt + in.opts.DedupTTL.Milliseconds(), known: make(chan struct{})}, nil
}

// work is the delivery for a worker, whom it no longer waits for.
func (in *Inbox) work(r *receipt) Work {
	r.lease.until, r.lease.Attempt = r.d.ReceivedAt+in.opts.LeaseTime.Milliseconds(), 1
	w := leased(r.d, r.lease)
	w.receipt = r
	return w
}

// await waits until it is known whether the delivery is stored, but not for longer than its sender should.
func (r *receipt) await(ctx context.Context, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.known:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// decide says how the storing ended. The caller holds the lock.
func (r *receipt) decide(err error) {
	r.decided, r.err = true, err
	close(r.known)
}

// keepNow stores the delivery by itself, unless its worker has.
func (in *Inbox) keepNow(ctx context.Context, r *receipt) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided {
		return r.err
	}
	err := in.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if r.waits() {
			if full, err := in.backlogged(ctx, tx); err != nil || full {
				return cmp.Or(err, ErrBacklog)
			}
		}
		return in.keep(ctx, tx, r, nil)
	})
	r.decide(err)
	return err
}

// waits tells that the delivery has no worker.
func (r *receipt) waits() bool { return r.lease.Attempt == 0 }

// storing runs what writes of a delivery, which must store it first where it is not. Error: ErrNotTaken.
func (w Work) storing(write func(stored bool) error) error {
	r := w.receipt
	if r == nil {
		return write(true)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.decided:
	case r.err != nil:
		return ErrNotTaken
	default:
		return write(true)
	}
	err := write(false)
	if errors.Is(err, errClaimed) {
		r.decide(err)
		return ErrNotTaken
	}
	if err == nil {
		r.decide(nil)
	}
	return err // after a failure somebody may still store it
}

// keep stores a new delivery, as one that goes on or, with its result, as one that has ended.
func (in *Inbox) keep(ctx context.Context, tx *store.Tx, r *receipt, end *Result) error {
	state, result := stateWaiting, Result{Status: StatusReceived}
	if end != nil {
		state, result = stateSettled, *end
	}
	statement, values := insertNew, r.values(state)
	if r.d.Remembered {
		statement, values = insertWhile, append(values, r.d.Source.ID, r.d.Source.UpdatedAt)
	}
	if err := tx.DoOne(ctx, errClaimed, statement, values...); err != nil {
		return err
	}
	return in.noteAccepted(ctx, tx, r, result)
}

// values are the parameters of insertDelivery.
func (r *receipt) values(state string) []any {
	d := r.d
	return []any{d.ID, d.OrgID, d.RoutingKey, d.SourceID, d.Event, d.Action, r.headers, d.Payload, d.RequestID, state, d.ReceivedAt,
		r.expires, r.lease.node, r.lease.until, r.lease.Attempt}
}

// noteAccepted writes what goes with a delivery that was claimed.
func (in *Inbox) noteAccepted(ctx context.Context, tx *store.Tx, r *receipt, result Result) error {
	if r.d.Key != "" && r.d.Window > 0 {
		if err := tx.Do(ctx, rememberKey, r.d.SourceID, r.d.Key, r.d.ReceivedAt+r.d.Window.Milliseconds()); err != nil {
			return err
		}
	}
	if r.waits() {
		tx.After(in.waits)
	}
	return logDelivery(ctx, tx, r.d, result, upsertLog)
}
