package client

import (
	"context"

	"kici/internal/core/adminwire"
)

const drainPath = "/api/v1/admin/orchestrator/drain"

// Drain tells whether the node that answers drains, and how many jobs are with its agents.
func (c *Client) Drain(ctx context.Context) (adminwire.Drain, error) {
	var out adminwire.Drain
	return out, c.call(ctx, "GET", drainPath, nil, nil, &out)
}

// SetDrain makes the node that answers drain, or work again.
func (c *Client) SetDrain(ctx context.Context, on bool) (adminwire.Drain, error) {
	in := adminwire.DrainRequest{Action: adminwire.ResumeAction}
	if on {
		in.Action = adminwire.DrainAction
	}
	var out adminwire.Drain
	return out, c.call(ctx, "POST", drainPath, nil, in, &out)
}
