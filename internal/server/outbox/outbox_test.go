package outbox

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// book is the outbox of a database under test.
type book struct {
	*testing.T
	db *store.DB
}

func (b book) write(fn func(ctx context.Context, tx *store.Tx) error) {
	b.Helper()
	if err := b.db.Write(b.Context(), fn); err != nil {
		b.Fatal(err)
	}
}

func (b book) due(topic string, now int64, limit int) []Effect {
	b.Helper()
	list, err := Due(b.Context(), b.db.Read(), topic, now, limit)
	if err != nil {
		b.Fatal(err)
	}
	return list
}

func targets(list []Effect) (out []string) {
	for _, e := range list {
		out = append(out, e.Target)
	}
	return out
}

func TestAnEffectIsDueUntilItIsDone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := book{t, db}
		b.write(func(ctx context.Context, tx *store.Tx) error {
			return errors.Join(
				Put(ctx, tx, "cancel", "agent-2", map[string]int{"n": 2}, 20),
				Put(ctx, tx, "cancel", "agent-1", map[string]int{"n": 1}, 10),
				Put(ctx, tx, "other", "agent-3", nil, 10))
		})
		if got := targets(b.due("cancel", 15, 9)); !cmp.Equal(got, []string{"agent-1"}) {
			t.Errorf("due before the second: %v", got)
		}
		if got := targets(b.due("cancel", 20, 1)); !cmp.Equal(got, []string{"agent-1"}) {
			t.Errorf("the one that is due first: %v", got)
		}
		list := b.due("cancel", 20, 9)
		if got := targets(list); !cmp.Equal(got, []string{"agent-1", "agent-2"}) || string(list[0].Payload) != `{"n":1}` || list[0].CreatedAt != 10 {
			t.Fatalf("due: %+v", list)
		}
		b.write(func(ctx context.Context, tx *store.Tx) error {
			for _, want := range []bool{true, false} { // the second who does it is told
				if was, err := Done(ctx, tx, list[0].ID); err != nil || was != want {
					t.Errorf("done: %v, %v", was, err)
				}
			}
			return Retry(ctx, tx, list[1].ID, 50)
		})
		if got := b.due("cancel", 49, 9); len(got) != 0 {
			t.Errorf("due before the second try: %+v", got)
		}
		if got := b.due("cancel", 50, 9); len(got) != 1 || got[0].Attempts != 1 {
			t.Errorf("due at the second try: %+v", got)
		}
	})
}

func TestAnEffectOfAFailedTransactionNeverWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := book{t, db}
		failure := errors.New("the state could not be changed")
		err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return errors.Join(Put(ctx, tx, "cancel", "agent-1", nil, 1), failure)
		})
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
		if got := b.due("cancel", 1, 9); len(got) != 0 {
			t.Errorf("due: %+v", got)
		}
	})
}
