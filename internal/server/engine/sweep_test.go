package engine

import (
	"slices"
	"testing"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// TestSweepsDoNotGoThroughWhatHasEnded is about queries that are asked every second, or nearly so.
func TestSweepsDoNotGoThroughWhatHasEnded(t *testing.T) {
	for query, want := range map[string][]string{
		selectStale:       {"SCAN q USING INDEX dispatch_queue_agents", "SCAN q USING INDEX dispatch_queue_agents"},
		selectOverran:     {"SCAN q USING INDEX dispatch_queue_agents"},
		selectFirstDue:    {"SCAN q USING INDEX dispatch_queue_agents"},
		selectOverdueRuns: {"SCAN execution_runs USING INDEX execution_runs_limited"},
	} {
		args := []any{1, 9}
		if query == selectFirstDue {
			args = nil
		}
		scans := storetest.Scans(t, func(q store.Querier) {
			if err := q.All(t.Context(), store.Ask{Query: query, Args: args, Row: func(store.Row) error { return nil }}); err != nil {
				t.Fatal(err)
			}
		})
		if !slices.Equal(scans, want) {
			t.Errorf("%.60q goes through %q", query, scans)
		}
	}
}
