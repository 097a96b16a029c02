package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kici/internal/core/label"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// ahead is how many rows that fit nobody stand before those that are claimed, in the second part of the measure.
const ahead = 100_000

// fillBatch is how many rows are put into the queue in one transaction.
const fillBatch = 1000

// Claims measures how many jobs a dispatcher can claim in a second, each in a transaction of its own as it does, first with
// an empty queue and then behind rows of another selector. It works on a database of its own, without a server: what is
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
	first, err := claimsOf(ctx, o, db, "first")
	if err != nil {
		return result, err
	}
	o.say("putting %d rows that fit nobody ahead", ahead)
	if _, err := fill(ctx, db, "nobody", ahead); err != nil {
		return result, err
	}
	behind, err := claimsOf(ctx, o, db, "second")
	result.Claims, result.ClaimsBehind = &first, &behind
	return result, err
}

// claimsOf puts rows into the queue and claims them all.
func claimsOf(ctx context.Context, o Options, db *store.DB, name string) (perSecond float64, err error) {
	selector, err := fill(ctx, db, name, o.N)
	if err != nil {
		return 0, err
	}
	o.say("claiming %d jobs", o.N)
	started := time.Now()
	for range o.N {
		if err := claimHead(ctx, db, selector); err != nil {
			return 0, err
		}
	}
	return float64(o.N) / time.Since(started).Seconds(), nil
}

// claimHead does what a dispatcher does for one job.
func claimHead(ctx context.Context, db *store.DB, selector string) error {
	head, ok, err := queue.HeadOf(ctx, db.Read(), selector)
	if err != nil || !ok {
		return fmt.Errorf("find the head of the queue (%v): %w", ok, err)
	}
	return db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		now := time.Now().UnixMilli()
		ok, err := queue.Claim(ctx, tx, head.JobID, "agent-"+head.JobID, "bench", 1, now, now+10_000)
		if err == nil && !ok {
			err = fmt.Errorf("job %s could not be claimed", head.JobID)
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
				if _, err := queue.Enqueue(ctx, tx, fmt.Sprintf("%s/%d", name, i), "run", selector, int64(i), 0, 0); err != nil {
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
