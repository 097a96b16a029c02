package report

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/server/store"
)

// DeliveryFilter narrows the log of deliveries. Zero fields do not.
type DeliveryFilter struct {
	OrgID      string
	RoutingKey string
	Event      string
	Action     string
	Status     string
	DeliveryID string // part of the id, in any case
	From       int64  // received then or later
	To         int64  // received before
	Limit      int
	Offset     int
}

func (f DeliveryFilter) where() (string, []any) {
	var conditions []string
	var args []any
	add := func(condition string, value any) {
		args = append(args, value)
		conditions = append(conditions, strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", len(args))))
	}
	for _, c := range []struct{ column, value string }{{"org_id", f.OrgID}, {"routing_key", f.RoutingKey}, {"event", f.Event},
		{"action", f.Action}, {"status", f.Status}} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if f.DeliveryID != "" {
		add(`lower(delivery_id) LIKE lower(?) ESCAPE '!'`, "%"+strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(f.DeliveryID)+"%")
	}
	if f.From != 0 {
		add("received_at >= ?", f.From)
	}
	if f.To != 0 {
		add("received_at < ?", f.To)
	}
	if len(conditions) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// Deliveries lists deliveries, newest first, and counts all that pass the filter.
func Deliveries(ctx context.Context, q store.Querier, f DeliveryFilter) (list []adminwire.Delivery, total int, err error) {
	where, args := f.where()
	if err := q.QueryRowContext(ctx, "SELECT count(*) FROM event_log"+where, args...).Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("count deliveries: %w", err)
	}
	args = append(args, f.Limit, f.Offset)
	order := fmt.Sprintf(" ORDER BY received_at DESC, delivery_id LIMIT $%d OFFSET $%d", len(args)-1, len(args))
	rows, err := q.QueryContext(ctx, selectDeliveries+where+order, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list deliveries: %w", err)
	}
	defer rows.Close()
	list = []adminwire.Delivery{}
	for rows.Next() {
		d, err := scanDelivery(rows)
		if err != nil {
			return nil, 0, fmt.Errorf("list deliveries: %w", err)
		}
		list = append(list, d)
	}
	return list, total, rows.Err()
}

// DeliveryOf reads one row of the log of deliveries.
func DeliveryOf(ctx context.Context, q store.Querier, orgID, deliveryID string) (adminwire.Delivery, error) {
	d, err := scanDelivery(q.QueryRowContext(ctx, selectDeliveries+" WHERE org_id = $1 AND delivery_id = $2", orgID, deliveryID))
	if errors.Is(err, sql.ErrNoRows) {
		return d, ErrNotFound
	}
	if err != nil {
		return d, fmt.Errorf("read delivery %s: %w", deliveryID, err)
	}
	return d, nil
}

func scanDelivery(s interface{ Scan(...any) error }) (adminwire.Delivery, error) {
	var d adminwire.Delivery
	var received int64
	err := s.Scan(&d.OrgID, &d.DeliveryID, &d.RoutingKey, &d.Event, &d.Action, &d.Source, &d.Provider, &d.RepoIdentifier, &d.Ref,
		&d.Status, &d.MatchedCount, &d.RunID, &d.ErrorMessage, &received, &d.PayloadOmitted, &d.PayloadOmittedReason,
		&d.PayloadSizeBytes, &d.PayloadHash)
	d.ReceivedAt = adminwire.At(received)
	return d, err
}

const selectDeliveries = `SELECT org_id, delivery_id, routing_key, event, action, source, provider, repo_identifier, ref, status,
matched_count, run_id, error_message, received_at, payload_omitted, payload_omitted_reason, payload_size_bytes, payload_hash
FROM event_log`
