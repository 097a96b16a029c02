package report

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// HoldFilter narrows the list of holds. Zero fields do not.
type HoldFilter struct {
	ID         string
	RunID      string
	Statuses   []string
	OrgID      string
	RoutingKey string // of a scoped token
	Limit      int
}

func (f HoldFilter) where() (string, []any) {
	var args []any
	conditions := []string{"1 = 1"}
	for _, c := range []struct{ column, value string }{{"h.id", f.ID}, {"h.run_id", f.RunID}, {"h.org_id", f.OrgID}, {"r.routing_key", f.RoutingKey}} {
		if c.value != "" {
			args = append(args, c.value)
			conditions = append(conditions, fmt.Sprintf("%s = $%d", c.column, len(args)))
		}
	}
	var places []string
	for _, s := range f.Statuses {
		args = append(args, s)
		places = append(places, fmt.Sprintf("$%d", len(args)))
	}
	if len(places) > 0 {
		conditions = append(conditions, "h.status IN ("+strings.Join(places, ", ")+")")
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// Hold is a hold with the routing key of its run, which a scoped token must cover.
type Hold struct {
	adminwire.HeldRun
	OrgID      string
	RoutingKey string
}

// Holds lists holds with the answers that were given, the oldest first.
func Holds(ctx context.Context, q store.Querier, f HoldFilter) ([]Hold, error) {
	where, args := f.where()
	args = append(args, f.Limit)
	rows, err := q.QueryContext(ctx, selectHolds+where+fmt.Sprintf(" ORDER BY h.created_at, h.id LIMIT $%d", len(args)), args...)
	if err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	defer rows.Close()
	var out []Hold
	for rows.Next() {
		h, err := scanHold(rows)
		if err != nil {
			return nil, fmt.Errorf("list holds: %w", err)
		}
		out = append(out, h)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	return out, addApprovals(ctx, q, out)
}

// addApprovals reads the answers to holds, many holds at a time.
func addApprovals(ctx context.Context, q store.Querier, holds []Hold) error {
	at := map[string]*Hold{}
	for i := range holds {
		holds[i].Approvals = []adminwire.Approval{}
		at[holds[i].ID] = &holds[i]
	}
	for batch := range slices.Chunk(holds, approvalBatch) {
		ids := make([]string, len(batch))
		for i, h := range batch {
			ids[i] = h.ID
		}
		places, args := placesOf(ids)
		err := each(ctx, q, selectApprovals+places+") ORDER BY id", args, func(scan func(...any) error) error {
			id, a, err := scanApproval(scan)
			if h := at[id]; err == nil && h != nil {
				h.Approvals = append(h.Approvals, a)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// approvalBatch bounds the holds of one statement.
const approvalBatch = 200

func scanHold(s interface{ Scan(...any) error }) (Hold, error) {
	var h Hold
	var job, jobName, context, resolvedBy, payload sql.NullString
	var step, stepName, reason, clauses = -1, "", "", ""
	var created int64
	var expires, resolved sql.NullInt64
	err := s.Scan(&h.ID, &h.OrgID, &h.RunID, &h.WorkflowName, &h.RoutingKey, &job, &jobName, &h.HoldScope, &step, &stepName, &h.HoldType, &h.QueueType,
		&h.TriggerSource, &context, &h.Status, &reason, &clauses, &payload, &created, &expires, &resolved, &resolvedBy)
	if err != nil {
		return h, err
	}
	h.JobID, h.JobName, h.ContextName, h.ResolvedBy = present(job), present(jobName), present(context), present(resolvedBy)
	h.StepName, h.Payload = present(sql.NullString{String: stepName, Valid: true}), document(payload)
	if step >= 0 {
		h.StepIndex = &step
	}
	h.CreatedAt, h.ExpiresAt, h.ResolvedAt = adminwire.At(created), adminwire.At(expires.Int64), adminwire.At(resolved.Int64)
	if err := json.Unmarshal([]byte(reason), &h.Reason); err != nil {
		return h, err
	}
	return h, json.Unmarshal([]byte(clauses), &h.Clauses)
}

// present is a text that is null when there is none.
func present(s sql.NullString) *string {
	if s.String == "" {
		return nil
	}
	return &s.String
}

func scanApproval(scan func(...any) error) (holdID string, a adminwire.Approval, err error) {
	var satisfied string
	var created int64
	if err := scan(&holdID, &a.ApproverID, &a.Decision, &satisfied, &a.Comment, &created); err != nil {
		return "", a, err
	}
	a.CreatedAt = adminwire.At(created)
	return holdID, a, json.Unmarshal([]byte(satisfied), &a.Satisfied)
}

// pendingHolds are the open holds of a run.
func pendingHolds(ctx context.Context, q store.Querier, runID string) ([]Hold, error) {
	return Holds(ctx, q, HoldFilter{RunID: runID, Statuses: []string{string(ci.HoldPending)}, Limit: 2 * ci.MaxJobsPerRun})
}

// held says what a hold waits for: whom, or until when.
func held(h Hold) ci.Reason {
	message := h.Reason.Message
	switch h.HoldType {
	case ci.HoldTimer:
		message += "; it goes on at " + day(h.ExpiresAt)
	case ci.HoldConcurrency:
	default:
		if len(h.Clauses) > 0 || h.HoldType != ci.HoldReviewer { // else the message has just said that anyone may
			message += "; " + deciders(h)
		}
		if !h.ExpiresAt.IsZero() {
			message += "; it expires at " + day(h.ExpiresAt)
		}
	}
	return ci.NewReason(h.Reason.Code, message, map[string]any{"hold": h.ID, "holdType": h.HoldType, "clauses": h.Clauses, "until": h.ExpiresAt,
		"context": h.ContextName})
}

// day is a moment with its date.
func day(t adminwire.Time) string { return t.Format(time.RFC3339) }

// deciders names who still has to approve.
func deciders(h Hold) string {
	given := map[adminwire.Clause]bool{}
	for _, a := range h.Approvals {
		for _, c := range a.Satisfied {
			given[c] = true
		}
	}
	var open []string
	for _, c := range h.Clauses {
		switch {
		case given[c]:
		case c.Team != "":
			open = append(open, "team "+c.Team)
		default:
			open = append(open, "user "+c.User)
		}
	}
	if len(open) == 0 {
		return "whoever may decide it can approve"
	}
	return "approval is awaited from " + strings.Join(open, " and ")
}

// slots are the places of a run's concurrency groups: who has them, and which jobs of the run wait for one.
type slots struct {
	waiting map[string]bool // jobs
	holders []slot          // of all groups that the run waits for, in order of time
}

type slot struct {
	group, runID, workflow string
	active                 bool
	since                  int64
}

func slotsOf(ctx context.Context, q store.Querier, runID string) (slots, error) {
	out := slots{waiting: map[string]bool{}}
	rows, err := q.QueryContext(ctx, selectWaiters, runID)
	if err != nil {
		return out, fmt.Errorf("list waiters of run %s: %w", runID, err)
	}
	defer rows.Close()
	for rows.Next() {
		var job string
		if err := rows.Scan(&job); err != nil {
			return out, err
		}
		out.waiting[job] = true
	}
	if err := rows.Err(); err != nil || len(out.waiting) == 0 {
		return out, err
	}
	out.holders, err = readSlots(ctx, q, runID)
	return out, err
}

func readSlots(ctx context.Context, q store.Querier, runID string) ([]slot, error) {
	rows, err := q.QueryContext(ctx, selectSlots, runID)
	if err != nil {
		return nil, fmt.Errorf("list places of run %s: %w", runID, err)
	}
	defer rows.Close()
	var out []slot
	for rows.Next() {
		var s slot
		if err := rows.Scan(&s.group, &s.runID, &s.workflow, &s.active, &s.since); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// reason says who has the places that a run waits for, and how many are before it.
func (s slots) reason(runID string, c clock) ci.Reason {
	var now, groups []string
	ahead, mine := 0, false
	for _, h := range s.holders {
		switch {
		case h.runID == runID:
			mine = true
			groups = append(groups, h.group)
		case h.active:
			now = append(now, fmt.Sprintf("run %s (%s)%s", h.runID, h.workflow, c.tell(" since ", adminwire.At(h.since))))
		case !mine:
			ahead++
		}
	}
	now = now[:min(len(now), ci.MaxListEntries)]
	message := fmt.Sprintf("waits for a place in concurrency group '%s'", strings.Join(groups, "', '"))
	if len(now) > 0 {
		message += ", which " + strings.Join(now, ", ") + " has"
	}
	return ci.NewReason(ci.ReasonConcurrency, ci.CutText(fmt.Sprintf("%s; %s before it", message, plural(ahead, "run"))),
		map[string]any{"groups": groups, "holders": now, "ahead": ahead})
}

const (
	selectHolds = `SELECT h.id, h.org_id, h.run_id, r.workflow_name, r.routing_key, h.job_id, j.job_name, h.hold_scope, h.step_index, h.step_name,
h.hold_type, h.queue_type, h.trigger_source, h.context_name, h.status, h.reason, h.clauses, h.payload, h.created_at, h.expires_at,
h.resolved_at, h.resolved_by
FROM held_runs h JOIN execution_runs r ON r.run_id = h.run_id LEFT JOIN execution_jobs j ON j.job_id = h.job_id`

	selectApprovals = `SELECT held_run_id, approver_id, decision, clauses_satisfied, reason, created_at FROM held_run_approvals WHERE held_run_id IN (`

	// The waiters of a run stay until it ends, and wait only while it has not got its place.
	selectWaiters = `SELECT job_id FROM concurrency_waiters WHERE run_id = $1
AND EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.run_id = $1 AND NOT s.active)`

	selectSlots = `SELECT s.group_key, s.run_id, r.workflow_name, s.active, s.created_at
FROM concurrency_slots s JOIN execution_runs r ON r.run_id = s.run_id
JOIN concurrency_slots mine ON mine.routing_key = s.routing_key AND mine.group_key = s.group_key
WHERE mine.run_id = $1 AND NOT mine.active ORDER BY s.created_at, s.run_id`
)
