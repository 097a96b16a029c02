package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"kici/internal/core/adminwire"
)

const queuePath = "/api/v1/admin/queue"

// QueueQuery narrows the list of the queue. Zero fields do not, but that without states all that have not ended are listed.
type QueueQuery struct {
	Status      string // comma list
	StatusNotIn string // comma list
	Job         string
	JobPrefix   string
	JobNotLike  string // % is any text and _ any character
	Workflow    string
	After       string // RFC 3339
	Org         string
	Limit       int
}

// Queue lists the jobs of the queue, oldest first.
func (c *Client) Queue(ctx context.Context, q QueueQuery) ([]adminwire.QueueEntry, error) {
	v := url.Values{}
	for name, value := range map[string]string{"status": q.Status, "statusNotIn": q.StatusNotIn, "jobName": q.Job, "jobNamePrefix": q.JobPrefix,
		"jobNameNotLike": q.JobNotLike, "workflowName": q.Workflow, "createdAfter": q.After, "orgId": q.Org} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var out struct{ Entries []adminwire.QueueEntry }
	return out.Entries, c.call(ctx, "GET", queuePath, v, nil, &out)
}

// Queued reads one job of the queue by its id.
func (c *Client) Queued(ctx context.Context, id string) (adminwire.QueueEntry, error) {
	var out adminwire.QueueEntry
	return out, c.call(ctx, "GET", at(queuePath+"/", id), nil, nil, &out)
}

// ClearQueue ends every run of which a job waits in the queue.
func (c *Client) ClearQueue(ctx context.Context) (adminwire.Cleared, error) {
	var out adminwire.Cleared
	return out, c.call(ctx, "POST", queuePath+"/clear", nil, nil, &out)
}

const executionsPath = "/api/v1/admin/executions"

// ExecutionQuery narrows the list of executions. Zero fields do not.
type ExecutionQuery struct {
	RoutingKey string
	Status     string // comma list
	Workflow   string
	Org        string
	Limit      int
}

// Executions lists runs by the names of their columns, newest first.
func (c *Client) Executions(ctx context.Context, q ExecutionQuery) (adminwire.ExecutionList, error) {
	v := url.Values{}
	for name, value := range map[string]string{"routingKey": q.RoutingKey, "status": q.Status, "workflowName": q.Workflow, "orgId": q.Org} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var out adminwire.ExecutionList
	return out, c.call(ctx, "GET", executionsPath, v, nil, &out)
}

// Execution reads one run with its jobs by the names of their columns.
func (c *Client) Execution(ctx context.Context, id string) (adminwire.OneExecution, error) {
	var out adminwire.OneExecution
	return out, c.call(ctx, "GET", at(executionsPath+"/", id), nil, nil, &out)
}

// PurgeStale deletes the ended runs of every routing key but one. It may take long.
func (c *Client) PurgeStale(ctx context.Context, routingKey string) (adminwire.Purged, error) {
	var out adminwire.Purged
	return out, c.callWithin(ctx, purgeTimeout, "POST", "/api/v1/admin/execution/purge-stale", nil, map[string]string{"routingKey": routingKey}, &out)
}

// purgeTimeout bounds the deletion of a history.
const purgeTimeout = time.Hour

// Timeline reads what is kept of the events of a run, in order of time.
func (c *Client) Timeline(ctx context.Context, runID string) (adminwire.Timeline, error) {
	var out adminwire.Timeline
	return out, c.call(ctx, "GET", at(runsPath+"/", runID, "/events"), nil, nil, &out)
}

// Surroundings reads where a job ran, as its agent described it.
func (c *Client) Surroundings(ctx context.Context, runID, jobID string) (adminwire.Surroundings, error) {
	var out adminwire.Surroundings
	return out, c.call(ctx, "GET", at(runsPath+"/", runID, "/jobs/", jobID, "/context"), nil, nil, &out)
}
