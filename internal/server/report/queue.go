package report

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/server/store"
)

// maxNearest bounds the agents named beside a waiting job.
const maxNearest = 5

// QueueFilter narrows the queue's listing. Zero fields do not.
type QueueFilter struct {
	ID         string
	Statuses   []string
	NotIn      []string // states that are left out
	Workflow   string
	JobName    string
	Prefix     string // of the job's name
	NotLike    string // pattern of names that are left out, in any case: % is any text and _ any character
	After      int64  // made strictly later, epoch ms
	RoutingKey string // of a scoped token
	Scope      string // of who asks: jobs of other routing keys are not named; "" names all
	Limit      int
}

func (f QueueFilter) where() (string, []any) {
	var args []any
	conditions := []string{"1 = 1"}
	add := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		conditions = append(conditions, condition)
	}
	for _, c := range []struct{ condition, value string }{{"q.id = ?", f.ID}, {"r.workflow_name = ?", f.Workflow}, {"j.job_name = ?", f.JobName},
		{"r.routing_key = ?", f.RoutingKey}, {"lower(j.job_name) NOT LIKE lower(?)", f.NotLike}} {
		if c.value != "" {
			add(c.condition, c.value)
		}
	}
	if f.Prefix != "" {
		add("substr(j.job_name, 1, length(CAST(? AS TEXT))) = ?", f.Prefix, f.Prefix)
	}
	for _, c := range []struct {
		operator string
		states   []string
	}{{"IN", f.Statuses}, {"NOT IN", f.NotIn}} {
		if len(c.states) > 0 {
			add("q.status "+c.operator+" ("+strings.TrimSuffix(strings.Repeat("?, ", len(c.states)), ", ")+")", anys(c.states)...)
		}
	}
	if f.After != 0 {
		add("q.created_at > ?", f.After)
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

// Queue lists queue rows, oldest first, each with the reason why it stands where it does and, for pending ones, the
// agents that come nearest.
func Queue(ctx context.Context, q store.Querier, f QueueFilter) ([]adminwire.QueueEntry, error) {
	where, args := f.where()
	args = append(args, f.Limit)
	waiting, err := readWaiting(ctx, q, selectQueue+where+fmt.Sprintf(" ORDER BY q.created_at, q.position, q.id LIMIT $%d", len(args)), args...)
	if err != nil {
		return nil, err
	}
	view, err := newFleetView(ctx, q, f.Scope)
	if err != nil {
		return nil, err
	}
	entries := make([]adminwire.QueueEntry, len(waiting))
	for i, w := range waiting {
		entries[i] = w.entry
		entries[i].Reason = view.reason(w)
		if w.entry.Status == ci.QueuePending {
			entries[i].Nearest = view.nearest(w.selector, maxNearest)
		}
	}
	return entries, nil
}

// waiting is a queue row with what its explanation needs. Times are epoch milliseconds, 0 for none.
type waiting struct {
	entry        adminwire.QueueEntry
	selector     label.Selector
	claimed      int64
	ackUntil     int64
	recoverUntil int64
	started      bool
	startedAt    int64
	lastSign     int64      // of life, from the agent
	progress     int64      // what the agent has counted of the job, 0 when it does not count
	progressAt   int64      // when that last grew
	provisioning string     // why no agent could be started for it
	reason       *ci.Reason // stored with the job
	ahead        int        // rows of the same selector before it
}

func readWaiting(ctx context.Context, q store.Querier, query string, args ...any) ([]waiting, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list queue: %w", err)
	}
	defer rows.Close()
	var out []waiting
	for rows.Next() {
		w, err := scanWaiting(rows)
		if err != nil {
			return nil, fmt.Errorf("list queue: %w", err)
		}
		out = append(out, w)
	}
	return out, rows.Err()
}

func scanWaiting(s interface{ Scan(...any) error }) (waiting, error) {
	var w waiting
	var created int64
	var expires, claimed, ack, recovery, started, sign, progress sql.NullInt64
	var selector, labels string
	var reason, provisioning sql.NullString
	e := &w.entry
	err := s.Scan(&e.ID, &e.RunID, &e.WorkflowName, &e.JobName, &e.Status, &e.RoutingKey, &e.Provider, &created, &expires,
		&e.DeliveryID, &e.AgentID, &e.Attempts, &labels, &selector, &claimed, &ack, &recovery, &w.started, &provisioning,
		&started, &sign, &w.progress, &progress, &reason, &w.ahead)
	if err != nil {
		return w, err
	}
	e.CreatedAt, e.ExpiresAt = adminwire.At(created), adminwire.At(expires.Int64)
	w.claimed, w.ackUntil, w.recoverUntil, w.startedAt, w.lastSign = claimed.Int64, ack.Int64, recovery.Int64, started.Int64, sign.Int64
	w.provisioning, w.progressAt = provisioning.String, progress.Int64
	if w.selector, err = label.ParseSelector(selector); err != nil {
		return w, err
	}
	if w.reason, err = decode[ci.Reason](reason); err != nil {
		return w, err
	}
	return w, json.Unmarshal([]byte(labels), &e.RunsOn)
}

const (
	// Rows of the same selector before a row are what stands in line before it.
	selectQueue = `SELECT q.id, q.run_id, r.workflow_name, j.job_name, q.status, r.routing_key, r.provider, q.created_at, q.expires_at,
r.delivery_id, q.agent_id, q.attempts, j.runs_on_labels, s.canonical, q.claimed_at, q.ack_deadline, q.recovery_deadline, q.started,
q.last_provisioning_error, j.started_at, j.last_heartbeat_at, j.progress, j.progress_at, j.reason,
(SELECT count(*) FROM dispatch_queue p WHERE p.status = 'pending' AND p.selector_id = q.selector_id
    AND (p.created_at, p.position, p.id) < (q.created_at, q.position, q.id))
FROM dispatch_queue q JOIN execution_jobs j ON j.job_id = q.id JOIN execution_runs r ON r.run_id = q.run_id
JOIN selectors s ON s.id = q.selector_id`
)
