package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// Lease is the right to process one delivery until its time is up. Attempt counts from 1.
type Lease struct {
	deliveryID string
	orgID      string
	sourceID   string
	routingKey string
	node       string
	until      int64 // epoch milliseconds
	Attempt    int
}

// Result is what came of a delivery, for its row of the event log.
type Result struct {
	Status  string
	Matched int    // workflows that it started
	RunID   string // of the first, "" for none
	Repo    string
	Ref     string
	Error   string // for people, "" for none
}

// ErrLeaseLost says that the lease has run out and another worker has the delivery: nothing was changed.
var ErrLeaseLost = errors.New("the lease on the delivery has been lost")

// errTaken says that another worker was quicker.
var errTaken = errors.New("taken")

// Next leases the delivery that waits longest, or gives ok=false when none is due. Its Provider, Key and Window are not
// kept. One that was tried too often is given up here, which ends a delivery that takes the whole process down with it each
// time.
func (in *Inbox) Next(ctx context.Context) (w Work, ok bool, err error) {
	for {
		// Looking first without a transaction leaves SQLite's only writer alone when there is nothing to do.
		var id string
		err := in.db.Read().QueryRowContext(ctx, headOfInbox, in.clock.Millis()).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return Work{}, false, nil
		}
		if err != nil {
			return Work{}, false, fmt.Errorf("look for deliveries: %w", err)
		}
		w, err := in.take(ctx, id)
		if errors.Is(err, errTaken) {
			continue // each turn that ends here is another worker's success
		}
		if err != nil {
			return Work{}, false, fmt.Errorf("lease delivery %s: %w", id, err)
		}
		if w.Lease.Attempt <= in.opts.MaxAttempts {
			return w, true, nil
		}
		cause := fmt.Errorf("given up after %d attempts that did not end", in.opts.MaxAttempts)
		if err := in.GiveUp(ctx, w, Result{Error: cause.Error()}); err != nil && !errors.Is(err, ErrLeaseLost) {
			return Work{}, false, err
		}
	}
}

func (in *Inbox) take(ctx context.Context, id string) (Work, error) {
	var d Delivery
	var headers string
	var attempt int
	var until int64
	err := in.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		now := in.clock.Millis()
		until = now + in.opts.LeaseTime.Milliseconds()
		err := tx.QueryRowContext(ctx, takeDelivery, id, in.opts.NodeID, until, now).Scan(
			&d.ID, &d.OrgID, &d.RoutingKey, &d.SourceID, &d.Event, &d.Action, &headers, &d.Payload, &d.RequestID,
			&d.ReceivedAt, &attempt)
		if errors.Is(err, sql.ErrNoRows) {
			return errTaken
		}
		return err
	})
	if err != nil {
		return Work{}, err
	}
	if err := json.Unmarshal([]byte(headers), &d.Headers); err != nil {
		return Work{}, fmt.Errorf("stored headers: %w", err)
	}
	return leased(d, Lease{node: in.opts.NodeID, until: until, Attempt: attempt}), nil
}

// leased is the work that a row is.
func leased(d Delivery, l Lease) Work {
	d.Provider, d.Key, d.Window, d.Remembered = "", "", 0, false
	l.deliveryID, l.orgID, l.sourceID, l.routingKey = d.ID, d.OrgID, d.SourceID, d.RoutingKey
	return Work{Delivery: d, Lease: l}
}

// Left is how long a lease lasts yet.
func (in *Inbox) Left(l Lease) time.Duration {
	return time.Duration(l.until-in.clock.Millis()) * time.Millisecond
}

// Record writes what is known of a delivery along with something else, in the transaction that write makes: that it is there,
// where it is not stored yet, and with end how it ended. Error: ErrLeaseLost or ErrNotTaken, upon which nothing is kept.
func (in *Inbox) Record(w Work, end *Result, write func(also func(ctx context.Context, tx *store.Tx) error) error) error {
	return w.storing(func(stored bool) error {
		return write(func(ctx context.Context, tx *store.Tx) error {
			switch {
			case !stored:
				return in.keep(ctx, tx, w.receipt, end)
			case end == nil:
				return nil
			}
			if err := w.Lease.change(ctx, tx, finishDelivery, nil); err != nil {
				return err
			}
			return w.Lease.log(ctx, tx, *end)
		})
	})
}

// Retry gives a delivery back after a failure that may pass. It is tried again after a pause that doubles with each
// attempt from one second to one minute; when no attempt is left it is given up.
func (in *Inbox) Retry(ctx context.Context, w Work, r Result) error {
	lease := w.Lease
	if lease.Attempt >= in.opts.MaxAttempts {
		return in.GiveUp(ctx, w, r)
	}
	pause := min(time.Second<<min(lease.Attempt-1, 10), time.Minute)
	return in.write(ctx, w, "give back delivery", func(ctx context.Context, tx *store.Tx) error {
		if err := lease.change(ctx, tx, retryDelivery, in.clock.Millis()+pause.Milliseconds(), ci.CutText(r.Error)); err != nil {
			return err
		}
		r.Status = StatusReceived // its story is not over; the row shows why it takes so long
		return lease.log(ctx, tx, r)
	})
}

// GiveUp ends a delivery that failed for good. When nothing was started of it, it is released.
func (in *Inbox) GiveUp(ctx context.Context, w Work, r Result) error {
	lease := w.Lease
	r.Status = StatusFailed
	return in.write(ctx, w, "give up delivery", func(ctx context.Context, tx *store.Tx) error {
		if r.RunID == "" {
			if err := in.release(ctx, tx, lease); err != nil {
				return err
			}
		} else if err := lease.change(ctx, tx, finishDelivery, ci.CutText(r.Error)); err != nil {
			return err
		}
		return lease.log(ctx, tx, r)
	})
}

// release frees the claim and the idempotency key, so that the sender's redelivery is taken. It is for a delivery that
// failed before anything was started. Error: ErrLeaseLost.
func (in *Inbox) release(ctx context.Context, tx *store.Tx, lease Lease) error {
	if err := lease.change(ctx, tx, releaseDelivery); err != nil {
		return err
	}
	key, _ := strings.CutPrefix(lease.deliveryID, lease.routingKey+":") // see DeliveryID
	return tx.Do(ctx, "DELETE FROM idempotency_keys WHERE source_id = $1 AND key = $2", lease.sourceID, key)
}

// Return gives a delivery back untouched, because the server stops: the attempt does not count.
func (in *Inbox) Return(ctx context.Context, w Work) error {
	return in.write(ctx, w, "return delivery", func(ctx context.Context, tx *store.Tx) error {
		return w.Lease.change(ctx, tx, returnDelivery)
	})
}

// Recover frees what this node had leased when it last ended. SQLite's file belongs to one process at a time, so there
// every lease is of a process that is gone.
func (in *Inbox) Recover(ctx context.Context) error {
	err := in.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Do(ctx, recoverLeases, in.opts.NodeID, tx.Dialect == store.SQLite)
	})
	if err != nil {
		return fmt.Errorf("recover leases: %w", err)
	}
	return nil
}

// TriggerPrefix begins the delivery ids of runs that a person started. Deliveries from outside cannot have it: theirs
// begin with a routing key.
const TriggerPrefix = "trigger:"

// DeliveryID makes the delivery id of a source's idempotency key or other unique mark.
func DeliveryID(routingKey, key string) string { return routingKey + ":" + key }

// write changes the row of a delivery, which is stored first where it is not.
func (in *Inbox) write(ctx context.Context, w Work, what string, fn func(ctx context.Context, tx *store.Tx) error) error {
	err := in.Record(w, nil, func(also func(ctx context.Context, tx *store.Tx) error) error {
		return in.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			if err := also(ctx, tx); err != nil {
				return err
			}
			return fn(ctx, tx)
		})
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, w.Delivery.ID, err)
	}
	return nil
}

// change runs a statement on the leased row. The attempt and the end are the fence. The attempt alone is none: a delivery that
// was released, or returned, counts it again.
func (l Lease) change(ctx context.Context, tx *store.Tx, statement string, args ...any) error {
	return tx.DoOne(ctx, ErrLeaseLost, statement, append([]any{l.deliveryID, l.node, l.Attempt, l.until}, args...)...)
}

func (l Lease) log(ctx context.Context, tx *store.Tx, r Result) error {
	return tx.Do(ctx, updateLog, l.orgID, l.deliveryID, r.Status, r.Matched, r.RunID, ci.CutText(r.Error),
		ci.CutText(r.Repo), ci.CutText(r.Ref))
}

const headOfInbox = `SELECT delivery_id FROM inbox WHERE state = 'waiting' AND lease_until <= $1
	ORDER BY received_at, delivery_id LIMIT 1`

const takeDelivery = `UPDATE inbox SET lease_node = $2, lease_until = $3, attempts = attempts + 1
	WHERE delivery_id = $1 AND state = 'waiting' AND lease_until <= $4
	RETURNING delivery_id, org_id, routing_key, source_id, event, action, headers, payload, request_id, received_at, attempts`

const stillLeased = ` WHERE delivery_id = $1 AND lease_node = $2 AND attempts = $3 AND lease_until = $4 AND state = 'waiting'`

// finishDelivery leaves the row as long as it was: SQLite then writes only the page that changes, and not the pages of the
// payload behind it.
const finishDelivery = `UPDATE inbox SET state = 'settled', last_error = $5` + stillLeased

const retryDelivery = `UPDATE inbox SET lease_node = '', lease_until = $5, last_error = $6` + stillLeased

const releaseDelivery = `UPDATE inbox SET state = 'released'` + stillLeased

const returnDelivery = `UPDATE inbox SET lease_node = '', lease_until = 0, attempts = attempts - 1` + stillLeased

// recoverLeases leaves alone what waits out a pause: that has no node.
const recoverLeases = `UPDATE inbox SET lease_node = '', lease_until = 0
	WHERE state = 'waiting' AND lease_node <> '' AND (lease_node = $1 OR $2)`

const updateLog = `UPDATE event_log SET status = $3, matched_count = $4, run_id = NULLIF($5, ''), error_message = NULLIF($6, ''),
	repo_identifier = COALESCE(NULLIF($7, ''), repo_identifier), ref = COALESCE(NULLIF($8, ''), ref)
	WHERE org_id = $1 AND delivery_id = $2`
