// Package inbox takes in deliveries. A delivery is the server's duty from the moment its claim, its payload and its row
// in the event log have committed, which is before its sender is answered. Processing holds a lease on the row and is taken
// up again after a crash; where it begins at once and is quick, it commits with the row.
package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"kici/internal/core/ci"
	"kici/internal/kit/service"
	"kici/internal/server/forge"
	"kici/internal/server/store"
)

// Delivery is one inbound event as received.
type Delivery struct {
	// ID is unique over all sources: a second delivery of the same id is a duplicate until the claim expires.
	ID         string
	OrgID      string
	RoutingKey string
	SourceID   string
	Provider   string
	Event      string // name of the event as the source tells it
	Action     string
	Headers    map[string]string // names in lower case, without those that the source strips
	Payload    []byte            // the raw body
	RequestID  string            // trace id of everything that comes of it
	ReceivedAt int64             // milliseconds since 1970; Accept sets it

	// Source is the one that verified the delivery, where that was a moment ago; nil where it is to be read. Remembered says
	// that it was not read for this delivery: it is accepted only where the source still is so.
	Source     *forge.Source
	Remembered bool

	// Key is the idempotency key, "" for none. It is remembered for Window.
	Key    string
	Window time.Duration
}

// Outcome tells what Accept did.
type Outcome int

// The outcomes.
const (
	Accepted Outcome = iota + 1
	Duplicate
)

// ErrBacklog says that so many deliveries wait already that no more are taken.
var ErrBacklog = errors.New("too many deliveries are waiting")

// ErrSourceChanged says that the source is not as it was remembered.
var ErrSourceChanged = errors.New("the source has changed")

// The statuses of a row in the event log.
const (
	StatusReceived        = "received" // nothing to evaluate, or not evaluated yet
	StatusProcessed       = "processed"
	StatusDuplicate       = "duplicate"
	StatusLockfileMissing = "lockfile_missing"
	StatusLockfileCorrupt = "lockfile_corrupt"
	StatusFailed          = "failed"
	StatusShed            = "shed"
)

// Options bound the inbox. Zero fields take the defaults.
type Options struct {
	NodeID      string        // names this node in leases
	DedupTTL    time.Duration // life of a claim (24 h)
	LeaseTime   time.Duration // a delivery whose node has died is taken up again after it (30 s)
	MaxWaiting  int           // deliveries that may wait; about there Accept gives ErrBacklog (10,000)
	MaxAttempts int           // of processing one delivery, the first included (10)
	// Patience is how long a sender waits until more is known of its delivery than that it came, 50 ms: so long it may be stored
	// together with what comes of it.
	Patience time.Duration
}

// Inbox is the tables inbox, idempotency_keys and event_log.
type Inbox struct {
	db    *store.DB
	clock service.Clock
	poke  service.Poke
	opts  Options

	taken atomic.Int64 // deliveries looked at by AcceptTx
	full  atomic.Bool  // how the last look at the backlog ended

	seats seats
}

// New gives access to the tables. Accept wakes poke whenever a delivery waits; nil is for a node that only takes in.
func New(db *store.DB, clock service.Clock, poke service.Poke, opts Options) *Inbox {
	if opts.DedupTTL == 0 {
		opts.DedupTTL = 24 * time.Hour
	}
	if opts.LeaseTime == 0 {
		opts.LeaseTime = 30 * time.Second
	}
	if opts.MaxWaiting == 0 {
		opts.MaxWaiting = 10_000
	}
	if opts.Patience == 0 {
		opts.Patience = 50 * time.Millisecond
	}
	if opts.MaxAttempts == 0 {
		opts.MaxAttempts = 10
	}
	return &Inbox{db: db, clock: clock, poke: poke, opts: opts}
}

// LeaseTime is how long a lease lasts; work on a delivery must end before.
func (in *Inbox) LeaseTime() time.Duration { return in.opts.LeaseTime }

// Accept claims the delivery and stores it, or finds that it was claimed before. When it returns Accepted the delivery
// is stored for good. The idempotency key is written in the same transaction: written any later, a crash in between
// would let the sender's next try start the work twice; written any earlier, it would swallow that try.
// Error: ErrBacklog, ErrSourceChanged, or one of the database, after which nothing is stored.
func (in *Inbox) Accept(ctx context.Context, d Delivery) (Outcome, error) {
	d.ReceivedAt = in.clock.Millis()
	outcome := Accepted
	err := in.acceptNew(ctx, d)
	if errors.Is(err, errClaimed) {
		err = in.db.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			outcome, err = in.AcceptTx(ctx, tx, d)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("accept delivery %s: %w", d.ID, err)
	}
	return outcome, nil
}

// acceptNew takes in a delivery that is new, as most are, so that nobody need wait for an answer before the commit. Where it is
// not, nothing is stored, and AcceptTx finds out more after errClaimed. Where a worker has a seat for it and nothing waits, it is
// handed over before it is stored.
func (in *Inbox) acceptNew(ctx context.Context, d Delivery) error {
	r, err := in.newReceipt(d)
	if err != nil {
		return err
	}
	if seat := in.seats.reserve(len(d.Payload)); seat != nil {
		seat <- in.work(r) // which has room for every seat
		r.await(ctx, in.opts.Patience)
	}
	return in.keepNow(ctx, r)
}

// AcceptTx is Accept within a transaction, for those who make deliveries out of other changes.
func (in *Inbox) AcceptTx(ctx context.Context, tx *store.Tx, d Delivery) (Outcome, error) {
	if d.Remembered {
		if holds, err := forge.Holds(ctx, tx, *d.Source); err != nil || !holds {
			return 0, cmp.Or(err, ErrSourceChanged)
		}
	}
	if full, err := in.backlogged(ctx, tx); err != nil || full {
		return 0, cmp.Or(err, ErrBacklog)
	}
	d.ReceivedAt = in.clock.Millis()
	r, err := in.newReceipt(d)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, claimDelivery, r.values(stateWaiting)...).Scan(&r.d.ReceivedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return Duplicate, logDelivery(ctx, tx, r.d, Result{Status: StatusDuplicate}, insertLog)
	}
	if err != nil {
		return 0, err
	}
	return Accepted, in.noteAccepted(ctx, tx, r, Result{Status: StatusReceived})
}

// backlogged tells whether too much waits. It looks once in a hundredth of the bound, and at every delivery while the
// bound is reached: a statement for each delivery would cost more than the few that may wait beyond the bound.
func (in *Inbox) backlogged(ctx context.Context, tx *store.Tx) (bool, error) {
	period := int64(max(1, in.opts.MaxWaiting/100))
	if in.taken.Add(1)%period != 0 && !in.full.Load() {
		return false, nil
	}
	var full bool
	if err := tx.QueryRowContext(ctx, backlogFull, in.opts.MaxWaiting-1).Scan(&full); err != nil {
		return false, err
	}
	in.full.Store(full)
	return full, nil
}

// cleanHeaders gives headers that read the same once they were stored.
func cleanHeaders(headers map[string]string) map[string]string {
	dirty := false
	for name, value := range headers {
		dirty = dirty || ci.CleanText(name) != name || ci.CleanText(value) != value
	}
	if !dirty {
		return headers
	}
	clean := make(map[string]string, len(headers))
	for name, value := range headers {
		clean[ci.CleanText(name)] = ci.CleanText(value)
	}
	return clean
}

// Seen tells whether the source's idempotency key is still remembered.
func (in *Inbox) Seen(ctx context.Context, sourceID, key string) (bool, error) {
	var seen bool
	err := in.db.Read().QueryRowContext(ctx, keySeen, sourceID, key, in.clock.Millis()).Scan(&seen)
	if err != nil {
		return false, fmt.Errorf("look up idempotency key: %w", err)
	}
	return seen, nil
}

// Shed records a verified delivery that was refused for want of room. Its sender may send it again.
func (in *Inbox) Shed(ctx context.Context, d Delivery) error {
	d.ReceivedAt = in.clock.Millis()
	err := in.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return logDelivery(ctx, tx, d, Result{Status: StatusShed}, insertLog)
	})
	if err != nil {
		return fmt.Errorf("record shed delivery %s: %w", d.ID, err)
	}
	return nil
}

// logDelivery writes the delivery's row of the event log. The payload stays in the inbox row.
func logDelivery(ctx context.Context, tx *store.Tx, d Delivery, r Result, statement string) error {
	sum := sha256.Sum256(d.Payload)
	return tx.Do(ctx, statement, d.OrgID, d.ID, d.RoutingKey, ci.CutName(d.Event), ci.CutName(d.Action), "direct", d.Provider, r.Status,
		len(d.Payload), hex.EncodeToString(sum[:]), d.ReceivedAt, r.Matched, r.RunID, ci.CutText(r.Error), ci.CutText(r.Repo), ci.CutText(r.Ref))
}

// logLife is how long the event log keeps a delivery.
const logLife = 30 * 24 * time.Hour

// Purge removes claims and idempotency keys whose time is up, and old rows of the event log, at most limit of each, and
// tells how many went. A delivery that is not done is kept whatever its age.
func (in *Inbox) Purge(ctx context.Context, limit int) (int64, error) {
	var removed int64
	err := in.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		removed = 0
		now := in.clock.Millis()
		for _, old := range []struct {
			statement string
			before    int64
		}{{purgeClaims, now}, {purgeKeys, now}, {purgeLog, now - logLife.Milliseconds()}} {
			res, err := tx.ExecContext(ctx, old.statement, old.before, limit)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			removed += n
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("purge inbox: %w", err)
	}
	return removed, nil
}

// The states of a row, beside done, which settled was in earlier releases, and released, which may be claimed again at once.
const (
	stateWaiting = "waiting"
	stateSettled = "settled"
)

// backlogFull looks for a waiting row after the first $1: it reads no more rows than that, and none when none waits.
const backlogFull = `SELECT EXISTS (SELECT 1 FROM inbox WHERE state = 'waiting' ORDER BY received_at, delivery_id LIMIT 1 OFFSET $1)`

const insertDelivery = `INSERT INTO inbox (delivery_id, org_id, routing_key, source_id, event, action, headers, payload,
		request_id, state, received_at, expires_at, lease_node, lease_until, attempts)
	`

const deliveryValues = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15`

const insertNew = insertDelivery + `VALUES (` + deliveryValues + `) ON CONFLICT (delivery_id) DO NOTHING`

// insertWhile takes a new delivery while its source is as it was.
var insertWhile = insertDelivery + `SELECT ` + deliveryValues + ` WHERE ` + forge.Unchanged(16) + ` ON CONFLICT (delivery_id) DO NOTHING`

// claimDelivery changes a row exactly when the delivery is this caller's: it is new, its claim has expired, or it was
// released. A released one keeps its time of receipt, so that it derives the same run ids: had a run of it been
// registered after all, it would not start a second one.
const claimDelivery = insertDelivery + `VALUES (` + deliveryValues + `) ON CONFLICT (delivery_id) DO UPDATE SET org_id = excluded.org_id, routing_key = excluded.routing_key,
		source_id = excluded.source_id, event = excluded.event, action = excluded.action, headers = excluded.headers,
		payload = excluded.payload, request_id = excluded.request_id, state = 'waiting',
		received_at = CASE WHEN inbox.state = 'released' THEN inbox.received_at ELSE excluded.received_at END,
		expires_at = excluded.expires_at, lease_node = excluded.lease_node, lease_until = excluded.lease_until,
		attempts = excluded.attempts, last_error = NULL
	WHERE inbox.state = 'released' OR (inbox.state <> 'waiting' AND inbox.expires_at <= excluded.received_at)
	RETURNING received_at`

const rememberKey = `INSERT INTO idempotency_keys (source_id, key, expires_at) VALUES ($1, $2, $3)
	ON CONFLICT (source_id, key) DO UPDATE SET expires_at = excluded.expires_at`

const keySeen = `SELECT EXISTS (SELECT 1 FROM idempotency_keys WHERE source_id = $1 AND key = $2 AND expires_at > $3)`

const logRow = `INSERT INTO event_log (org_id, delivery_id, routing_key, event, action, source, provider, status,
		payload_size_bytes, payload_hash, received_at, matched_count, run_id, error_message, repo_identifier, ref)
	VALUES ($1, $2, $3, $4, NULLIF($5, ''), $6, $7, $8, $9, $10, $11, $12, NULLIF($13, ''), NULLIF($14, ''), NULLIF($15, ''), NULLIF($16, ''))
	ON CONFLICT (org_id, delivery_id) `

// insertLog is for what never overwrites the history of the delivery that it repeats.
const insertLog = logRow + "DO NOTHING"

// upsertLog changes what belongs to the processing; the payload's columns belong to the first write.
const upsertLog = logRow + `DO UPDATE SET status = excluded.status, matched_count = excluded.matched_count, run_id = excluded.run_id,
	error_message = excluded.error_message, repo_identifier = COALESCE(excluded.repo_identifier, event_log.repo_identifier),
	ref = COALESCE(excluded.ref, event_log.ref)`

// What is purged says so twice: where somebody else changes a row meanwhile, PostgreSQL asks again of the row itself, and not
// of how it was found. A delivery that has just been taken in again would go with its old claim otherwise.
const purgeClaims = `DELETE FROM inbox WHERE expires_at <= $1 AND state <> 'waiting' AND delivery_id IN
	(SELECT delivery_id FROM inbox WHERE expires_at <= $1 AND state <> 'waiting' ORDER BY expires_at LIMIT $2)`

const purgeLog = `DELETE FROM event_log WHERE (org_id, delivery_id) IN
	(SELECT org_id, delivery_id FROM event_log l WHERE received_at <= $1
		AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.delivery_id = l.delivery_id AND i.state = 'waiting') ORDER BY received_at LIMIT $2)`

const purgeKeys = `DELETE FROM idempotency_keys WHERE expires_at <= $1 AND (source_id, key) IN
	(SELECT source_id, key FROM idempotency_keys WHERE expires_at <= $1 LIMIT $2)`
