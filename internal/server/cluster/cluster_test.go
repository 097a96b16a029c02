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

func TestOnlyOthersThatWereNotSeenAreDead(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		dead := func() []string {
			t.Helper()
			list, err := Dead(t.Context(), db.Read(), "me", 100)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		write(t, db, func(ctx context.Context, tx *store.Tx) error {
			for node, seen := range map[string]int64{"me": 1, "old": 99, "older": 50, "alive": 100} {
				if err := Beat(ctx, tx, node, 0, seen); err != nil {
					return err
				}
			}
			return nil
		})
		if d := cmp.Diff([]string{"old", "older"}, dead()); d != "" {
			t.Errorf("dead (-want +got):\n%s", d)
		}
		write(t, db, func(ctx context.Context, tx *store.Tx) error {
			if err := Beat(ctx, tx, "old", 0, 200); err != nil {
				return err
			}
			return Bury(ctx, tx, "older")
		})
		if list := dead(); len(list) != 0 {
			t.Errorf("dead after one came back and one was buried: %v", list)
		}
	})
}
