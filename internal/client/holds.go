package client

import (
	"context"
	"net/url"

	"kici/internal/core/adminwire"
)

const heldRunsPath = "/api/v1/admin/held-runs"

// HeldRuns lists holds, the oldest first. A run of "" is every run; status is a comma list, "" those that are open.
func (c *Client) HeldRuns(ctx context.Context, runID, status string) ([]adminwire.HeldRun, error) {
	v := url.Values{"limit": {"1000"}}
	if runID != "" {
		v.Set("runId", runID)
	}
	if status != "" {
		v.Set("status", status)
	}
	var out adminwire.HeldRunList
	return out.HeldRuns, c.call(ctx, "GET", heldRunsPath, v, nil, &out)
}

// DecideHold answers a hold.
func (c *Client) DecideHold(ctx context.Context, a adminwire.HoldAnswer) (adminwire.HoldDecided, error) {
	var out adminwire.HoldDecided
	return out, c.call(ctx, "POST", heldRunsPath+"/decision", nil, a, &out)
}

// Rerun starts an ended run again, as a new run.
func (c *Client) Rerun(ctx context.Context, runID string) (adminwire.Rerun, error) {
	var out adminwire.Rerun
	return out, c.call(ctx, "POST", at(runsPath+"/", runID, "/rerun"), nil, nil, &out)
}
