package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSeats(t *testing.T) {
	const most = usualSeats + 2
	took := func(ctx context.Context, s seats) time.Duration {
		t.Helper()
		began := time.Now()
		if err := s.take(ctx); err != nil {
			t.Error(err)
		}
		return time.Since(began)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSeats(most)
		for i := range 2 * most {
			if i >= usualSeats {
				if at := took(t.Context(), s); at != seatWait {
					t.Errorf("seat %d after %s", i, at)
				}
			} else if at := took(t.Context(), s); at != 0 {
				t.Errorf("seat %d after %s", i, at)
			}
		}
		time.AfterFunc(seatWait/4, s.give)
		if at := took(t.Context(), s); at != seatWait/4 {
			t.Errorf("a seat that is given back is taken after %s", at)
		}
		ctx, cancel := context.WithTimeout(t.Context(), seatWait/2)
		defer cancel()
		if err := s.take(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who does not wait that long: %v", err)
		}
		for range 2 * most {
			s.give()
		}
		for i := range most {
			if at := took(t.Context(), s); at != 0 {
				t.Errorf("seat %d of those that were brought after %s", i, at)
			}
		}
		if at := took(t.Context(), s); at != seatWait {
			t.Errorf("there are more seats than connections: one after %s", at)
		}
	})
}
