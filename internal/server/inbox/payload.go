package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"kici/internal/server/store"
)

// Payload reads the body of a delivery as it was received. ok is false when it is no longer kept: it goes with the claim.
func Payload(ctx context.Context, q store.Querier, orgID, deliveryID string) (body []byte, ok bool, err error) {
	err = q.QueryRowContext(ctx, "SELECT payload FROM inbox WHERE delivery_id = $1 AND org_id = $2", deliveryID, orgID).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read payload of delivery %s: %w", deliveryID, err)
	}
	return body, true, nil
}
