package report

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
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
	OrgID      string
	RoutingKey string // of a scoped token
	Scope      string // of who asks: jobs of other routing keys are not named; "" names all
	Now        int64  // when somebody asks, epoch ms
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
		{"r.org_id = ?", f.OrgID}, {"r.routing_key = ?", f.RoutingKey}, {"lower(j.job_name) NOT LIKE lower(?)", f.NotLike}} {
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
	view, err := newFleetView(ctx, q, f.Scope, f.Now)
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
	selectorID   string
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
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list queue: %w", err)
	}
	return out, addAhead(ctx, q, out)
}

// addAhead counts what stands in line before each pending row: the rows of the same selector, all of which are looked at once,
// however many of them are asked about.
func addAhead(ctx context.Context, q store.Querier, rows []waiting) error {
	at := map[string]*waiting{}
	var ids, selectors []string
	for i, w := range rows {
		if w.entry.Status != ci.QueuePending {
			continue
		}
		at[w.entry.ID], ids = &rows[i], append(ids, w.entry.ID)
		if !slices.Contains(selectors, w.selectorID) {
			selectors = append(selectors, w.selectorID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	places, args := placesOf(append(selectors, ids...))
	list := strings.Split(places, ",")
	ofSelectors, ofRows := strings.Join(list[:len(selectors)], ","), strings.Join(list[len(selectors):], ",")
	return each(ctx, q, fmt.Sprintf(selectAhead, ofSelectors, ofRows), args, func(scan func(...any) error) error {
		var id string
		var ahead int
		err := scan(&id, &ahead)
		if w := at[id]; err == nil && w != nil {
			w.ahead = ahead
		}
		return err
	})
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
		&started, &sign, &w.progress, &progress, &reason, &w.selectorID)
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
	selectQueue = `SELECT q.id, q.run_id, r.workflow_name, j.job_name, q.status, r.routing_key, r.provider, q.created_at, q.expires_at,
r.delivery_id, q.agent_id, q.attempts, j.runs_on_labels, s.canonical, q.claimed_at, q.ack_deadline, q.recovery_deadline, q.started,
q.last_provisioning_error, j.started_at, j.last_heartbeat_at, j.progress, j.progress_at, j.reason, q.selector_id
FROM dispatch_queue q JOIN execution_jobs j ON j.job_id = q.id JOIN execution_runs r ON r.run_id = q.run_id
JOIN selectors s ON s.id = q.selector_id`

	selectAhead = `SELECT id, ahead FROM (SELECT id, row_number() OVER (PARTITION BY selector_id ORDER BY created_at, position, id) - 1 AS ahead
FROM dispatch_queue WHERE status = 'pending' AND selector_id IN (%s)) line WHERE id IN (%s)`
)
