package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kici/internal/core/label"
	"kici/internal/proc"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// ahead is how many rows that fit nobody stand before those that are claimed, in the second part of the measure.
const ahead = 100_000

// fillBatch is how many rows are put into the queue in one transaction.
const fillBatch = 1000

// Claims measures how many jobs a dispatcher can claim in a second, as many in one transaction as it takes, first with an
// empty queue and then behind rows of another selector. It works on a database of its own, without a server: what is
// left out is the frame that follows a claim.
func Claims(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "claims", Store: o.store(), Status: "success"}
	base, err := os.MkdirTemp("", "kici-bench-")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(base)
	db, err := store.Open(ctx, store.Options{URL: o.Postgres, Path: filepath.Join(base, "kici.db")})
	if err != nil {
		return result, err
	}
	defer db.Close()
	first, cpu, err := claimsOf(ctx, o, db, "first")
	if err != nil {
		return result, err
	}
	o.say("putting %d rows that fit nobody ahead", ahead)
	if _, err := fill(ctx, db, "nobody", ahead); err != nil {
		return result, err
	}
	behind, _, err := claimsOf(ctx, o, db, "second")
	result.Claims, result.ClaimCPU, result.ClaimsBehind = &first, &cpu, &behind
	return result, err
}

// claimsOf puts rows into the queue and claims them all. It tells how many in a second, and the milliseconds of this
// process' time that each has cost; a PostgreSQL server's are not in it.
func claimsOf(ctx context.Context, o Options, db *store.DB, name string) (perSecond, each float64, err error) {
	selector, err := fill(ctx, db, name, o.N)
	if err != nil {
		return 0, 0, err
	}
	before, err := proc.CPU(os.Getpid())
	if err != nil {
		return 0, 0, err
	}
	o.say("claiming %d jobs", o.N)
	started := time.Now()
	for left := o.N; left > 0; {
		n, err := claimHeads(ctx, db, selector)
		if err != nil {
			return 0, 0, err
		}
		left -= n
	}
	took := time.Since(started)
	after, err := proc.CPU(os.Getpid())
	return float64(o.N) / took.Seconds(), millis(after-before) / float64(o.N), err
}

// claimHeads does what a dispatcher does for the jobs in front, and tells how many those are.
func claimHeads(ctx context.Context, db *store.DB, selector string) (int, error) {
	now := time.Now().UnixMilli()
	var offers []queue.Offer
	err := db.Read().All(ctx, queue.AskLine(selector, now, queue.MaxOffers, func(h queue.Head) {
		offers = append(offers, queue.Offer{JobID: h.JobID, AgentID: "agent-" + h.JobID, Room: 1})
	}))
	if err != nil || len(offers) == 0 {
		return 0, errors.Join(fmt.Errorf("find the head of the queue: %d rows", len(offers)), err)
	}
	return len(offers), db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		claimed, err := queue.ClaimAll(ctx, tx, offers, "bench", queue.Moment{Now: now, AsOf: now, AckDeadline: now + 10_000})
		if err == nil && len(claimed) != len(offers) {
			err = fmt.Errorf("%d of %d jobs could be claimed", len(claimed), len(offers))
		}
		return err
	})
}

// fill puts rows of one selector into the queue and gives the selector's id.
func fill(ctx context.Context, db *store.DB, name string, rows int) (selector string, err error) {
	for done := 0; done < rows; done += fillBatch {
		err := db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			if selector, err = queue.Intern(ctx, tx, label.Selector{Labels: []string{name}}); err != nil {
				return err
			}
			for i := done; i < min(done+fillBatch, rows); i++ {
				if err := queue.Enqueue(ctx, tx, fmt.Sprintf("%s/%d", name, i), "run", selector, int64(i), 0, 0); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return selector, nil
}
