package logs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"kici/internal/kit/blob"
	"kici/internal/server/logs/retention"
)

// walked is an object store that counts how often all logs are looked at, which takes a while.
type walked struct {
	blob.Store
	walks int
	takes time.Duration
	fails bool
}

func (w *walked) Walk(ctx context.Context, folder string, visit func(blob.Info) error) error {
	if folder == runsFolder {
		w.walks++
		time.Sleep(w.takes)
		if w.fails {
			return errDown
		}
	}
	return w.Store.Walk(ctx, folder, visit)
}

// An object store is looked at a few times a day, less often where that takes long, and again at the next turn where it failed.
func TestHowOftenAnObjectStoreIsSwept(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store walked
		want  int
	}{
		{"quick", walked{}, 4},
		{"slow", walked{takes: 7 * time.Minute}, 3},
		{"failing", walked{fails: true}, 24 * 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := segmentHome(t)
			tt.store.Store = h.segments
			synctest.Test(t, func(t *testing.T) {
				s, err := Open(t.Context(), Options{Root: h.root, Segments: &tt.store})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour-time.Second)
				defer cancel()
				keep := retention.Policy{MaxAge: 90 * 24 * time.Hour, Run: states{}.of}
				if err := s.Sweep(ctx, keep); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the loop ended with %v", err)
				}
				if tt.store.walks != tt.want {
					t.Errorf("%d walks a day, want %d", tt.store.walks, tt.want)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
