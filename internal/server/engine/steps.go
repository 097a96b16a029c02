package engine

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/logs"
	"kici/internal/server/store"
)

// stepReported stores an agent's word about a step of a job that it has. While the job lives the last word wins, since a
// retried step goes from failed to running again; once the job has ended its steps are frozen. A late word, and that of a
// former owner, is dropped.
func (e *Engine) stepReported(ctx context.Context, tx *store.Tx, agentID string, job Owned, m wire.StepStatus) error {
	if full, err := stepsFull(ctx, tx, m); err != nil || full {
		return err
	}
	tx.After(func() { e.changed(job.RunID) })
	return upsertStep(ctx, tx, agentID, job, m)
}

// maxSteps bounds the steps of a job below that index, and as many more may stand beyond it: hooks and what else agents do for a
// job have indices that they choose. What is reported beyond is not kept, since nobody would look through it.
const maxSteps = 10_000

// stepsFull tells that a step is one too many of its job.
func stepsFull(ctx context.Context, tx *store.Tx, m wire.StepStatus) (full bool, err error) {
	if m.StepIndex < maxSteps {
		return false, nil
	}
	if err := tx.QueryRowContext(ctx, selectStepsFull, m.JobID, maxSteps, m.StepIndex).Scan(&full); err != nil {
		return false, fmt.Errorf("count steps of job %s: %w", m.JobID, err)
	}
	return full, nil
}

func upsertStep(ctx context.Context, tx *store.Tx, agentID string, job Owned, m wire.StepStatus) error {
	data := wire.ParseStepData(m.Data)
	var started, completed, duration, exitCode, logBytes sql.NullInt64
	switch {
	case m.State == ci.StepRunning:
		started = nullMillis(m.Timestamp)
	case m.State.Terminal():
		completed = nullMillis(m.Timestamp)
		duration = sql.NullInt64{Int64: data.DurationMs, Valid: true}
	}
	if data.ExitCode != nil {
		exitCode = sql.NullInt64{Int64: *data.ExitCode, Valid: true}
	}
	if m.LogBytesStreamed != nil {
		logBytes.Int64 = *m.LogBytesStreamed
	}
	accessed, err := encodeNames(m.SecretsAccessed)
	if err != nil {
		return err
	}
	err = tx.Do(ctx, insertStep+tx.ForUpdate()+onStepKnown, job.JobID, m.StepIndex, job.RunID, ci.CutName(m.StepName), string(m.State),
		ci.CutName(cmp.Or(data.StepType, m.StepType, "step")), started, completed, duration, exitCode, nullText(ci.CutText(data.Error)),
		logs.Path(job.RunID, job.JobName, m.StepIndex), logBytes.Int64, accessed, nullText(ci.CutName(data.CheckOutcome)),
		nullText(ci.CutText(data.DriftSummary)), nullText(ci.CleanText(string(data.Drift))),
		nullText(m.ConcurrencyKind), nullText(ci.CutName(m.GroupID)), agentID)
	if err != nil {
		return fmt.Errorf("store step %d of job %s: %w", m.StepIndex, m.JobID, err)
	}
	return nil
}

// closeSteps freezes the steps of a job that has ended: the terminal report's results win, also those of steps of which
// nothing was reported before, since an agent whose rule holds back a whole job sends nothing else. What is still open is
// cancelled with the job.
func closeSteps(ctx context.Context, tx *store.Tx, runID string, c lifecycle.JobChange) error {
	if len(c.Steps) > 0 {
		if err := storeResults(ctx, tx, runID, c); err != nil {
			return err
		}
	}
	err := tx.Do(ctx, `UPDATE execution_steps SET status = 'cancelled', completed_at = $2
WHERE job_id = $1 AND status IN ('running', 'pending')`, c.JobID, c.CompletedAt)
	if err != nil {
		return fmt.Errorf("close steps of job %s: %w", c.JobID, err)
	}
	return nil
}

func storeResults(ctx context.Context, tx *store.Tx, runID string, c lifecycle.JobChange) error {
	rows := make([][]any, len(c.Steps))
	for i, s := range c.Steps {
		rows[i] = []any{c.JobID, i, runID, ci.CutName(s.Name), string(s.Status), logs.Path(runID, c.Name, i), s.DurationMs,
			nullText(ci.CutText(s.Error)), c.CompletedAt}
	}
	if err := store.InsertAll(ctx, tx, insertResults, 9, onResultOfKnown, rows); err != nil {
		return fmt.Errorf("store results of the steps of job %s: %w", c.JobID, err)
	}
	return nil
}

// encodeNames keeps the difference between not reported (nil) and none.
func encodeNames(names []string) (sql.NullString, error) {
	if names == nil {
		return sql.NullString{}, nil
	}
	raw, err := json.Marshal(names[:min(len(names), ci.MaxListEntries)])
	return nullText(string(raw)), err
}

const (
	// The job and its queue row are locked, so that the job's end and words about its steps follow each other.
	insertStep = `INSERT INTO execution_steps (job_id, step_index, run_id, step_name, status, step_type, started_at, completed_at,
    duration_ms, exit_code, error_message, log_path, log_bytes, secrets_accessed, check_outcome, drift_summary, drift,
    concurrency_kind, group_id)
SELECT j.job_id, CAST($2 AS BIGINT), $3, $4, $5, $6, CAST($7 AS BIGINT), CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT),
    $11, $12, CAST($13 AS BIGINT), $14, $15, $16, $17, $18, $19
FROM execution_jobs j JOIN dispatch_queue q ON q.id = j.job_id
WHERE j.job_id = $1 AND j.completed_at IS NULL AND q.agent_id = $20`

	onStepKnown = `
ON CONFLICT (job_id, step_index) DO UPDATE SET
    step_name = excluded.step_name, status = excluded.status, step_type = excluded.step_type,
    started_at = coalesce(excluded.started_at, execution_steps.started_at),
    completed_at = excluded.completed_at, duration_ms = excluded.duration_ms, exit_code = excluded.exit_code,
    error_message = excluded.error_message, log_path = excluded.log_path,
    log_bytes = CASE WHEN excluded.log_bytes > execution_steps.log_bytes THEN excluded.log_bytes ELSE execution_steps.log_bytes END,
    secrets_accessed = coalesce(excluded.secrets_accessed, execution_steps.secrets_accessed),
    check_outcome = coalesce(excluded.check_outcome, execution_steps.check_outcome),
    drift_summary = coalesce(excluded.drift_summary, execution_steps.drift_summary),
    drift = coalesce(excluded.drift, execution_steps.drift),
    concurrency_kind = coalesce(excluded.concurrency_kind, execution_steps.concurrency_kind),
    group_id = coalesce(excluded.group_id, execution_steps.group_id)`

	selectStepsFull = `SELECT NOT EXISTS (SELECT 1 FROM execution_steps WHERE job_id = $1 AND step_index = $3)
    AND EXISTS (SELECT 1 FROM execution_steps WHERE job_id = $1 AND step_index >= CAST($2 AS BIGINT) LIMIT 1 OFFSET CAST($2 AS BIGINT) - 1)`

	insertResults = `INSERT INTO execution_steps (job_id, step_index, run_id, step_name, status, log_path, duration_ms, error_message,
    completed_at) VALUES`

	// What was said of a step while it ran stays, but for how it ended.
	onResultOfKnown = `ON CONFLICT (job_id, step_index) DO UPDATE SET status = excluded.status,
    duration_ms = coalesce(execution_steps.duration_ms, excluded.duration_ms),
    error_message = coalesce(execution_steps.error_message, excluded.error_message),
    completed_at = coalesce(execution_steps.completed_at, excluded.completed_at)`
)
