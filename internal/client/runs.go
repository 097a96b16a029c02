package client

import (
	"context"
	"net/url"
	"strconv"

	"kici/internal/core/adminwire"
)

const runsPath = "/api/v1/admin/runs"

// RunQuery narrows the list of runs. Zero fields do not.
type RunQuery struct {
	Status   string // comma list
	Workflow string
	Repo     string
	Since    string // RFC 3339
	Delivery string // id of the delivery that the runs come of
	Org      string
	Limit    int
	Offset   int
}

func (q RunQuery) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"status": q.Status, "workflowName": q.Workflow, "repo": q.Repo, "since": q.Since,
		"deliveryId": q.Delivery, "orgId": q.Org} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, n := range map[string]int{"limit": q.Limit, "offset": q.Offset} {
		if n > 0 {
			v.Set(name, strconv.Itoa(n))
		}
	}
	return v
}

// Runs lists runs, newest first.
func (c *Client) Runs(ctx context.Context, q RunQuery) (adminwire.RunList, error) {
	var out adminwire.RunList
	return out, c.call(ctx, "GET", runsPath, q.values(), nil, &out)
}

// Run reads one run.
func (c *Client) Run(ctx context.Context, id string) (adminwire.RunDetail, error) {
	var out struct{ Run adminwire.RunDetail }
	return out.Run, c.call(ctx, "GET", at(runsPath+"/", id), nil, nil, &out)
}

// Jobs reads the jobs of a run, with their steps.
func (c *Client) Jobs(ctx context.Context, id string) ([]adminwire.Job, error) {
	var out struct{ Jobs []adminwire.Job }
	return out.Jobs, c.call(ctx, "GET", at(runsPath+"/", id, "/jobs"), url.Values{"includeSteps": {"true"}}, nil, &out)
}

// Result reads a run as programs want it, with every text that others chose marked as untrusted.
func (c *Client) Result(ctx context.Context, id string) (adminwire.RunResult, error) {
	var out adminwire.RunResult
	return out, c.call(ctx, "GET", at(runsPath+"/", id, "/structured"), nil, nil, &out)
}

// SecretOutputs lists the secret outputs of a run that goes on, with their values when they are to be revealed. A key narrows
// the list to those of that name.
func (c *Client) SecretOutputs(ctx context.Context, id, key string, reveal bool) (adminwire.SecretOutputList, error) {
	v := url.Values{}
	if key != "" {
		v.Set("outputKey", key)
	}
	if reveal {
		v.Set("reveal", "true")
	}
	var out adminwire.SecretOutputList
	return out, c.call(ctx, "GET", at(runsPath+"/", id, "/secret-outputs"), v, nil, &out)
}

// RunKey tells whether a run has a key for secret outputs.
func (c *Client) RunKey(ctx context.Context, id string) (adminwire.RunKey, error) {
	var out adminwire.RunKey
	return out, c.call(ctx, "GET", at(runsPath+"/", id, "/ephemeral-key"), nil, nil, &out)
}

// CountRuns counts the runs that pass the query.
func (c *Client) CountRuns(ctx context.Context, q RunQuery) (int, error) {
	v := q.values()
	v.Set("count", "true")
	var out struct{ Total int }
	return out.Total, c.call(ctx, "GET", runsPath, v, nil, &out)
}

// Explain says what everything in a run waits for, and why it ended.
func (c *Client) Explain(ctx context.Context, id string) (adminwire.Explanation, error) {
	var out adminwire.Explanation
	return out, c.call(ctx, "GET", at(runsPath+"/", id, "/explain"), nil, nil, &out)
}

// Cancel asks for the end of a run.
func (c *Client) Cancel(ctx context.Context, id string, force bool) (adminwire.CancelResult, error) {
	var out adminwire.CancelResult
	return out, c.call(ctx, "POST", at(runsPath+"/", id, "/cancel"), nil, map[string]bool{"force": force}, &out)
}
