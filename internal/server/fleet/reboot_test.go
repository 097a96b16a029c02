package fleet

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func awaitReboot(t *testing.T, db *store.DB, agent, connection string, until int64) (noted bool) {
	t.Helper()
	write(t, db, func(ctx context.Context, tx *store.Tx) (err error) {
		noted, err = AwaitReboot(ctx, tx, agent, connection, until)
		return err
	})
	return noted
}

func TestARebootLastsUntilItsTimeOrItsEnd(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		a := Agent{ID: "a", Lifecycle: Static, ConnectionID: "c1", LastSeenAt: 1}
		seen(t, db, a)
		if awaitReboot(t, db, "a", "older", 50) || get(t, db, "a").RebootUntil != 0 {
			t.Error("a connection that was superseded asked for a reboot")
		}
		if !awaitReboot(t, db, "a", "c1", 50) || !awaitReboot(t, db, "a", "c1", 70) {
			t.Error("the reboot was not noted")
		}
		if a := get(t, db, "a"); !a.RebootsAt(69) || a.RebootsAt(70) {
			t.Errorf("got %+v", a)
		}
		gone(t, db, "a", "c1", 5)
		a.ConnectionID = "c2"
		seen(t, db, a)
		if got := get(t, db, "a").RebootUntil; got != 70 {
			t.Errorf("the reboot is over at %d: whoever settles the jobs of the host could not tell any more", got)
		}
		write(t, db, func(ctx context.Context, tx *store.Tx) error { return EndReboot(ctx, tx, "a") })
		if get(t, db, "a").RebootsAt(1) {
			t.Error("the reboot did not end")
		}
	})
}

func TestARebootIsGivenUpWhenItsTimeIsUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		for _, id := range []string{"a", "b", "c"} {
			seen(t, db, Agent{ID: id, Lifecycle: Static, ConnectionID: id, LastSeenAt: 1})
		}
		awaitReboot(t, db, "a", "a", 50)
		awaitReboot(t, db, "b", "b", 51)
		due, err := OverdueReboots(t.Context(), db.Read(), 50)
		if d := cmp.Diff([]string{"a"}, due); d != "" || err != nil {
			t.Errorf("%v %s", err, d)
		}
		for id, want := range map[string]bool{"a": true, "b": false, "c": false} {
			write(t, db, func(ctx context.Context, tx *store.Tx) error {
				got, err := GiveUpReboot(ctx, tx, id, 50)
				if got != want {
					t.Errorf("%s: given up %v", id, got)
				}
				return err
			})
		}
		if a, b := get(t, db, "a").RebootUntil, get(t, db, "b").RebootUntil; a != 0 || b != 51 {
			t.Errorf("a %d, b %d", a, b)
		}
	})
}
