package link

import (
	"testing"
	"time"
)

func TestReconnectPauseGrowsToAMinute(t *testing.T) {
	tests := []struct {
		attempt int
		chance  float64
		want    time.Duration
	}{{0, 0, time.Second}, {0, 1, 1500 * time.Millisecond}, {2, 0, 2250 * time.Millisecond}, {10, 0, 57665 * time.Millisecond}, {30, 1, time.Minute}}
	for _, tt := range tests {
		if got := reconnectPause(tt.attempt, tt.chance).Truncate(time.Millisecond); got != tt.want {
			t.Errorf("pause %d = %v, want %v", tt.attempt, got, tt.want)
		}
	}
}
