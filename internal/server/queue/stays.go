package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"kici/internal/server/store"
)

// Stay is a time that a job spent with an agent of one node. It ends where the next one begins.
type Stay struct {
	NodeID string `json:"node"`
	Since  int64  `json:"since"` // epoch milliseconds, by the clock of that node
}

// maxMoves bounds the moves that are kept of one delivery. Beyond it only nodes that are new are added, of which there are
// few.
const maxMoves = 64

// Stays lists where a job was, in order: the node that gave it out, for each delivery, and those to which its agent took
// it later. A job that no agent ever had has none.
func Stays(ctx context.Context, q store.Querier, jobID string) ([]Stay, error) {
	rows, err := q.QueryContext(ctx, "SELECT node_id, claimed_at, moved FROM dispatch_attempts WHERE job_id = $1 ORDER BY attempt", jobID)
	if err != nil {
		return nil, fmt.Errorf("find the nodes of job %s: %w", jobID, err)
	}
	defer rows.Close()
	var out []Stay
	for rows.Next() {
		var first Stay
		var moved string
		if err := rows.Scan(&first.NodeID, &first.Since, &moved); err != nil {
			return nil, fmt.Errorf("find the nodes of job %s: %w", jobID, err)
		}
		later, err := decodeMoves(jobID, moved)
		if err != nil {
			return nil, err
		}
		out = append(append(out, first), later...)
	}
	return slices.CompactFunc(out, sameNode), rows.Err()
}

func sameNode(a, b Stay) bool { return a.NodeID == b.NodeID }

// NoteStay keeps that the agent of a job's latest delivery is with a node now, unless it was there before. The delivery is
// locked, so that of two nodes that note one at once both are kept.
func NoteStay(ctx context.Context, tx *store.Tx, jobID string, to Stay) error {
	var first, moved string
	var attempt int64
	err := tx.QueryRowContext(ctx, "SELECT attempt, node_id, moved FROM dispatch_attempts WHERE job_id = $1 ORDER BY attempt DESC LIMIT 1"+tx.ForUpdate(), jobID).
		Scan(&attempt, &first, &moved)
	if err != nil {
		return fmt.Errorf("find the delivery of job %s: %w", jobID, err)
	}
	moves, err := decodeMoves(jobID, moved)
	if err != nil {
		return err
	}
	stays := append([]Stay{{NodeID: first}}, moves...)
	known := slices.ContainsFunc(stays, func(s Stay) bool { return sameNode(s, to) })
	if sameNode(stays[len(stays)-1], to) || known && len(moves) >= maxMoves {
		return nil
	}
	raw, err := json.Marshal(append(moves, to))
	if err != nil {
		return fmt.Errorf("note the move of job %s: %w", jobID, err)
	}
	err = tx.Do(ctx, "UPDATE dispatch_attempts SET moved = $3 WHERE job_id = $1 AND attempt = $2", jobID, attempt, string(raw))
	if err != nil {
		return fmt.Errorf("note the move of job %s: %w", jobID, err)
	}
	return nil
}

func decodeMoves(jobID, moved string) (moves []Stay, err error) {
	if err := json.Unmarshal([]byte(moved), &moves); err != nil {
		return nil, fmt.Errorf("read the moves of job %s: %w", jobID, err)
	}
	return moves, nil
}
