package events

import (
	"context"
	"fmt"

	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// sweepBatch bounds the rows of one transaction.
const sweepBatch = 500

// Sweep removes, until ctx ends, events that are too old. Every server may run it: a row is deleted, and counted, by one.
func (r *Room) Sweep(ctx context.Context) error {
	return service.Every(ctx, r.Log, "event sweep", r.Settings.SweepEvery, nil, r.sweepOnce)
}

func (r *Room) sweepOnce(ctx context.Context) error {
	for {
		deleted, lost, err := r.sweepBatch(ctx)
		if err != nil {
			return fmt.Errorf("sweep events: %w", err)
		}
		if lost > 0 {
			r.Dropped(reasonExpired, lost)
		}
		if deleted < sweepBatch {
			return nil
		}
	}
}

// sweepBatch deletes the oldest expired events, and tells how many of them nothing had acted on.
func (r *Room) sweepBatch(ctx context.Context) (deleted, lost int, err error) {
	err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		deleted, lost, err = remove(ctx, tx, deleteExpired, r.Clock.Millis(), sweepBatch)
		return err
	})
	return deleted, lost, err
}

// remove runs a statement that deletes events and gives back of each whether something acted on it.
func remove(ctx context.Context, tx *store.Tx, statement string, args ...any) (deleted, lost int, err error) {
	rows, err := tx.QueryContext(ctx, statement, args...)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var processed bool
		if err := rows.Scan(&processed); err != nil {
			return 0, 0, err
		}
		deleted++
		if !processed {
			lost++
		}
	}
	return deleted, lost, rows.Err()
}

// deleteExpired leaves dead letters to people.
const deleteExpired = `DELETE FROM kici_events WHERE id IN (
    SELECT id FROM kici_events WHERE expires_at <= $1 AND dlq_at IS NULL ORDER BY expires_at LIMIT $2)
RETURNING processed`
