package hub

import (
	"context"
	"errors"
	"testing"

	"kici/internal/server/store/storetest"
	"kici/internal/server/timeline"
)

func TestTelemetryIsKeptUntilItIsStoredAndNotForEver(t *testing.T) {
	h := newBenchOn(t, storetest.SQLite(t)).Hub
	event := timeline.Event{RunID: "r", Type: "agent.clone.start", Source: "agent", At: 1}
	h.telemetry.add(&event, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.storeTelemetry(gone); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	h.telemetry.add(&event, nil)
	if err := h.storeTelemetry(t.Context()); err != nil {
		t.Fatal(err)
	}
	if events, err := timeline.List(t.Context(), h.DB.Read(), "r"); err != nil || len(events) != 2 {
		t.Errorf("%d events, %v", len(events), err)
	}
	h.telemetry.add(&event, nil)
	for range maxFailures + 1 {
		_ = h.storeTelemetry(gone) // the error is the same each time
	}
	if events, _, dropped := h.telemetry.take(); len(events) != 0 || dropped != 1 {
		t.Errorf("after too many failures %d events are left and %d dropped", len(events), dropped)
	}
}

func TestTelemetryIsBounded(t *testing.T) {
	c := newTelemetry()
	for range telemetryLimit + 3 {
		c.add(&timeline.Event{}, nil)
	}
	if events, _, dropped := c.take(); len(events) != telemetryLimit || dropped != 3 {
		t.Errorf("%d events, %d dropped", len(events), dropped)
	}
}
