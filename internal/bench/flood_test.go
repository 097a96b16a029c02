package bench

import (
	"context"
	"testing"
	"testing/synctest"

	"kici/internal/core/wire"
)

// An acknowledgement stands for the frames before it; one of a frame that is not known, or was covered already, changes
// nothing.
func TestAnAcknowledgementMakesRoom(t *testing.T) {
	tests := []struct {
		name string
		acks []string
		most int
		left int
	}{
		{"the last one stands for all", []string{"c"}, 0, 0},
		{"one in the middle for those before", []string{"b"}, 1, 1},
		{"an unknown one for nothing", []string{"x", "a"}, 2, 2},
		{"one that is covered for nothing", []string{"b", "a", "c"}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &flood{acked: make(chan wire.Ack, 10), sent: []string{"a", "b", "c"}}
			for _, id := range tt.acks {
				f.acked <- wire.Ack{MessageID: id}
			}
			if err := f.await(t.Context(), tt.most); err != nil {
				t.Fatal(err)
			}
			if len(f.sent) != tt.left {
				t.Errorf("%d frames wait, want %d", len(f.sent), tt.left)
			}
		})
	}
}

func TestAFloodThatIsNotAcknowledgedEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		f := &flood{acked: make(chan wire.Ack), sent: []string{"a"}}
		go func() { ended <- f.await(ctx, 0) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("did not wait: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("waiting for nothing ended without an error")
		}
	})
}
