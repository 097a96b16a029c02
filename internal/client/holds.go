package client

import (
	"context"
	"net/url"

	"kici/internal/core/adminwire"
)

const heldRunsPath = "/api/v1/admin/held-runs"

// HoldQuery narrows the list of holds. Zero fields do not, but that without states those that are open are listed.
type HoldQuery struct {
	RunID  string
	Status string // comma list
	Org    string
}

// HeldRuns lists holds, the oldest first.
func (c *Client) HeldRuns(ctx context.Context, q HoldQuery) ([]adminwire.HeldRun, error) {
	v := url.Values{"limit": {"1000"}}
	for name, value := range map[string]string{"runId": q.RunID, "status": q.Status, "orgId": q.Org} {
		if value != "" {
			v.Set(name, value)
		}
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
