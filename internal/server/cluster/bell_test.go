package cluster

import (
	"log/slog"
	"runtime"
	"testing"
	"time"

	"kici/internal/kit/service"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// patience bounds every wait; nothing that works takes so long.
const patience = 30 * time.Second

var quiet = slog.New(slog.DiscardHandler)

// ringer is a node with one line.
type ringer struct {
	bell  *Bell
	out   service.Poke // rings everywhere
	local service.Poke // is woken
}

func newRinger(t *testing.T, url, node string) ringer {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	b := NewBell(url, db, node, quiet)
	r := ringer{bell: b, local: service.NewPoke()}
	r.out = b.Line("dispatch", r.local)
	loops := service.NewGroup(t.Context(), quiet)
	b.Start(loops)
	t.Cleanup(loops.Stop)
	r.await(t, "to listen") // the first wake-up says that the connection is there
	return r
}

func (r ringer) await(t *testing.T, what string) {
	t.Helper()
	select {
	case <-r.local:
	case <-time.After(patience):
		t.Fatalf("%s: no wake-up", what)
	}
}

func TestABellWakesEveryNode(t *testing.T) {
	url := storetest.PostgresURL(t)
	a, b := newRinger(t, url, "a"), newRinger(t, url, "b")
	a.out.Wake()
	a.await(t, "at home")
	b.await(t, "elsewhere")
	b.out.Wake()
	b.await(t, "at home")
	a.await(t, "the other way")
}

func TestANodeThatIsAloneTellsNobodyUntilAnotherComes(t *testing.T) {
	url := storetest.PostgresURL(t)
	a := newRinger(t, url, "a")
	a.bell.Alone(true)
	a.out.Wake()
	a.await(t, "at home")
	b := newRinger(t, url, "b")
	for deadline := time.Now().Add(patience); a.bell.alone.Load(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the other was not heard")
		}
	}
	a.out.Wake()
	b.await(t, "elsewhere")
}

func TestABellTakesTheURLOfAPool(t *testing.T) {
	url := storetest.PostgresURL(t) + "&pool_max_conns=3"
	a, b := newRinger(t, url, "a"), newRinger(t, url, "b")
	a.out.Wake()
	b.await(t, "elsewhere")
}

func TestABellListensAgainAfterALostConnection(t *testing.T) {
	url := storetest.PostgresURL(t)
	a, b := newRinger(t, url, "a"), newRinger(t, url, "b")
	db, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Read().ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'kici-listen' AND datname = current_database()`)
	if err != nil {
		t.Fatal(err)
	}
	a.await(t, "what was rung meanwhile may be lost, so the new connection wakes")
	b.await(t, "the same on the other node")
	a.out.Wake()
	a.await(t, "at home")
	b.await(t, "over the new connection")
}

func TestWithOneNodeALineIsThePokeItself(t *testing.T) {
	db := storetest.SQLite(t)
	local := service.NewPoke()
	b := NewBell("", db, "n", quiet)
	b.Line("dispatch", local).Wake()
	select {
	case <-local:
	default:
		t.Error("not woken at once")
	}
	loops := service.NewGroup(t.Context(), quiet)
	b.Start(loops) // which has nothing to run
	loops.Stop()
}
