// Package outbox carries effects over a crash: whoever changes the state writes the effect in the same transaction, and
// a consumer claims it by topic, acts, and deletes the row. An effect may therefore happen twice, never not at all;
// consumers act by natural keys.
package outbox

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"kici/internal/server/store"
)

// Effect is one row.
type Effect struct {
	ID        string
	Topic     string
	Target    string // what it concerns, such as an agent id
	Payload   json.RawMessage
	CreatedAt int64 // milliseconds
	Attempts  int

	due int64 // its place in line, together with the id
}

// Put writes an effect. It is due at once.
func Put(ctx context.Context, tx *store.Tx, topic, target string, payload any, now int64) error {
	raw, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("write effect %s: %w", topic, err)
	}
	id, err := uuid.NewV7() // ids rise within a process, so the effects of one transaction keep their order
	if err != nil {
		return fmt.Errorf("write effect %s: %w", topic, err)
	}
	err = tx.Do(ctx, insertEffect, id.String(), topic, target, string(raw), now)
	if err != nil {
		return fmt.Errorf("write effect %s: %w", topic, err)
	}
	return nil
}

// Due reads up to limit effects of a topic that are due, oldest first.
func Due(ctx context.Context, q store.Querier, topic string, now int64, limit int) ([]Effect, error) {
	return Next(ctx, q, topic, now, Effect{}, limit)
}

// Next reads, like Due, those that come behind last. A consumer that leaves effects to others goes on with it, so that
// they do not stand in the way of its own.
func Next(ctx context.Context, q store.Querier, topic string, now int64, last Effect, limit int) ([]Effect, error) {
	rows, err := q.QueryContext(ctx, selectDue, topic, now, limit, last.due, last.ID)
	if err != nil {
		return nil, fmt.Errorf("read effects %s: %w", topic, err)
	}
	defer rows.Close()
	var out []Effect
	for rows.Next() {
		e := Effect{Topic: topic}
		var payload string
		if err := rows.Scan(&e.ID, &e.Target, &payload, &e.CreatedAt, &e.Attempts, &e.due); err != nil {
			return nil, err
		}
		e.Payload = json.RawMessage(payload)
		out = append(out, e)
	}
	return out, rows.Err()
}

// Waiting reads the payloads of the effects of a topic on one target that have not happened yet.
func Waiting(ctx context.Context, q store.Querier, topic, target string) ([]string, error) {
	return store.Texts(ctx, q, "SELECT payload FROM outbox WHERE topic = $1 AND target = $2 ORDER BY due_at, id", topic, target)
}

// Done deletes an effect that has happened, and reports whether it was still there.
func Done(ctx context.Context, tx *store.Tx, id string) (bool, error) {
	return store.Changed(tx.ExecContext(ctx, "DELETE FROM outbox WHERE id = $1", id))
}

// Retry makes an effect due again later.
func Retry(ctx context.Context, tx *store.Tx, id string, due int64) error {
	return tx.Do(ctx, "UPDATE outbox SET attempts = attempts + 1, due_at = $2 WHERE id = $1", id, due)
}

const (
	insertEffect = `INSERT INTO outbox (id, topic, target, payload, created_at, due_at) VALUES ($1, $2, $3, $4, $5, $5)`
	selectDue    = `SELECT id, target, payload, created_at, attempts, due_at FROM outbox
WHERE topic = $1 AND due_at <= $2 AND (due_at, id) > ($4, $5) ORDER BY due_at, id LIMIT $3`
)
