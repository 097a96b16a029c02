package cluster

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func write(t *testing.T, db *store.DB, fn func(ctx context.Context, tx *store.Tx) error) {
	t.Helper()
	if err := db.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func TestALeaseHasOneHolderUntilItEnds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tests := []struct {
			name, node string
			now, until int64
			held       bool
			epoch      int
		}{
			{"free", "a", 100, 200, true, 1},
			{"taken", "b", 150, 250, false, 1},
			{"renewed", "a", 190, 300, true, 1},
			{"taken for longer now", "b", 250, 350, false, 1},
			{"at its very end", "b", 300, 400, false, 1},
			{"ended", "b", 301, 401, true, 2},
			{"the former holder comes late", "a", 302, 402, false, 2},
			{"ended and renewed by its own holder", "b", 500, 600, true, 2},
		}
		for _, tt := range tests {
			var held bool
			var epoch int
			write(t, db, func(ctx context.Context, tx *store.Tx) (err error) {
				if held, err = Acquire(ctx, tx, "sweep", tt.node, tt.now, tt.until); err != nil {
					return err
				}
				return tx.QueryRowContext(ctx, "SELECT epoch FROM leases WHERE name = $1", "sweep").Scan(&epoch)
			})
			if held != tt.held || epoch != tt.epoch {
				t.Errorf("%s: held %v in epoch %d, want %v in %d", tt.name, held, epoch, tt.held, tt.epoch)
			}
		}
	})
}

func TestAReleasedLeaseIsFree(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		acquire := func(node string) (held bool) {
			t.Helper()
			write(t, db, func(ctx context.Context, tx *store.Tx) (err error) {
				held, err = Acquire(ctx, tx, "burials", node, 100, 900)
				return err
			})
			return held
		}
		release := func(node string) {
			t.Helper()
			write(t, db, func(ctx context.Context, tx *store.Tx) error { return Release(ctx, tx, "burials", node) })
		}
		if !acquire("a") || acquire("b") {
			t.Fatal("a holds the lease, and b does not")
		}
		release("b")
		if acquire("b") {
			t.Error("somebody else's lease was released")
		}
		release("a")
		if !acquire("b") {
			t.Error("the released lease is not free")
		}
	})
}

func TestANodeLearnsThatItWasTakenForDead(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		beat := func(n Node) (forgotten bool) {
			t.Helper()
			write(t, db, func(ctx context.Context, tx *store.Tx) (err error) {
				forgotten, err = Beat(ctx, tx, n)
				return err
			})
			return forgotten
		}
		n := Node{ID: "n", Address: "http://n:4000", StartedAt: 10, SeenAt: 20}
		if !beat(n) {
			t.Error("the first beat is one of a node that nobody knew")
		}
		n.SeenAt = 30
		if beat(n) {
			t.Error("a known node was forgotten")
		}
		nodes, err := Nodes(t.Context(), db.Read())
		if d := cmp.Diff([]Node{n}, nodes); err != nil || d != "" {
			t.Errorf("nodes: %v, %s", err, d)
		}
		write(t, db, func(ctx context.Context, tx *store.Tx) error { return Bury(ctx, tx, "n") })
		if !beat(n) {
			t.Error("a buried node did not learn it")
		}
	})
}
