package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// usual is how many connections are opened without a wait.
const usual = 4

// within runs fn in the innermost of a number of transactions that are open at once.
func within(ctx context.Context, db *store.DB, n int, fn func(ctx context.Context) error) error {
	if n == 0 {
		return fn(ctx)
	}
	return db.Write(ctx, func(context.Context, *store.Tx) error { return within(ctx, db, n-1, fn) })
}

// Who finds the usual connections in use waits for one of them, and opens another only in vain.
func TestACrowdSharesConnections(t *testing.T) {
	db := storetest.Postgres(t)
	db.WaitForConnections(time.Hour)
	err := within(t.Context(), db, usual, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		return within(ctx, db, 1, func(context.Context) error { return nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) || db.Connections() != usual {
		t.Errorf("%v, %d connections", err, db.Connections())
	}
	var crowd sync.WaitGroup
	for i := range 8 * usual {
		crowd.Go(func() {
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				return tx.Do(ctx, insertNode, fmt.Sprint(i))
			})
			if err := errors.Join(err, db.Ping(t.Context()), db.Read().All(t.Context(), store.Ask{Query: "SELECT 1", Row: func(store.Row) error { return nil }})); err != nil {
				t.Error(err)
			}
		})
	}
	crowd.Wait()
	if got := nodes(t, db); len(got) != 8*usual || db.Connections() != usual {
		t.Errorf("stored %v, %d connections", got, db.Connections())
	}
	db.WaitForConnections(0)
	if err := within(t.Context(), db, usual+2, db.Ping); err != nil || db.Connections() != usual+3 {
		t.Errorf("%v, %d connections", err, db.Connections())
	}
	db.WaitForConnections(time.Hour)
	if err := within(t.Context(), db, usual+2, db.Ping); err != nil || db.Connections() != usual+3 {
		t.Errorf("once more: %v, %d connections", err, db.Connections())
	}
}
