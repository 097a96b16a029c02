package queue

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// Waiting is the pending rows of one selector.
type Waiting struct {
	SelectorID string
	Rows       int
	Oldest     int64 // its place in line, epoch milliseconds
}

// WaitingBySelector counts the pending rows of every selector that has some. It reads all of them in the index: ask from
// time to time, not per job.
func WaitingBySelector(ctx context.Context, q store.Querier) ([]Waiting, error) {
	rows, err := q.QueryContext(ctx, "SELECT selector_id, count(*), min(created_at) FROM dispatch_queue WHERE status = 'pending' GROUP BY selector_id")
	if err != nil {
		return nil, fmt.Errorf("count waiting jobs: %w", err)
	}
	defer rows.Close()
	var out []Waiting
	for rows.Next() {
		var w Waiting
		if err := rows.Scan(&w.SelectorID, &w.Rows, &w.Oldest); err != nil {
			return nil, fmt.Errorf("count waiting jobs: %w", err)
		}
		out = append(out, w)
	}
	return out, rows.Err()
}

// Dispatched counts the rows that are with agents, those of one node or, with "", of all.
func Dispatched(ctx context.Context, q store.Querier, nodeID string) (int, error) {
	var n int
	err := q.QueryRowContext(ctx, "SELECT count(*) FROM dispatch_queue"+withAgents+" AND status = 'dispatched' AND ($1 = '' OR node_id = $1)", nodeID).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count dispatched jobs: %w", err)
	}
	return n, nil
}
