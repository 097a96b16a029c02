package fleet

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

func seen(t *testing.T, db *store.DB, a Agent) {
	t.Helper()
	write(t, db, func(ctx context.Context, tx *store.Tx) error { return Seen(ctx, tx, a) })
}

func gone(t *testing.T, db *store.DB, agent, connection string, at int64) (changed bool) {
	t.Helper()
	write(t, db, func(ctx context.Context, tx *store.Tx) (err error) {
		changed, err = Gone(ctx, tx, agent, connection, at)
		return err
	})
	return changed
}

func get(t *testing.T, db *store.DB, id string) Agent {
	t.Helper()
	a, err := Get(t.Context(), db.Read(), id)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnAgentIsKeptAsItLastRegistered(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		uid := int64(0)
		first := Agent{
			ID: "forge-01", Labels: []string{"linux"}, Platform: "linux", Arch: "x64", Lifecycle: Static, MaxConcurrency: 1,
			NodeID: "n1", ConnectionID: "c1", LastSeenAt: 100,
		}
		seen(t, db, first)
		again := first
		again.Labels, again.MandatoryLabels, again.Features = []string{"linux", "gpu"}, []string{"gpu"}, []string{"frame-ack"}
		again.Hostname, again.Version, again.MaxConcurrency, again.TokenID = "forge", "1.2.3", 4, "t1"
		again.Properties = map[string]any{"region": "eu", "cores": 16.0, "gpu": false}
		again.Inventory = Inventory{OSRelease: "6.8", RunningAsUID: &uid, TotalMemoryMb: 64231}
		again.NodeID, again.ConnectionID, again.LastSeenAt = "n2", "c2", 200
		seen(t, db, again)

		again.FirstSeenAt = 100
		if diff := cmp.Diff(again, get(t, db, "forge-01")); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOnlyTheCurrentConnectionEndsAnAgent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		a := Agent{ID: "a", Lifecycle: Static, ConnectionID: "c1", LastSeenAt: 1}
		seen(t, db, a)
		a.ConnectionID = "c2"
		seen(t, db, a)
		if gone(t, db, "a", "c1", 5) {
			t.Error("the late end of a superseded connection disconnected the agent")
		}
		if !get(t, db, "a").Connected() {
			t.Error("agent is disconnected")
		}
		if !gone(t, db, "a", "c2", 6) {
			t.Error("the end of the current connection changed nothing")
		}
		if gone(t, db, "a", "c2", 7) {
			t.Error("a connection ended twice")
		}
		if got := get(t, db, "a"); got.Connected() || got.DisconnectedAt != 6 {
			t.Errorf("got %+v", got)
		}
		a.ConnectionID = "c3"
		seen(t, db, a)
		if !get(t, db, "a").Connected() {
			t.Error("agent that came back is disconnected")
		}
	})
}

func TestANodeThatDiedHasNoAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		for _, a := range []Agent{{ID: "a", NodeID: "n1"}, {ID: "b", NodeID: "n2"}} {
			seen(t, db, a)
		}
		write(t, db, func(ctx context.Context, tx *store.Tx) error { return Abandon(ctx, tx, "n1", 9) })
		agents, err := List(t.Context(), db.Read())
		if err != nil {
			t.Fatal(err)
		}
		want := []Agent{{ID: "a", NodeID: "n1", DisconnectedAt: 9}, {ID: "b", NodeID: "n2"}}
		if diff := cmp.Diff(want, agents, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTouchNeverTurnsTimeBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		seen(t, db, Agent{ID: "a", LastSeenAt: 100})
		seen(t, db, Agent{ID: "b", LastSeenAt: 100})
		write(t, db, func(ctx context.Context, tx *store.Tx) error {
			return Touch(ctx, tx, map[string]int64{"a": 200, "b": 50, "never-registered": 300})
		})
		if a, b := get(t, db, "a").LastSeenAt, get(t, db, "b").LastSeenAt; a != 200 || b != 100 {
			t.Errorf("last seen a %d, b %d", a, b)
		}
	})
}

func TestOnlyEphemeralAgentsAreForgotten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		for _, a := range []Agent{
			{ID: "old-ephemeral", Lifecycle: Ephemeral, ConnectionID: "c"},
			{ID: "new-ephemeral", Lifecycle: Ephemeral, ConnectionID: "c"},
			{ID: "live-ephemeral", Lifecycle: Ephemeral, ConnectionID: "c"},
			{ID: "old-static", Lifecycle: Static, ConnectionID: "c"},
		} {
			seen(t, db, a)
		}
		gone(t, db, "old-ephemeral", "c", 10)
		gone(t, db, "new-ephemeral", "c", 30)
		gone(t, db, "old-static", "c", 10)
		var n int64
		write(t, db, func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = Forget(ctx, tx, 20)
			return err
		})
		if n != 1 {
			t.Errorf("forgot %d", n)
		}
		if _, err := Get(t.Context(), db.Read(), "old-ephemeral"); !errors.Is(err, ErrUnknown) {
			t.Errorf("error = %v", err)
		}
	})
}
