// Package report answers questions about the state. It only reads, and it alone may join the tables of several rooms.
package report

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/logs"
	"kici/internal/server/store"
)

// ErrNotFound says that there is no such run or job.
var ErrNotFound = errors.New("not found")

// RunFilter narrows the list of runs. Zero fields do not.
type RunFilter struct {
	Statuses   []string
	Workflow   string
	Repo       string
	Since      int64 // created strictly later
	OrgID      string
	RoutingKey string // of a scoped token
	DeliveryID string // the delivery that the runs come of
	Limit      int
	Offset     int
}

// where gives the conditions and their arguments. The numbers of the placeholders follow the arguments.
func (f RunFilter) where() (string, []any) {
	var conditions []string
	var args []any
	add := func(condition string, value any) {
		args = append(args, value)
		conditions = append(conditions, strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", len(args))))
	}
	if len(f.Statuses) > 0 {
		var alternatives []string
		for _, s := range f.Statuses {
			args = append(args, s)
			alternatives = append(alternatives, fmt.Sprintf("$%d", len(args)))
		}
		conditions = append(conditions, "status IN ("+strings.Join(alternatives, ", ")+")")
	}
	if f.Workflow != "" {
		add("workflow_name = ?", f.Workflow)
	}
	if f.Repo != "" {
		add("repo_identifier = ?", f.Repo)
	}
	if f.OrgID != "" {
		add("org_id = ?", f.OrgID)
	}
	if f.RoutingKey != "" {
		add("routing_key = ?", f.RoutingKey)
	}
	if f.DeliveryID != "" {
		add("delivery_id = ?", f.DeliveryID)
	}
	if f.Since != 0 {
		add("created_at > ?", f.Since)
	}
	if len(conditions) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// CountRuns counts the runs that pass the filter.
func CountRuns(ctx context.Context, q store.Querier, f RunFilter) (n int, err error) {
	where, args := f.where()
	if err := q.QueryRowContext(ctx, "SELECT count(*) FROM execution_runs"+where, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count runs: %w", err)
	}
	return n, nil
}

// Runs lists runs, newest first.
func Runs(ctx context.Context, q store.Querier, f RunFilter) ([]adminwire.Run, error) {
	where, args := f.where()
	args = append(args, f.Limit, f.Offset)
	query := selectRuns + where + fmt.Sprintf(" ORDER BY created_at DESC, run_id LIMIT $%d OFFSET $%d", len(args)-1, len(args))
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	defer rows.Close()
	out := []adminwire.Run{}
	for rows.Next() {
		run, err := scanRun(rows)
		if err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		out = append(out, run)
	}
	return out, rows.Err()
}

func scanRun(s interface{ Scan(...any) error }, more ...any) (adminwire.Run, error) {
	var r adminwire.Run
	var created int64
	var started, completed *int64
	err := s.Scan(append([]any{&r.RunID, &r.WorkflowName, &r.Status, &r.Provider, &r.RepoIdentifier, &r.Ref, &r.SHA, &created, &started,
		&completed, &r.DurationMs, &r.ParentRunID, &r.TriggeredBy, &r.TriggerEvent, &r.FailureReason, &r.Environment, &r.TrustTier}, more...)...)
	r.CreatedAt, r.StartedAt, r.CompletedAt = adminwire.At(created), at(started), at(completed)
	return r, err
}

func at(millis *int64) adminwire.Time {
	if millis == nil {
		return adminwire.Time{}
	}
	return adminwire.At(*millis)
}

// RunOf reads one run, with the routing key that a scoped token must cover.
func RunOf(ctx context.Context, q store.Querier, runID string) (run adminwire.RunDetail, routingKey string, err error) {
	var reason, failure sql.NullString
	row := q.QueryRowContext(ctx, selectRunDetail, runID)
	run.Run, err = scanRun(row, &run.DeliveryID, &run.RequestID, &run.IsTestRun, &run.OriginalRunID, &run.CancelledBy, &run.LockFileSource,
		&run.ContributorUsername, &run.CommitMessage, &run.LogBytes, &run.WorkflowTimeoutMs, &reason, &failure, &run.OrgID, &routingKey)
	if errors.Is(err, sql.ErrNoRows) {
		return run, "", ErrNotFound
	}
	if err != nil {
		return run, "", fmt.Errorf("read run %s: %w", runID, err)
	}
	if run.Reason, err = decode[ci.Reason](reason); err != nil {
		return run, "", err
	}
	run.InitFailure, err = decode[ci.InitFailure](failure)
	return run, routingKey, err
}

// decode reads a stored document; NULL is nil.
func decode[T any](text sql.NullString) (*T, error) {
	if !text.Valid {
		return nil, nil
	}
	var v T
	if err := json.Unmarshal([]byte(text.String), &v); err != nil {
		return nil, fmt.Errorf("decode stored document: %w", err)
	}
	return &v, nil
}

// Jobs reads the jobs of a run in their order, with their needs, and their steps when asked for.
func Jobs(ctx context.Context, q store.Querier, runID string, withSteps bool) ([]adminwire.Job, error) {
	rows, err := q.QueryContext(ctx, selectJobs, runID)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	defer rows.Close()
	jobs := []adminwire.Job{}
	place := map[string]int{}
	for rows.Next() {
		job, err := scanJob(rows)
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		place[job.JobID] = len(jobs)
		jobs = append(jobs, job)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if err := addNeeds(ctx, q, runID, jobs, place); err != nil {
		return nil, err
	}
	if withSteps {
		return jobs, addSteps(ctx, q, runID, jobs, place)
	}
	return jobs, nil
}

func scanJob(s interface{ Scan(...any) error }) (adminwire.Job, error) {
	j := adminwire.Job{Needs: []adminwire.Need{}}
	var created int64
	var dispatched, started, completed *int64
	var matrix, outputs, reason, failure sql.NullString
	var labels, contexts string
	err := s.Scan(&j.JobID, &j.JobName, &j.BaseJobName, &j.Status, &matrix, &j.VariantKind, &j.VariantLabel, &contexts, &j.AgentID, &j.Attempts, &created, &dispatched, &started, &completed,
		&j.DurationMs, &j.LogBytes, &j.ErrorMessage, &reason, &failure, &labels, &outputs)
	if err != nil {
		return j, err
	}
	j.CreatedAt, j.DispatchedAt = adminwire.At(created), at(dispatched)
	j.StartedAt, j.CompletedAt = at(started), at(completed)
	j.MatrixValues, j.Outputs = document(matrix), document(outputs)
	if j.Reason, err = decode[ci.Reason](reason); err != nil {
		return j, err
	}
	if j.InitFailure, err = decode[ci.InitFailure](failure); err != nil {
		return j, err
	}
	if err := json.Unmarshal([]byte(contexts), &j.Environments); err != nil {
		return j, fmt.Errorf("decode contexts of job %s: %w", j.JobID, err)
	}
	return j, json.Unmarshal([]byte(labels), &j.RunsOnLabels)
}

func document(text sql.NullString) json.RawMessage {
	if !text.Valid {
		return nil
	}
	return json.RawMessage(text.String)
}

func addNeeds(ctx context.Context, q store.Querier, runID string, jobs []adminwire.Job, place map[string]int) error {
	rows, err := q.QueryContext(ctx, selectNeeds, runID)
	if err != nil {
		return fmt.Errorf("list needs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var jobID, runOn string
		var need adminwire.Need
		if err := rows.Scan(&jobID, &need.UpstreamName, &runOn); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(runOn), &need.RunOn); err != nil {
			return err
		}
		if i, ok := place[jobID]; ok {
			jobs[i].Needs = append(jobs[i].Needs, need)
		}
	}
	return rows.Err()
}

func addSteps(ctx context.Context, q store.Querier, runID string, jobs []adminwire.Job, place map[string]int) error {
	rows, err := q.QueryContext(ctx, selectSteps, runID)
	if err != nil {
		return fmt.Errorf("list steps: %w", err)
	}
	defer rows.Close()
	for i := range jobs {
		jobs[i].Steps = []adminwire.Step{}
	}
	for rows.Next() {
		jobID, step, err := scanStep(rows)
		if err != nil {
			return fmt.Errorf("list steps: %w", err)
		}
		if i, ok := place[jobID]; ok {
			jobs[i].Steps = append(jobs[i].Steps, step)
		}
	}
	return rows.Err()
}

func scanStep(s interface{ Scan(...any) error }) (jobID string, step adminwire.Step, err error) {
	var started, completed *int64
	var accessed, drift sql.NullString
	err = s.Scan(&jobID, &step.StepIndex, &step.StepName, &step.Status, &step.StepType, &step.ExitCode, &started, &completed,
		&step.DurationMs, &step.ErrorMessage, &step.LogBytes, &accessed, &step.CheckOutcome, &step.DriftSummary, &drift,
		&step.ConcurrencyKind, &step.GroupID)
	if err != nil {
		return "", step, err
	}
	step.StartedAt, step.CompletedAt, step.Drift = at(started), at(completed), document(drift)
	if step.StepType == "step" {
		step.StepType = ""
	}
	if accessed.Valid {
		err = json.Unmarshal([]byte(accessed.String), &step.SecretsAccessed)
	}
	return jobID, step, err
}

// LogPlace is where a step's log lies.
type LogPlace struct {
	Path       string
	Ended      bool   // the step or its job has ended; agents may still send last lines
	Final      bool   // the job has ended: nothing more comes
	RoutingKey string // of the run
}

// StepLog finds a step's log; step −1 is the job's own. A step that never logged has its place too. ErrNotFound says that
// the run has no such job.
func StepLog(ctx context.Context, q store.Querier, runID, jobID string, step int) (LogPlace, error) {
	var p LogPlace
	var jobName string
	var jobEnd sql.NullInt64
	var path, status sql.NullString
	err := q.QueryRowContext(ctx, selectLogPlace, runID, jobID, step).Scan(&jobName, &jobEnd, &p.RoutingKey, &path, &status)
	if errors.Is(err, sql.ErrNoRows) {
		return p, ErrNotFound
	}
	if err != nil {
		return p, fmt.Errorf("find log of step %d of job %s: %w", step, jobID, err)
	}
	p.Final = jobEnd.Valid
	p.Ended = p.Final || ci.StepStatus(status.String).Terminal() && status.Valid
	if p.Path = path.String; p.Path == "" {
		p.Path = logs.Path(runID, jobName, step)
	}
	return p, nil
}

// StepTimes are when a step began and ended, in epoch milliseconds by the agent's clock; 0 where that is not known.
func StepTimes(ctx context.Context, q store.Querier, jobID string, step int) (began, ended int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT coalesce(started_at, 0), coalesce(completed_at, 0) FROM execution_steps WHERE job_id = $1 AND step_index = $2", jobID, step).
		Scan(&began, &ended)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, 0, fmt.Errorf("find times of step %d of job %s: %w", step, jobID, err)
	}
	return began, ended, nil
}

const (
	runColumns = `run_id, workflow_name, status, provider, repo_identifier, ref, sha, created_at, started_at, completed_at, duration_ms,
parent_run_id, triggered_by, trigger_event, failure_reason, context, trust_tier`

	selectRuns = `SELECT ` + runColumns + ` FROM execution_runs`

	selectRunDetail = `SELECT ` + runColumns + `, delivery_id, request_id, is_test_run, original_run_id, cancelled_by, lock_file_source,
sender, commit_message, log_bytes, workflow_timeout_ms, reason, init_failure, org_id, routing_key FROM execution_runs WHERE run_id = $1`

	selectJobs = `SELECT j.job_id, j.job_name, j.base_job_name, j.status, j.matrix_values, j.variant_kind, j.variant_label, j.contexts, j.agent_id,
(SELECT count(*) FROM dispatch_attempts a WHERE a.job_id = j.job_id), j.created_at,
(SELECT max(claimed_at) FROM dispatch_attempts a WHERE a.job_id = j.job_id), j.started_at, j.completed_at, j.duration_ms,
j.log_bytes, j.error_message, j.reason, j.init_failure, j.runs_on_labels, j.outputs
FROM execution_jobs j WHERE j.run_id = $1 ORDER BY j.position`

	selectNeeds = `SELECT n.job_id, u.job_name, n.run_on FROM execution_job_needs n JOIN execution_jobs u ON u.job_id = n.upstream_id
WHERE n.run_id = $1 ORDER BY n.position, u.position`

	selectSteps = `SELECT s.job_id, s.step_index, s.step_name, s.status, s.step_type, s.exit_code, s.started_at, s.completed_at,
s.duration_ms, s.error_message, s.log_bytes, s.secrets_accessed, s.check_outcome, s.drift_summary, s.drift, s.concurrency_kind, s.group_id
FROM execution_jobs j JOIN execution_steps s ON s.job_id = j.job_id WHERE j.run_id = $1 ORDER BY s.job_id, s.step_index`

	selectLogPlace = `SELECT j.job_name, j.completed_at, r.routing_key, s.log_path, s.status
FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id
LEFT JOIN execution_steps s ON s.job_id = j.job_id AND s.step_index = $3 WHERE j.run_id = $1 AND j.job_id = $2`
)
