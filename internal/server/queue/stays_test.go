package queue_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/label"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// TestStaysTellWhereAJobWas gives a job out twice; the second agent takes it to other nodes and back.
func TestStaysTellWhereAJobWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		write := func(fn func(ctx context.Context, tx *store.Tx) error) {
			t.Helper()
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				return fn(ctx, tx)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		require := func(want ...queue.Stay) {
			t.Helper()
			got, err := queue.Stays(t.Context(), db.Read(), "job")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		claim := func(node string, now int64) {
			write(func(ctx context.Context, tx *store.Tx) error {
				ok, err := queue.Claim(ctx, tx, "job", "agent", node, 1, now, now+10)
				if err == nil && !ok {
					err = store.ErrUnchanged
				}
				return err
			})
		}
		reclaim := func(node string, now int64) {
			write(func(ctx context.Context, tx *store.Tx) error {
				return queue.Reclaim(ctx, tx, "job", node, now)
			})
		}
		write(func(ctx context.Context, tx *store.Tx) error {
			id, err := queue.Intern(ctx, tx, label.Selector{Labels: []string{"linux"}})
			if err != nil {
				return err
			}
			return queue.Enqueue(ctx, tx, "job", "run", id, 1, 0, 0)
		})
		require()
		claim("a", 10)
		write(func(ctx context.Context, tx *store.Tx) error {
			return queue.Requeue(ctx, tx, "job", "rejected", 20, 0)
		})
		claim("b", 30)
		reclaim("b", 40) // where it was
		require(queue.Stay{NodeID: "a", Since: 10}, queue.Stay{NodeID: "b", Since: 30})
		reclaim("c", 50)
		reclaim("b", 60)
		require(queue.Stay{NodeID: "a", Since: 10}, queue.Stay{NodeID: "b", Since: 30}, queue.Stay{NodeID: "c", Since: 50}, queue.Stay{NodeID: "b", Since: 60})
		for i := range int64(200) { // an agent that goes to and fro does not fill the row
			reclaim([]string{"c", "b"}[i%2], 100+i)
		}
		got, err := queue.Stays(t.Context(), db.Read(), "job")
		if err != nil || len(got) != 2+64 {
			t.Errorf("%d stays, %v", len(got), err)
		}
		reclaim("d", 1000)
		got, err = queue.Stays(t.Context(), db.Read(), "job")
		if err != nil || len(got) != 2+65 || got[len(got)-1].NodeID != "d" {
			t.Errorf("a new node is left out: %d stays, %v", len(got), err)
		}
	})
}
