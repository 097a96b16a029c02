package client

import (
	"context"

	"kici/internal/core/adminwire"
)

// RotateKey has everything that is sealed sealed with the server's current master key.
func (c *Client) RotateKey(ctx context.Context) (adminwire.RotatedKey, error) {
	var out adminwire.RotatedKey
	return out, c.call(ctx, "POST", "/api/v1/admin/rotate-key", nil, nil, &out)
}
