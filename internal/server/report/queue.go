package report

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

// maxNearest bounds the agents named beside a waiting job.
const maxNearest = 5

// QueueFilter narrows the queue's listing. Zero fields do not.
type QueueFilter struct {
	ID         string
	Statuses   []string
	Workflow   string
	JobName    string
	RoutingKey string // of a scoped token
	Limit      int
}

// Queue lists queue rows, oldest first, each with the reason why it stands where it does and, for pending ones, the
// agents that come nearest.
func Queue(ctx context.Context, q store.Querier, f QueueFilter) ([]adminwire.QueueEntry, error) {
	var args []any
	var conditions []string
	for _, c := range []struct{ column, value string }{{"q.id", f.ID}, {"r.workflow_name", f.Workflow}, {"j.job_name", f.JobName},
		{"r.routing_key", f.RoutingKey}} {
		if c.value != "" {
			args = append(args, c.value)
			conditions = append(conditions, fmt.Sprintf("%s = $%d", c.column, len(args)))
		}
	}
	if len(f.Statuses) > 0 {
		var places []string
		for _, s := range f.Statuses {
			args = append(args, s)
			places = append(places, fmt.Sprintf("$%d", len(args)))
		}
		conditions = append(conditions, "q.status IN ("+strings.Join(places, ", ")+")")
	}
	where := ""
	if len(conditions) > 0 {
		where = " WHERE " + strings.Join(conditions, " AND ")
	}
	args = append(args, f.Limit)
	waiting, err := readWaiting(ctx, q, selectQueue+where+fmt.Sprintf(" ORDER BY q.created_at, q.position, q.id LIMIT $%d", len(args)), args...)
	if err != nil {
		return nil, err
	}
	view, err := newFleetView(ctx, q)
	if err != nil {
		return nil, err
	}
	entries := make([]adminwire.QueueEntry, len(waiting))
	for i, w := range waiting {
		w.entry.Reason, w.entry.Nearest = view.explain(w)
		w.entry.Nearest = w.entry.Nearest[:min(len(w.entry.Nearest), maxNearest)]
		entries[i] = w.entry
	}
	return entries, nil
}

// waiting is a queue row with what its explanation needs.
type waiting struct {
	entry            adminwire.QueueEntry
	selector         label.Selector
	ackDeadline      int64
	recoveryDeadline int64
	reason           *ci.Reason // stored with the job
	ahead            int        // rows of the same selector before it
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
	var expires, ack, recovery *int64
	var selector, labels string
	var reason sql.NullString
	e := &w.entry
	err := s.Scan(&e.ID, &e.RunID, &e.WorkflowName, &e.JobName, &e.Status, &e.RoutingKey, &e.Provider, &created, &expires,
		&e.DeliveryID, &e.AgentID, &e.Attempts, &labels, &selector, &ack, &recovery, &reason, &w.ahead)
	if err != nil {
		return w, err
	}
	e.CreatedAt, e.ExpiresAt = adminwire.At(created), at(expires)
	if ack != nil {
		w.ackDeadline = *ack
	}
	if recovery != nil {
		w.recoveryDeadline = *recovery
	}
	if w.selector, err = label.ParseSelector(selector); err != nil {
		return w, err
	}
	if w.reason, err = decode[ci.Reason](reason); err != nil {
		return w, err
	}
	return w, json.Unmarshal([]byte(labels), &e.RunsOn)
}

// fleetView is the connected agents and what fills them.
type fleetView struct {
	known   []fleet.Agent
	agents  []fleet.Agent                    // the connected ones
	running map[string][]string              // agent → jobs it holds
	slots   map[string]int                   // agent → jobs it may hold
	judged  map[string][]adminwire.Candidate // by canonical selector, since many jobs ask for the same
}

func newFleetView(ctx context.Context, q store.Querier) (fleetView, error) {
	agents, err := fleet.List(ctx, q)
	if err != nil {
		return fleetView{}, err
	}
	v := fleetView{known: agents, running: map[string][]string{}, slots: map[string]int{}, judged: map[string][]adminwire.Candidate{}}
	for _, a := range agents {
		v.slots[a.ID] = max(a.MaxConcurrency, 1)
		if a.Connected() {
			v.agents = append(v.agents, a)
		}
	}
	rows, err := q.QueryContext(ctx, selectHeld)
	if err != nil {
		return v, fmt.Errorf("list running jobs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var agent, job string
		if err := rows.Scan(&agent, &job); err != nil {
			return v, err
		}
		v.running[agent] = append(v.running[agent], job)
	}
	return v, rows.Err()
}

// explain says why a queue row stands where it does.
func (v fleetView) explain(w waiting) (ci.Reason, []adminwire.Candidate) {
	agent := ""
	if w.entry.AgentID != nil {
		agent = *w.entry.AgentID
	}
	switch w.entry.Status {
	case ci.QueuePending:
		return v.pending(w)
	case ci.QueueRecovering:
		return ci.NewReason(ci.ReasonRecovering, fmt.Sprintf("agent %s lost its connection; waiting for it until %s", agent, clock(w.recoveryDeadline)),
			map[string]any{"agent": agent, "until": adminwire.At(w.recoveryDeadline)}), nil
	case ci.QueueDispatched:
		if w.ackDeadline != 0 {
			return ci.NewReason(ci.ReasonAwaitingAck, fmt.Sprintf("sent to agent %s, which has until %s to answer", agent, clock(w.ackDeadline)),
				map[string]any{"agent": agent, "until": adminwire.At(w.ackDeadline)}), nil
		}
		return ci.NewReason("running", "with agent "+agent, map[string]any{"agent": agent}), nil
	}
	if w.reason != nil {
		return *w.reason, nil
	}
	return ci.NewReason(string(w.entry.Status), "ended as "+string(w.entry.Status), nil), nil
}

func clock(millis int64) string { return adminwire.At(millis).Format("15:04:05Z") }

func (v fleetView) pending(w waiting) (ci.Reason, []adminwire.Candidate) {
	candidates := v.candidates(w.selector)
	fitting, busy := 0, 0
	for _, c := range candidates {
		if c.Fits {
			fitting++
			if len(c.Running) >= v.slots[c.AgentID] {
				busy++
			}
		}
	}
	line := map[string]any{"ahead": w.ahead, "fitting": fitting, "attempts": w.entry.Attempts}
	again := ""
	if w.entry.Attempts > 0 {
		again = fmt.Sprintf(" (attempt %d of %d)", w.entry.Attempts+1, ci.MaxDispatchAttempts)
	}
	switch {
	case len(v.agents) == 0:
		return ci.NewReason(ci.ReasonNoAgent, "no agent is connected"+again, line), candidates
	case fitting == 0:
		return ci.NewReason(ci.ReasonNoAgent, fmt.Sprintf("no connected agent fits; the nearest, %s, %s%s", candidates[0].AgentID,
			strings.Join(candidates[0].Missing, "; "), again), line), candidates
	case busy == fitting:
		return ci.NewReason(ci.ReasonQueued, fmt.Sprintf("%s; %s in line before it%s", allBusy(candidates, fitting), plural(w.ahead, "job"), again), line), candidates
	}
	return ci.NewReason(ci.ReasonQueued, "an agent that fits is free; it is offered now"+again, line), candidates
}

// allBusy names the agent when only one fits, since its job is then what is waited for.
func allBusy(candidates []adminwire.Candidate, fitting int) string {
	if fitting == 1 {
		return fmt.Sprintf("the only agent that fits, %s, is busy with %s", candidates[0].AgentID, strings.Join(candidates[0].Running, ", "))
	}
	return fmt.Sprintf("all %d agents that fit are busy", fitting)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// candidates judges every connected agent, nearest first.
func (v fleetView) candidates(s label.Selector) []adminwire.Candidate {
	key := s.Canonical()
	if known, ok := v.judged[key]; ok {
		return known
	}
	out := make([]adminwire.Candidate, 0, len(v.agents))
	for _, a := range v.agents {
		missing := s.Explain(label.Agent{ID: a.ID, Labels: a.Labels, Mandatory: a.MandatoryLabels})
		running := v.running[a.ID]
		out = append(out, adminwire.Candidate{AgentID: a.ID, Fits: len(missing) == 0, Missing: append([]string{}, missing...), Running: append([]string{}, running...)})
	}
	slices.SortStableFunc(out, func(a, b adminwire.Candidate) int {
		return cmp.Or(cmp.Compare(len(a.Missing), len(b.Missing)), cmp.Compare(a.AgentID, b.AgentID))
	})
	v.judged[key] = out
	return out
}

const (
	selectQueue = `SELECT q.id, q.run_id, r.workflow_name, j.job_name, q.status, r.routing_key, r.provider, q.created_at, q.expires_at,
r.delivery_id, q.agent_id, q.attempts, j.runs_on_labels, s.canonical, q.ack_deadline, q.recovery_deadline, j.reason,
(SELECT count(*) FROM dispatch_queue p WHERE p.status = 'pending' AND p.selector_id = q.selector_id
    AND (p.created_at, p.position, p.id) < (q.created_at, q.position, q.id))
FROM dispatch_queue q JOIN execution_jobs j ON j.job_id = q.id JOIN execution_runs r ON r.run_id = q.run_id
JOIN selectors s ON s.id = q.selector_id`

	selectHeld = `SELECT agent_id, id FROM dispatch_queue WHERE status IN ('dispatched', 'recovering') ORDER BY claimed_at, id`
)
