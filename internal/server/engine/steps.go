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

// stepWord is what an agent says of a step, as it is stored.
type stepWord struct {
	index                                   int
	name, state, kind                       string
	started, completed, duration, exitCode  sql.NullInt64
	failure                                 sql.NullString
	logBytes                                int64
	accessed, outcome, summary, drift, mode sql.NullString
	group                                   sql.NullString
}

func stepWordOf(m wire.StepStatus) (w stepWord, err error) {
	data := wire.ParseStepData(m.Data)
	w = stepWord{
		index: m.StepIndex, name: ci.CutName(m.StepName), state: string(m.State), kind: ci.CutName(cmp.Or(data.StepType, m.StepType, "step")),
		failure: nullText(ci.CutText(data.Error)), outcome: nullText(ci.CutName(data.CheckOutcome)), summary: nullText(ci.CutText(data.DriftSummary)),
		drift: nullText(ci.CleanText(string(data.Drift))), mode: nullText(m.ConcurrencyKind), group: nullText(ci.CutName(m.GroupID)),
	}
	switch {
	case m.State == ci.StepRunning:
		w.started = nullMillis(m.Timestamp)
	case m.State.Terminal():
		w.completed = nullMillis(m.Timestamp)
		w.duration = sql.NullInt64{Int64: data.DurationMs, Valid: true}
	}
	if data.ExitCode != nil {
		w.exitCode = sql.NullInt64{Int64: *data.ExitCode, Valid: true}
	}
	if m.LogBytesStreamed != nil {
		w.logBytes = *m.LogBytesStreamed
	}
	w.accessed, err = encodeNames(m.SecretsAccessed)
	return w, err
}

// then is what two words about a step say together. It is the same that onStepKnown makes of one behind the other.
func (w stepWord) then(next stepWord) stepWord {
	if !next.started.Valid {
		next.started = w.started
	}
	next.logBytes = max(next.logBytes, w.logBytes)
	next.accessed, next.outcome, next.summary = orText(next.accessed, w.accessed), orText(next.outcome, w.outcome), orText(next.summary, w.summary)
	next.drift, next.mode, next.group = orText(next.drift, w.drift), orText(next.mode, w.mode), orText(next.group, w.group)
	return next
}

func orText(a, b sql.NullString) sql.NullString {
	if a.Valid {
		return a
	}
	return b
}

// withStep adds a word to those that are still to be stored, of which there is one of each step.
func withStep(words []stepWord, next stepWord) []stepWord {
	for i, w := range words {
		if w.index == next.index {
			words[i] = w.then(next)
			return words
		}
	}
	return append(words, next)
}

// withResults adds to words about steps what the end of their job says of the same steps, as onResultOfKnown would, and tells
// whether they say all that it does and that the steps have ended.
func withResults(words []stepWord, results []lifecycle.StepResult, now int64) (closed bool) {
	told := 0
	closed = true
	for i, w := range words {
		if w.index >= 0 && w.index < len(results) {
			words[i] = w.withResult(results[w.index], now)
			told++
		}
		closed = closed && ci.StepStatus(words[i].state).Terminal()
	}
	return closed && told == len(results)
}

func (w stepWord) withResult(r lifecycle.StepResult, now int64) stepWord {
	w.state, w.failure = string(r.Status), orText(w.failure, nullText(r.Error))
	if !w.duration.Valid {
		w.duration = sql.NullInt64{Int64: r.DurationMs, Valid: true}
	}
	if !w.completed.Valid {
		w.completed = nullMillis(now)
	}
	return w
}

// stepsReported stores an agent's words about steps of a job that it has. While the job lives the last word wins, since a
// retried step goes from failed to running again; once the job has ended its steps are frozen. A late word, and that of a
// former owner, is dropped.
func (e *Engine) stepsReported(ctx context.Context, tx *store.Tx, agentID string, job Owned, words []stepWord) error {
	if len(words) > 0 {
		tx.After(func() { e.changed(job.RunID) })
	}
	for _, w := range words {
		full, err := stepsFull(ctx, tx, job.JobID, w.index)
		if err == nil && !full {
			err = upsertStep(ctx, tx, agentID, job, w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxSteps bounds the steps of a job below that index, and as many more may stand beyond it: hooks and what else agents do for a
// job have indices that they choose. What is reported beyond is not kept, since nobody would look through it.
const maxSteps = 10_000

// stepsFull tells that a step is one too many of its job.
func stepsFull(ctx context.Context, tx *store.Tx, jobID string, index int) (full bool, err error) {
	if index < maxSteps {
		return false, nil
	}
	if err := tx.QueryRowContext(ctx, selectStepsFull, jobID, maxSteps, index).Scan(&full); err != nil {
		return false, fmt.Errorf("count steps of job %s: %w", jobID, err)
	}
	return full, nil
}

// rare tells that there is more to be said of a step than of most.
func (w stepWord) rare() bool {
	return w.failure.Valid || w.accessed.Valid || w.outcome.Valid || w.summary.Valid || w.drift.Valid || w.mode.Valid || w.group.Valid
}

func upsertStep(ctx context.Context, tx *store.Tx, agentID string, job Owned, w stepWord) error {
	statement, args := insertStep, []any{job.JobID, w.index, job.RunID, w.name, w.state, w.kind, w.started, w.completed, w.duration, w.exitCode,
		logs.Path(job.RunID, job.JobName, w.index), w.logBytes, agentID}
	if w.rare() {
		statement, args = insertRareStep, append(args, w.failure, w.accessed, w.outcome, w.summary, w.drift, w.mode, w.group)
	}
	if err := tx.Do(ctx, statement+ofHeldJob+tx.ForUpdate()+onStepKnown, args...); err != nil {
		return fmt.Errorf("store step %d of job %s: %w", w.index, job.JobID, err)
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
	// Most steps need no more than this.
	insertStep     = "INSERT INTO execution_steps (" + stepColumns + ")" + stepValues
	insertRareStep = "INSERT INTO execution_steps (" + stepColumns + `,
    error_message, secrets_accessed, check_outcome, drift_summary, drift, concurrency_kind, group_id)` + stepValues + `, $14, $15, $16, $17, $18, $19, $20`

	stepColumns = `job_id, step_index, run_id, step_name, status, step_type, started_at, completed_at, duration_ms, exit_code, log_path, log_bytes`
	stepValues  = `
SELECT j.job_id, CAST($2 AS BIGINT), $3, $4, $5, $6, CAST($7 AS BIGINT), CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT),
    $11, CAST($12 AS BIGINT)`

	// The job and its queue row are locked, so that the job's end and words about its steps follow each other.
	ofHeldJob = `
FROM execution_jobs j JOIN dispatch_queue q ON q.id = j.job_id
WHERE j.job_id = $1 AND j.completed_at IS NULL AND q.agent_id = $13`

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
