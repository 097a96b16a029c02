package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/label"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// enqueue makes pending rows, named job-0 and so on, and gives their ids.
func enqueue(t *testing.T, db *store.DB, n int) (jobs []string) {
	t.Helper()
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		selector, err := queue.Intern(ctx, tx, label.Selector{Labels: []string{"linux"}})
		for i := range n {
			jobs = append(jobs, fmt.Sprint("job-", i))
			err = errors.Join(err, queue.Enqueue(ctx, tx, jobs[i], "run", selector, 1, int64(i), 0))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// claimAll offers jobs to an agent that has room for all of them.
func claimAll(ctx context.Context, db *store.DB, node string, jobs ...string) (claimed []string, err error) {
	var offers []queue.Offer
	for _, job := range jobs {
		offers = append(offers, queue.Offer{JobID: job, AgentID: "agent of " + node, Room: 1000})
	}
	err = db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		claimed, err = queue.ClaimAll(ctx, tx, offers, node, queue.Moment{Now: 10, AsOf: 10, AckDeadline: 20})
		return err
	})
	return claimed, err
}

func TestAClaimWaitsForNoRow(t *testing.T) {
	db := storetest.Postgres(t) // SQLite has one writer
	enqueue(t, db, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if _, _, err := queue.ByJob(ctx, tx, "job-1"); err != nil {
			return err
		}
		claimed, err := claimAll(ctx, db, "n", "job-2", "job-1", "job-0")
		if slices.Sort(claimed); err != nil || !slices.Equal(claimed, []string{"job-0", "job-2"}) {
			t.Errorf("claimed %q beside a row that is locked, %v", claimed, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if claimed, err := claimAll(ctx, db, "n", "job-1"); err != nil || len(claimed) != 1 {
		t.Errorf("claimed %q once it is free, %v", claimed, err)
	}
}

// Nodes offer the same rows in different orders, while whoever cancels takes them back one by one in a third.
func TestManyWhoWantTheSameRows(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		jobs := enqueue(t, db, 24)
		var mu sync.Mutex
		takers := map[string][]string{} // job → who got it
		got := func(by string, jobs ...string) {
			mu.Lock()
			defer mu.Unlock()
			for _, job := range jobs {
				takers[job] = append(takers[job], by)
			}
		}
		var all sync.WaitGroup
		for n := range 6 {
			node := fmt.Sprint("node-", n)
			mine := slices.Concat(jobs[4*n:], jobs[:4*n])
			if n%2 == 1 {
				slices.Reverse(mine)
			}
			all.Go(func() {
				for range 4 {
					claimed, err := claimAll(t.Context(), db, node, mine...)
					if err != nil {
						t.Error(err)
					}
					got(node, claimed...)
				}
			})
		}
		for n := range 4 {
			mine := []string{jobs[23-n], jobs[n+4], jobs[12], jobs[13-n]}
			all.Go(func() {
				err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					for _, job := range slices.Sorted(slices.Values(mine)) {
						if err := queue.Fail(ctx, tx, job, "cancelled", 11); err != nil {
							return err
						}
						if _, _, err := queue.ByJob(ctx, tx, job); err != nil { // and waits for the answer
							return err
						}
					}
					return nil
				})
				if err != nil && !errors.Is(err, store.ErrUnchanged) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		attempts := map[string][]string{}
		rows, err := db.Read().QueryContext(t.Context(), "SELECT job_id, node_id FROM dispatch_attempts")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var job, node string
			if err := rows.Scan(&job, &node); err != nil {
				t.Fatal(err)
			}
			attempts[job] = append(attempts[job], node)
		}
		if d := cmp.Diff(takers, attempts); d != "" || rows.Err() != nil {
			t.Errorf("claims and their notes differ: %s %v", d, rows.Err())
		}
		for job := range maps.Keys(takers) {
			if len(takers[job]) > 1 {
				t.Errorf("job %s was given to %q", job, takers[job])
			}
		}
	})
}

func TestTwoNodesNoteAStayAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		enqueue(t, db, 1)
		if _, err := claimAll(t.Context(), db, "n", "job-0"); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for n := range 12 {
			all.Go(func() {
				err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					return queue.NoteStay(ctx, tx, "job-0", queue.Stay{NodeID: fmt.Sprint("node-", n), Since: 11})
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if stays, err := queue.Stays(t.Context(), db.Read(), "job-0"); err != nil || len(stays) != 13 {
			t.Errorf("%d stays are kept, %v", len(stays), err)
		}
	})
}
