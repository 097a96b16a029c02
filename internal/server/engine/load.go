package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

func isNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// loadRun reads a run and locks it for the transaction.
func loadRun(ctx context.Context, tx *store.Tx, runID string) (run lifecycle.Run, ok bool, err error) {
	var r runRow
	err = tx.QueryRowContext(ctx, "SELECT "+runColumns+" FROM execution_runs r WHERE r.run_id = $1"+tx.ForUpdate(), runID).Scan(r.into()...)
	if isNoRows(err) {
		return run, false, nil
	}
	if err == nil {
		run, err = r.value()
	}
	if err != nil {
		return run, false, fmt.Errorf("load run %s: %w", runID, err)
	}
	return run, true, nil
}

// lockJob loads a job with its queue row, and its run, and locks all three in that order: run, job, row. A job that does not
// exist is ErrNotOwner: whoever speaks of it made it up, or waited while others took its place. Where it is about to end, what
// that concerns is asked, too.
func lockJob(ctx context.Context, tx *store.Tx, jobID string, ending *ahead) (run lifecycle.Run, job lifecycle.Job, err error) {
	columns := runColumns + ", " + jobColumns + ", " + rowColumns
	var more []any
	if ending != nil {
		columns, more = columns+", "+standingColumns+", "+endingColumns, ending.into()
	}
	asks := append(locks(tx, jobID), store.Ask{Query: "SELECT " + columns + ofJob, Args: []any{jobID}, Row: func(r store.Row) (err error) {
		if run, job, err = scanLocked(r, more); ending != nil && ending.alone {
			ending.stands.jobs, ending.stands.ending = []lifecycle.Summary{{Name: job.Name, Status: job.Status, Kind: job.Kind}}, 0
		}
		return err
	}})
	if ending != nil {
		asks = append(asks, ending.asks(jobID)...)
	}
	if err = tx.All(ctx, asks...); err == nil && job.ID == "" {
		return run, job, ErrNotOwner
	}
	if err == nil {
		err = attachHold(ctx, tx, &job)
	}
	if err != nil {
		return run, job, fmt.Errorf("load job %s: %w", jobID, err)
	}
	return run, job, nil
}

// locks takes the locks of a job ahead of the question about it: PostgreSQL answers a statement that waited for a lock with what
// stood in other rows before. SQLite has one writer.
func locks(tx *store.Tx, jobID string) []store.Ask {
	if tx.Dialect != store.Postgres {
		return nil
	}
	asks := make([]store.Ask, 0, 6)
	for _, rows := range []string{"execution_runs WHERE run_id = (SELECT run_id FROM execution_jobs WHERE job_id = $1)",
		"execution_jobs WHERE job_id = $1", "dispatch_queue WHERE id = $1"} {
		asks = append(asks, store.Ask{Query: "SELECT 1 FROM " + rows + tx.ForUpdate(), Args: []any{jobID}, Row: func(store.Row) error { return nil }})
	}
	return asks
}

// scanLocked reads what lockJob asks.
func scanLocked(s store.Row, more []any) (lifecycle.Run, lifecycle.Job, error) {
	var r runRow
	var j jobRow
	var status, agent sql.NullString
	var attempts, deadline, claimed sql.NullInt64
	var started sql.NullBool
	into := append(append(r.into(), j.into()...), &status, &agent, &attempts, &started, &deadline, &claimed)
	if err := s.Scan(append(into, more...)...); err != nil {
		return r.Run, j.Job, err
	}
	run, err := r.value()
	job := j.value()
	if status.Valid {
		job.Row = rowOf(queue.Row{Status: ci.QueueStatus(status.String), AgentID: agent.String, Attempts: int(attempts.Int64), Started: started.Bool,
			AckDeadline: deadline.Int64, ClaimedAt: claimed.Int64})
	}
	return run, job, err
}

// runRow is a run as its columns are scanned.
type runRow struct {
	lifecycle.Run
	started, timeout, cancelAt       sql.NullInt64
	check, failure, reason, by, wish sql.NullString
	forced                           bool
}

func (r *runRow) into() []any {
	return []any{&r.ID, &r.Status, &r.CreatedAt, &r.started, &r.timeout, &r.check, &r.failure, &r.reason, &r.by, &r.wish, &r.cancelAt, &r.forced}
}

func (r *runRow) value() (run lifecycle.Run, err error) {
	run = r.Run
	run.StartedAt, run.TimeoutMs, run.CheckMode, run.FailureReason = r.started.Int64, r.timeout.Int64, r.check.String, r.failure.String
	if run.Reason, err = decodeReason(r.reason); err != nil {
		return run, err
	}
	if r.cancelAt.Valid {
		wish, err := decodeReason(r.wish)
		if err != nil || wish == nil {
			return run, errors.Join(errors.New("cancelled without a reason"), err)
		}
		run.Cancel = &lifecycle.Cancel{By: r.by.String, Reason: *wish, At: r.cancelAt.Int64, Forced: r.forced}
	}
	return run, nil
}

func decodeReason(text sql.NullString) (*ci.Reason, error) {
	if !text.Valid {
		return nil, nil
	}
	var r ci.Reason
	if err := json.Unmarshal([]byte(text.String), &r); err != nil {
		return nil, fmt.Errorf("decode reason: %w", err)
	}
	return &r, nil
}

// loadJob reads a job with its queue row. The run is locked; the job is locked against words about its steps, and the queue
// row against a claim. Who locks both takes the job first.
func loadJob(ctx context.Context, tx *store.Tx, jobID string) (job lifecycle.Job, err error) {
	var row *lifecycle.Row
	ofJob := store.Ask{Query: selectJob + " WHERE j.job_id = $1" + tx.ForUpdate(), Args: []any{jobID}, Row: func(r store.Row) (err error) {
		job, err = scanJob(r)
		return err
	}}
	err = tx.All(ctx, ofJob, queue.AskByJob(tx, jobID, func(r queue.Row) { row = rowOf(r) }))
	if err == nil && job.ID == "" {
		err = sql.ErrNoRows
	}
	if err != nil {
		return job, fmt.Errorf("load job %s: %w", jobID, err)
	}
	job.Row = row
	return job, attachHold(ctx, tx, &job)
}

// askJobs asks for jobs without their queue rows and holds, and locks none.
func askJobs(jobs *[]lifecycle.Job, query string, args ...any) store.Ask {
	return store.Ask{Query: query, Args: args, Row: func(r store.Row) error {
		job, err := scanJob(r)
		*jobs = append(*jobs, job)
		return err
	}}
}

// attachRows reads the queue rows of jobs.
func attachRows(ctx context.Context, tx *store.Tx, jobs []lifecycle.Job) error {
	asks := make([]store.Ask, len(jobs))
	for i := range jobs {
		asks[i] = queue.AskByJob(tx, jobs[i].ID, func(r queue.Row) { jobs[i].Row = rowOf(r) })
	}
	return tx.All(ctx, asks...)
}

// attachHold reads what the first of a job's holds waits for.
func attachHold(ctx context.Context, tx *store.Tx, job *lifecycle.Job) error {
	if job.Holds == 0 {
		return nil
	}
	var reason sql.NullString
	err := tx.QueryRowContext(ctx, selectHoldReason, job.ID).Scan(&reason)
	if isNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load hold of job %s: %w", job.ID, err)
	}
	job.HoldReason, err = decodeReason(reason)
	return err
}

func rowOf(row queue.Row) *lifecycle.Row {
	return &lifecycle.Row{Status: row.Status, AgentID: row.AgentID, Attempts: row.Attempts, Started: row.Started,
		Unanswered: row.AckDeadline != 0, ClaimedAt: row.ClaimedAt}
}

// jobRow is a job as its columns are scanned.
type jobRow struct {
	lifecycle.Job
	agent   sql.NullString
	started sql.NullInt64
}

func (j *jobRow) into() []any {
	return []any{&j.ID, &j.Name, &j.Position, &j.Status, &j.agent, &j.started, &j.CreatedAt, &j.GraceMs, &j.NeedsSatisfied,
		&j.Wave.Gated, &j.Wave.MaxParallel, &j.Wave.FailFast, &j.Wave.Label, &j.Kind, &j.Deferred, &j.Holds, &j.SlotWaiting, &j.Guarded}
}

func (j *jobRow) value() lifecycle.Job {
	j.AgentID, j.StartedAt = j.agent.String, j.started.Int64
	return j.Job
}

func scanJob(s store.Row) (lifecycle.Job, error) {
	var j jobRow
	err := s.Scan(j.into()...)
	return j.value(), err
}

// loadOpen reads and locks the jobs of a run that have not ended, and then their rows.
func loadOpen(ctx context.Context, tx *store.Tx, runID string) ([]lifecycle.Job, error) {
	var jobs []lifecycle.Job
	err := tx.All(ctx, askJobs(&jobs, selectJob+" WHERE j.run_id = $1 AND j.completed_at IS NULL ORDER BY j.position"+tx.ForUpdate(), runID))
	if err == nil {
		err = attachRows(ctx, tx, jobs)
	}
	if err != nil {
		return nil, fmt.Errorf("load open jobs of run %s: %w", runID, err)
	}
	return jobs, nil
}

// loadAftermath reads what the end of a job concerns, and is not known already.
func loadAftermath(ctx context.Context, tx *store.Tx, run lifecycle.Run, ended lifecycle.Job, known *ahead) (lifecycle.Aftermath, error) {
	a := lifecycle.Aftermath{Run: run, Job: ended}
	var dependants []lifecycle.Job
	var asks []store.Ask
	if known == nil {
		asks = append(asks, askJobs(&dependants, selectDependants, ended.ID))
	} else {
		dependants = known.dependants
	}
	if ended.Wave.MaxParallel > 0 {
		asks = append(asks, askJobs(&a.Siblings, selectSiblings, ended.ID))
	}
	err := tx.All(ctx, asks...)
	if err == nil {
		a.Dependants, err = loadDependants(ctx, tx, a.Job, dependants)
	}
	if err == nil && a.Job.Kind.Internal() {
		err = loadHelped(ctx, tx, &a)
	}
	if err != nil {
		return a, fmt.Errorf("load what the end of job %s concerns: %w", ended.ID, err)
	}
	return a, nil
}

// loadHelped reads, of a job that worked for others, for which one and why it failed.
func loadHelped(ctx context.Context, tx *store.Tx, a *lifecycle.Aftermath) error {
	var target, message, failure sql.NullString
	err := tx.QueryRowContext(ctx, "SELECT target_id, error_message, init_failure FROM execution_jobs WHERE job_id = $1", a.Job.ID).
		Scan(&target, &message, &failure)
	if err != nil {
		return fmt.Errorf("load job %s: %w", a.Job.ID, err)
	}
	switch {
	case failure.Valid:
		a.Failure = &ci.InitFailure{}
		if err := json.Unmarshal([]byte(failure.String), a.Failure); err != nil {
			return fmt.Errorf("decode init failure of job %s: %w", a.Job.ID, err)
		}
	case message.Valid:
		a.Failure = &ci.InitFailure{Category: ci.InitDynamicEval, Message: message.String}
	}
	if !target.Valid {
		return nil
	}
	place, err := loadJob(ctx, tx, target.String)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // its children took its place
	}
	a.Place = &place
	return err
}

// loadDependants reads what jobs wait for, of which one has ended.
func loadDependants(ctx context.Context, tx *store.Tx, ended lifecycle.Job, jobs []lifecycle.Job) ([]lifecycle.Dependant, error) {
	out := make([]lifecycle.Dependant, len(jobs))
	for i, job := range jobs {
		if err := attachHold(ctx, tx, &job); err != nil {
			return nil, err
		}
		edges, err := loadEdges(ctx, tx, job.ID, ended.ID)
		if err != nil {
			return nil, err
		}
		out[i] = lifecycle.Dependant{Job: job, Edges: edges}
	}
	return out, nil
}

// loadEdges reads those needs of a job on which the decision depends: the one that ended now, those that ended badly in
// the same transaction, and one that is still open.
func loadEdges(ctx context.Context, tx *store.Tx, jobID, endedID string) ([]lifecycle.Edge, error) {
	edges, err := queryEdges(ctx, tx, jobID, selectEdges, jobID, endedID)
	if err != nil {
		return nil, err
	}
	var open bool
	if err := tx.QueryRowContext(ctx, selectOpenNeed, jobID).Scan(&open); err != nil {
		return nil, fmt.Errorf("load needs of job %s: %w", jobID, err)
	}
	if open {
		edges = append(edges, lifecycle.Edge{Status: ci.JobPending})
	}
	return edges, nil
}

func queryEdges(ctx context.Context, tx *store.Tx, jobID, query string, args ...any) ([]lifecycle.Edge, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("load needs of job %s: %w", jobID, err)
	}
	defer rows.Close()
	var edges []lifecycle.Edge
	for rows.Next() {
		var edge lifecycle.Edge
		var runOn string
		if err := rows.Scan(&edge.Upstream, &edge.Status, &runOn); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(runOn), &edge.RunOn); err != nil {
			return nil, fmt.Errorf("decode needs of job %s: %w", jobID, err)
		}
		edges = append(edges, edge)
	}
	return edges, rows.Err()
}

const (
	runColumns = `r.run_id, r.status, r.created_at, r.started_at, r.workflow_timeout_ms, r.check_mode, r.failure_reason, r.reason,
r.cancelled_by, r.cancel_reason, r.cancel_requested_at, r.cancel_forced`

	jobColumns = `j.job_id, j.job_name, j.position, j.status, j.agent_id, j.started_at, j.created_at, j.grace_ms, j.needs_satisfied,
j.wave_gated, j.wave_max_parallel, j.wave_fail_fast, j.variant_label, j.kind, j.deferred, j.holds, j.slot_waiting,
(j.contexts <> '[]' OR j.approval IS NOT NULL)`

	rowColumns = `q.status, q.agent_id, q.attempts, q.started, q.ack_deadline, q.claimed_at`

	ofJob = ` FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id LEFT JOIN dispatch_queue q ON q.id = j.job_id
WHERE j.job_id = $1`

	selectJob = `SELECT ` + jobColumns + ` FROM execution_jobs j`

	selectSiblings = selectJob + ` WHERE j.completed_at IS NULL AND (j.run_id, j.base_job_name) =
    (SELECT run_id, base_job_name FROM execution_jobs WHERE job_id = $1) ORDER BY j.position`

	selectHoldReason = `SELECT h.reason FROM execution_jobs j JOIN held_runs h ON h.run_id = j.run_id
WHERE j.job_id = $1 AND h.status = 'pending' AND (h.job_id = j.job_id AND h.hold_scope = 'job' OR h.hold_scope = 'workflow')
ORDER BY h.created_at, h.id LIMIT 1`

	selectDependants = selectJob + ` JOIN execution_job_needs n ON n.job_id = j.job_id
WHERE n.upstream_id = $1 AND j.status = 'pending' AND NOT j.needs_satisfied ORDER BY j.position`

	// run_on is a JSON list of statuses, which hold no quotes, so that a status in it is found as a text.
	selectEdges = `SELECT u.job_name, u.status, n.run_on FROM execution_job_needs n JOIN execution_jobs u ON u.job_id = n.upstream_id
WHERE n.job_id = $1 AND (u.job_id = $2 OR (u.completed_at IS NOT NULL AND n.run_on NOT LIKE '%"' || u.status || '"%'))
ORDER BY n.position`

	selectOpenNeed = `SELECT EXISTS (SELECT 1 FROM execution_job_needs n JOIN execution_jobs u ON u.job_id = n.upstream_id
WHERE n.job_id = $1 AND u.completed_at IS NULL)`
)
