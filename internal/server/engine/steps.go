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
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// StepReported stores an agent's word about a step. While the job lives the last word wins, since a retried step goes
// from failed to running again; once the job has ended its steps are frozen.
func (e *Engine) StepReported(ctx context.Context, agentID string, m wire.StepStatus) error {
	return e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		var name, runID string
		var completed sql.NullInt64
		err := tx.QueryRowContext(ctx, "SELECT run_id, job_name, completed_at FROM execution_jobs WHERE job_id = $1"+tx.ForUpdate(), m.JobID).
			Scan(&runID, &name, &completed)
		if isNoRows(err) {
			return ErrNotOwner
		}
		if err != nil {
			return fmt.Errorf("load job %s: %w", m.JobID, err)
		}
		if completed.Valid {
			return nil
		}
		row, ok, err := queue.ByJob(ctx, tx, m.JobID)
		if err != nil || !ok || row.AgentID != agentID {
			return err // a former owner's late word
		}
		if full, err := stepsFull(ctx, tx, m); err != nil || full {
			return err
		}
		tx.After(func() { e.changed(runID) })
		return upsertStep(ctx, tx, runID, name, m)
	})
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

func upsertStep(ctx context.Context, tx *store.Tx, runID, jobName string, m wire.StepStatus) error {
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
	_, err = tx.ExecContext(ctx, upsertStepRow, m.JobID, m.StepIndex, runID, ci.CutName(m.StepName), string(m.State),
		ci.CutName(cmp.Or(data.StepType, m.StepType, "step")), started, completed, duration, exitCode, nullText(ci.CutText(data.Error)),
		logs.Path(runID, jobName, m.StepIndex), logBytes.Int64, accessed, nullText(ci.CutName(data.CheckOutcome)),
		nullText(ci.CutText(data.DriftSummary)), nullText(ci.CleanText(string(data.Drift))),
		nullText(m.ConcurrencyKind), nullText(ci.CutName(m.GroupID)))
	if err != nil {
		return fmt.Errorf("store step %d of job %s: %w", m.StepIndex, m.JobID, err)
	}
	return nil
}

// closeSteps freezes the steps of a job that has ended: the terminal report's results win, also those of steps of which
// nothing was reported before, since an agent whose rule holds back a whole job sends nothing else. What is still open is
// cancelled with the job.
func closeSteps(ctx context.Context, tx *store.Tx, c lifecycle.JobChange) error {
	if len(c.Steps) > 0 {
		if err := storeResults(ctx, tx, c); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `UPDATE execution_steps SET status = 'cancelled', completed_at = $2
WHERE job_id = $1 AND status IN ('running', 'pending')`, c.JobID, c.CompletedAt)
	if err != nil {
		return fmt.Errorf("close steps of job %s: %w", c.JobID, err)
	}
	return nil
}

func storeResults(ctx context.Context, tx *store.Tx, c lifecycle.JobChange) error {
	for i, s := range c.Steps {
		known, err := store.Changed(tx.ExecContext(ctx, updateStepResult, c.JobID, i, string(s.Status), s.DurationMs,
			nullText(ci.CutText(s.Error)), c.CompletedAt))
		if err == nil && !known {
			err = insertResult(ctx, tx, c, i)
		}
		if err != nil {
			return fmt.Errorf("store result of step %d of job %s: %w", i, c.JobID, err)
		}
	}
	return nil
}

// insertResult makes the row of a step of which only the job's end tells.
func insertResult(ctx context.Context, tx *store.Tx, c lifecycle.JobChange, i int) error {
	var runID, name string
	err := tx.QueryRowContext(ctx, "SELECT run_id, job_name FROM execution_jobs WHERE job_id = $1", c.JobID).Scan(&runID, &name)
	if err != nil {
		return err
	}
	s := c.Steps[i]
	_, err = tx.ExecContext(ctx, insertStepResult, c.JobID, i, runID, ci.CutName(s.Name), string(s.Status), logs.Path(runID, name, i),
		s.DurationMs, nullText(ci.CutText(s.Error)), c.CompletedAt)
	return err
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
	upsertStepRow = `INSERT INTO execution_steps (job_id, step_index, run_id, step_name, status, step_type, started_at, completed_at,
    duration_ms, exit_code, error_message, log_path, log_bytes, secrets_accessed, check_outcome, drift_summary, drift,
    concurrency_kind, group_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
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

	updateStepResult = `UPDATE execution_steps SET status = $3, duration_ms = coalesce(duration_ms, $4),
    error_message = coalesce(error_message, $5), completed_at = coalesce(completed_at, $6)
WHERE job_id = $1 AND step_index = $2`

	insertStepResult = `INSERT INTO execution_steps (job_id, step_index, run_id, step_name, status, log_path, duration_ms, error_message,
    completed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
)
