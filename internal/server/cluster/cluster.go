// Package cluster knows the nodes that share the database: who is alive, and who holds the right to act alone on
// something. A lease has an epoch and an end; two live holders do no harm, since what they do is conditional. Wake-ups
// travel between the nodes and carry nothing: whoever is woken reads the database.
package cluster

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// Node is a server process that shares the database. Times are epoch milliseconds by its own clock.
type Node struct {
	ID        string
	Address   string // base URL under which other nodes reach it, "" when it did not say
	StartedAt int64
	SeenAt    int64
	Draining  bool // it gives out no jobs
}

// Beat says that a node is alive, and reports whether it had been forgotten: at its first beat, and when others took it
// for dead meanwhile.
func Beat(ctx context.Context, tx *store.Tx, n Node) (forgotten bool, err error) {
	known, err := store.Changed(tx.ExecContext(ctx, touchNode, n.ID, n.StartedAt, n.SeenAt, n.Address, n.Draining))
	if err != nil || known {
		return false, wrap("beat node", err)
	}
	err = tx.Do(ctx, insertNode, n.ID, n.StartedAt, n.SeenAt, n.Address, n.Draining)
	return true, wrap("beat node", err)
}

// Nodes lists the nodes, by id. One that died is among them until it is buried.
func Nodes(ctx context.Context, q store.Querier) ([]Node, error) {
	rows, err := q.QueryContext(ctx, "SELECT id, address, started_at, seen_at, draining FROM nodes ORDER BY id")
	if err != nil {
		return nil, wrap("list nodes", err)
	}
	defer rows.Close()
	var out []Node
	for rows.Next() {
		var n Node
		if err := rows.Scan(&n.ID, &n.Address, &n.StartedAt, &n.SeenAt, &n.Draining); err != nil {
			return nil, wrap("list nodes", err)
		}
		out = append(out, n)
	}
	return out, rows.Err()
}

// SetDraining says at once, for those who ask why a job waits, whether a node gives out jobs. Its beats say it again.
func SetDraining(ctx context.Context, tx *store.Tx, nodeID string, on bool) error {
	err := tx.Do(ctx, "UPDATE nodes SET draining = $2 WHERE id = $1", nodeID, on)
	return wrap("note the drain of a node", err)
}

// Bury forgets a dead node once its work has been taken over. Should it live after all, its next beat tells it so.
func Bury(ctx context.Context, tx *store.Tx, nodeID string) error {
	err := tx.Do(ctx, "DELETE FROM nodes WHERE id = $1", nodeID)
	return wrap("bury node", err)
}

// Acquire takes or renews a lease and reports whether the node holds it now. The epoch grows with every change of
// holder.
func Acquire(ctx context.Context, tx *store.Tx, name, nodeID string, now, until int64) (bool, error) {
	return store.Changed(tx.ExecContext(ctx, acquireLease, name, nodeID, now, until))
}

// Release ends a lease before its time, for a holder that is done.
func Release(ctx context.Context, tx *store.Tx, name, nodeID string) error {
	err := tx.Do(ctx, "UPDATE leases SET expires_at = 0 WHERE name = $1 AND holder = $2", name, nodeID)
	return wrap("release lease", err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

const (
	touchNode = `UPDATE nodes SET started_at = $2, seen_at = $3, address = $4, draining = $5 WHERE id = $1`

	insertNode = `INSERT INTO nodes (id, started_at, seen_at, address, draining) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`

	acquireLease = `INSERT INTO leases (name, holder, epoch, expires_at) VALUES ($1, $2, 1, $4)
ON CONFLICT (name) DO UPDATE SET
    epoch = CASE WHEN leases.holder = excluded.holder THEN leases.epoch ELSE leases.epoch + 1 END,
    holder = excluded.holder, expires_at = excluded.expires_at
WHERE leases.holder = excluded.holder OR leases.expires_at < $3`
)
