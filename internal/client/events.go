package client

import (
	"context"

	"kici/internal/core/adminwire"
)

// EmitEvent tells the workflows of an organisation something, and gives the id of the event.
func (c *Client) EmitEvent(ctx context.Context, e adminwire.EmitEvent) (adminwire.EmittedEvent, error) {
	var out adminwire.EmittedEvent
	return out, c.call(ctx, "POST", "/api/v1/admin/events/emit", nil, e, &out)
}
