package report

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"kici/internal/core/adminwire"
	"kici/internal/server/store"
)

// Executions lists runs by the names of their columns, newest first.
func Executions(ctx context.Context, q store.Querier, f RunFilter) ([]adminwire.Execution, error) {
	where, args := f.where()
	args = append(args, f.Limit)
	rows, err := q.QueryContext(ctx, selectExecutions+where+fmt.Sprintf(" ORDER BY created_at DESC, run_id LIMIT $%d", len(args)), args...)
	if err != nil {
		return nil, fmt.Errorf("list executions: %w", err)
	}
	defer rows.Close()
	out := []adminwire.Execution{}
	for rows.Next() {
		e, err := scanExecution(rows)
		if err != nil {
			return nil, fmt.Errorf("list executions: %w", err)
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// ExecutionOf reads one run with its jobs, joined by the run's id.
func ExecutionOf(ctx context.Context, q store.Querier, runID string) (adminwire.OneExecution, error) {
	var out adminwire.OneExecution
	var err error
	out.Run, err = scanExecution(q.QueryRowContext(ctx, selectExecutions+" WHERE run_id = $1", runID))
	if errors.Is(err, sql.ErrNoRows) {
		return out, ErrNotFound
	}
	if err != nil {
		return out, fmt.Errorf("read execution %s: %w", runID, err)
	}
	jobs, err := Jobs(ctx, q, runID, false)
	if err != nil {
		return out, err
	}
	out.Jobs = make([]adminwire.ExecutionJob, len(jobs))
	for i, j := range jobs {
		out.Jobs[i] = adminwire.ExecutionJob{JobID: j.JobID, RunID: runID, JobName: j.JobName, Status: j.Status, AgentID: j.AgentID,
			CreatedAt: j.CreatedAt, StartedAt: j.StartedAt, CompletedAt: j.CompletedAt, DurationMs: j.DurationMs, ErrorMessage: j.ErrorMessage}
	}
	return out, nil
}

func scanExecution(s interface{ Scan(...any) error }) (adminwire.Execution, error) {
	var e adminwire.Execution
	var created int64
	var started, completed *int64
	err := s.Scan(&e.RunID, &e.WorkflowName, &e.Status, &e.RoutingKey, &e.Provider, &e.RepoIdentifier, &e.Ref, &e.SHA, &e.DeliveryID,
		&created, &started, &completed, &e.DurationMs, &e.FailureReason)
	e.CreatedAt, e.StartedAt, e.CompletedAt = adminwire.At(created), at(started), at(completed)
	return e, err
}

// RunsInQueue lists the runs of which a job waits in the queue, those that wait longest first.
func RunsInQueue(ctx context.Context, q store.Querier, limit int) ([]string, error) {
	runs, err := store.Texts(ctx, q, selectRunsInQueue, limit)
	if err != nil {
		return nil, fmt.Errorf("list runs in the queue: %w", err)
	}
	return runs, nil
}

const (
	selectExecutions = `SELECT run_id, workflow_name, status, routing_key, provider, repo_identifier, ref, sha, delivery_id, created_at,
started_at, completed_at, duration_ms, failure_reason FROM execution_runs`

	selectRunsInQueue = `SELECT run_id FROM dispatch_queue WHERE status = 'pending' GROUP BY run_id ORDER BY min(created_at), run_id LIMIT $1`
)
