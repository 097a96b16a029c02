// Package cluster knows the nodes that share the database: who is alive, and who holds the right to act alone on
// something. A lease has an epoch and an end; two live holders do no harm, since what they do is conditional.
package cluster

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// Beat says that a node is alive.
func Beat(ctx context.Context, tx *store.Tx, nodeID string, startedAt, now int64) error {
	_, err := tx.ExecContext(ctx, beatNode, nodeID, startedAt, now)
	if err != nil {
		return fmt.Errorf("beat node: %w", err)
	}
	return nil
}

// Dead lists the nodes that were last seen before since, other than the one that asks.
func Dead(ctx context.Context, q store.Querier, self string, since int64) ([]string, error) {
	rows, err := q.QueryContext(ctx, "SELECT id FROM nodes WHERE id <> $1 AND seen_at < $2 ORDER BY id", self, since)
	if err != nil {
		return nil, fmt.Errorf("list dead nodes: %w", err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, rows.Err()
}

// Bury forgets a dead node once its work has been taken over.
func Bury(ctx context.Context, tx *store.Tx, nodeID string) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM nodes WHERE id = $1", nodeID)
	return err
}

// Acquire takes or renews a lease and reports whether the node holds it now. The epoch grows with every change of
// holder.
func Acquire(ctx context.Context, tx *store.Tx, name, nodeID string, now, until int64) (bool, error) {
	return store.Changed(tx.ExecContext(ctx, acquireLease, name, nodeID, now, until))
}

const (
	beatNode = `INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, seen_at = excluded.seen_at`

	acquireLease = `INSERT INTO leases (name, holder, epoch, expires_at) VALUES ($1, $2, 1, $4)
ON CONFLICT (name) DO UPDATE SET
    epoch = CASE WHEN leases.holder = excluded.holder THEN leases.epoch ELSE leases.epoch + 1 END,
    holder = excluded.holder, expires_at = excluded.expires_at
WHERE leases.holder = excluded.holder OR leases.expires_at < $3`
)
