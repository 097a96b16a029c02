package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/outbox"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// AgentTopic is the outbox topic of what agents must be told. The target is the agent, the payload an AgentEffect.
const AgentTopic = "agent"

// AgentEffect is one thing to tell or do to an agent's connection.
type AgentEffect struct {
	RunID   string `json:"runId,omitempty"`
	JobID   string `json:"jobId,omitempty"` // a job to cancel; empty = close the connection
	Reason  string `json:"reason"`
	Force   bool   `json:"force,omitempty"`
	GraceMs int64  `json:"graceMs,omitempty"`
	// Frame is a frame that is sent as it stands, such as the late answer to a question of a job; nothing else is set then.
	Frame json.RawMessage `json:"frame,omitempty"`
}

// apply stores outcomes and then decides, in the same transaction, what the ends of jobs in it mean: for their
// dependants and siblings one after the other, and at last for the run.
func (e *Engine) apply(ctx context.Context, tx *store.Tx, run lifecycle.Run, outcomes ...lifecycle.Outcome) error {
	return e.applyAhead(ctx, tx, run, nil, outcomes...)
}

// ahead is what the end of a job concerns, asked for with the job: the answer is the same before the end and after it, as long as
// nothing else of the run changes.
type ahead struct {
	stands     standing
	dependants []lifecycle.Job
	alone      bool // the run has no other job
	stepsLeft  bool // something of its steps is still to be stored: one goes on, or has a result
}

// into takes the standingColumns and the endingColumns.
func (a *ahead) into() []any { return append(a.stands.into(), &a.alone, &a.stepsLeft) }

// asks asks for what lockJob does not bring.
func (a *ahead) asks(jobID string) []store.Ask {
	summaries := askSummaries(&a.stands, "run_id = (SELECT run_id FROM execution_jobs WHERE job_id = $1)", jobID)
	summaries.Idle = func() bool { return a.stands.open || a.alone }
	return []store.Ask{summaries, a.askDependants(jobID)}
}

func (a *ahead) askDependants(jobID string) store.Ask {
	dependants := askJobs(&a.dependants, selectDependants, jobID)
	dependants.Idle = func() bool { return !a.stands.open } // who waits for it is open
	return dependants
}

// applyAhead is apply for the end of one job of which is known ahead what it concerns. It may be nil.
func (e *Engine) applyAhead(ctx context.Context, tx *store.Tx, run lifecycle.Run, known *ahead, outcomes ...lifecycle.Outcome) error {
	tx.After(func() { e.changed(run.ID) })
	now := e.clock.Millis()
	var ended []lifecycle.Job
	var news endings
	var begun *lifecycle.RunChange
	loose := anyLoose
	if known != nil {
		loose = looseEnds{holds: known.stands.holds, steps: known.stepsLeft}
	}
	for _, o := range outcomes {
		if o.Run.Begins() && len(o.Ended) > 0 { // it may end as well, and then one change tells both
			begun, o.Run = o.Run, nil
			run.Begin(*begun)
		}
		if err := e.admit(ctx, tx, &run, &o, loose, now); err != nil {
			return err
		}
		ended = append(ended, o.Ended...)
		news.reported(o)
	}
	if len(ended) == 0 {
		return nil
	}
	// What the first end concerns, and how the run stands, is asked at once; how it stands once more when that ends more.
	if known == nil {
		known = &ahead{}
		if err := tx.All(ctx, append(askStanding(&known.stands, run.ID), known.askDependants(ended[0].ID))...); err != nil {
			return fmt.Errorf("load what the end of job %s concerns: %w", ended[0].ID, err)
		}
	}
	stands, more := known.stands.after(ended[0]), false
	for len(ended) > 0 {
		next := ended[0]
		ended = ended[1:]
		a, err := loadAftermath(ctx, tx, run, next, known)
		if err != nil {
			return err
		}
		known = nil
		news.jobs = append(news.jobs, a.Job)
		follow := lifecycle.Ended(a, now)
		if err := e.admit(ctx, tx, &run, &follow, anyLoose, now); err != nil {
			return err
		}
		ended, more = append(ended, follow.Ended...), more || len(follow.Ended) > 0
	}
	if more {
		var err error
		if stands, err = loadStanding(ctx, tx, run.ID); err != nil {
			return err
		}
	}
	return e.settle(ctx, tx, run, stands, begun, news, now)
}

// looseEnds are what there may be that ends with a job.
type looseEnds struct {
	holds bool // something in the run waits for somebody
	steps bool // see ahead.stepsLeft
}

// anyLoose is what has to be supposed without a look.
var anyLoose = looseEnds{holds: true, steps: true}

// admit stores an outcome, without the jobs that their gates do not let into the queue.
func (e *Engine) admit(ctx context.Context, tx *store.Tx, run *lifecycle.Run, o *lifecycle.Outcome, loose looseEnds, now int64) error {
	if err := e.atDoor(ctx, tx, o, now); err != nil {
		return err
	}
	return e.storeOutcome(ctx, tx, run, *o, loose, now)
}

// storeOutcome writes the changes of one decision, in lock order: run, jobs, queue rows, outbox.
func (e *Engine) storeOutcome(ctx context.Context, tx *store.Tx, run *lifecycle.Run, o lifecycle.Outcome, loose looseEnds, now int64) error {
	if o.Run != nil {
		if err := storeRun(ctx, tx, run, *o.Run); err != nil {
			return err
		}
	}
	for _, c := range o.Jobs {
		if err := storeJob(ctx, tx, run.ID, c, loose.steps); err != nil {
			return err
		}
		if c.CloseHolds || loose.holds && c.CompletedAt != 0 { // its own, and those of its steps, of which only the holds themselves know
			if err := closeHolds(ctx, tx, run.ID, c.JobID, now); err != nil {
				return err
			}
		}
	}
	for _, c := range o.Rows {
		if err := e.storeRow(ctx, tx, run.ID, c, now); err != nil {
			return err
		}
	}
	return e.storeEffects(ctx, tx, run.ID, o.Effects, now)
}

// storeRun writes a change of the run and keeps the loaded value in step, since follow-ups decide on it.
func storeRun(ctx context.Context, tx *store.Tx, run *lifecycle.Run, c lifecycle.RunChange) error {
	statement, args, err := runStatement(run.ID, c)
	if err == nil {
		err = tx.Do(ctx, statement, args...)
	}
	if err != nil {
		return fmt.Errorf("store run %s: %w", run.ID, err)
	}
	if c.Cancel != nil {
		run.Cancel = c.Cancel
	}
	if c.Status != "" {
		run.Status = c.Status
	}
	if c.Reason != nil {
		run.Reason = c.Reason
	}
	if c.StartedAt != 0 && run.StartedAt == 0 {
		run.StartedAt = c.StartedAt
	}
	return nil
}

func runStatement(runID string, c lifecycle.RunChange) (statement string, args []any, err error) {
	if c.CompletedAt != 0 && c == (lifecycle.RunChange{Status: c.Status, StartedAt: c.StartedAt, CompletedAt: c.CompletedAt, ClearReason: true}) {
		return endRunWell, []any{runID, string(c.Status), nullMillis(c.StartedAt), c.CompletedAt}, nil
	}
	reason, message, err := encodeReason(c.Reason)
	if err != nil {
		return "", nil, err
	}
	failure, err := encodeInit(c.InitFailure)
	if err != nil {
		return "", nil, err
	}
	var by, why sql.NullString
	var at sql.NullInt64
	forced := false
	if c.Cancel != nil {
		if why, _, err = encodeReason(&c.Cancel.Reason); err != nil {
			return "", nil, err
		}
		by, at, forced = nullText(c.Cancel.By), nullMillis(c.Cancel.At), c.Cancel.Forced
	}
	statement, args = changeRun, []any{runID, nullText(string(c.Status)), nullMillis(c.StartedAt), reason, message, failure,
		by, why, at, forced, c.ClearReason}
	if c.CompletedAt != 0 {
		statement, args = endRun, append(args, c.CompletedAt)
	}
	return statement, args, nil
}

func storeJob(ctx context.Context, tx *store.Tx, runID string, c lifecycle.JobChange, stepsLeft bool) error {
	statement, args, err := jobStatement(c)
	if err == nil { // one that became terminal meanwhile changes no more
		err = tx.DoOne(ctx, store.ErrUnchanged, statement, args...)
	}
	if err != nil {
		return fmt.Errorf("store job %s: %w", c.JobID, err)
	}
	if c.CompletedAt == 0 || !stepsLeft {
		return nil
	}
	return closeSteps(ctx, tx, runID, c)
}

// endsWell tells that a change of a job is an end with nothing to explain, as most are. Each value that a statement does not take
// is time that the only writer of the database has.
func endsWell(c lifecycle.JobChange) bool {
	return c.CompletedAt != 0 && c.Reason == nil && c.Error == "" && c.InitFailure == nil && c.Heartbeat == 0 &&
		!c.Satisfied && !c.Release && !c.Complete && !c.WaitSlot && !c.GiveSlot && c.Hold == c.Unhold
}

func jobStatement(c lifecycle.JobChange) (statement string, args []any, err error) {
	if endsWell(c) {
		return endJobWell, []any{c.JobID, string(c.Status), nullText(c.AgentID), nullMillis(c.StartedAt), nullText(string(c.Outputs)), c.CompletedAt}, nil
	}
	reason, _, err := encodeReason(c.Reason)
	if err != nil {
		return "", nil, err
	}
	failure, err := encodeInit(c.InitFailure)
	if err != nil {
		return "", nil, err
	}
	statement, args = changeJob, []any{c.JobID, nullText(string(c.Status)), reason, nullText(c.Error), failure,
		nullText(c.AgentID), nullMillis(c.StartedAt), nullMillis(c.Heartbeat), c.Satisfied, c.Release, nullText(string(c.Outputs)), c.Complete,
		c.Hold - c.Unhold, c.WaitSlot, c.GiveSlot}
	if c.CompletedAt != 0 {
		statement, args = endJob, append(args, c.CompletedAt)
	}
	return statement, args, nil
}

// storeRow changes a queue row. A guard that no longer holds means a lost race, so the command is decided again.
func (e *Engine) storeRow(ctx context.Context, tx *store.Tx, runID string, c lifecycle.RowChange, now int64) error {
	if err := e.changeRow(ctx, tx, runID, c, now); err != nil {
		return fmt.Errorf("change queue row %s: %w", c.JobID, err)
	}
	return nil
}

func (e *Engine) changeRow(ctx context.Context, tx *store.Tx, runID string, c lifecycle.RowChange, now int64) error {
	switch c.Op {
	case lifecycle.RowEnqueue:
		tx.After(e.dispatch.Wake)
		return e.enqueue(ctx, tx, runID, c.JobID, now)
	case lifecycle.RowRequeue:
		tx.After(e.dispatch.Wake)
		tx.After(e.expiries.near)
		return queue.Requeue(ctx, tx, c.JobID, c.Reason, now, e.expiry(now))
	case lifecycle.RowAck:
		return queue.Acknowledge(ctx, tx, c.JobID)
	case lifecycle.RowStart:
		return queue.Start(ctx, tx, c.JobID)
	case lifecycle.RowResume:
		return queue.Resume(ctx, tx, c.JobID)
	case lifecycle.RowRelease:
		tx.After(e.dispatch.Wake)
		tx.After(e.expiries.near)
		return queue.Release(ctx, tx, c.JobID, c.Reason, now)
	case lifecycle.RowRecover:
		return queue.Recover(ctx, tx, c.JobID, c.Until)
	case lifecycle.RowReclaim:
		return queue.Reclaim(ctx, tx, c.JobID, e.settings.NodeID, now)
	case lifecycle.RowComplete:
		tx.After(e.dispatch.Wake) // its agent has room now
		return queue.Complete(ctx, tx, c.JobID, c.Reason, now)
	case lifecycle.RowFail:
		tx.After(e.dispatch.Wake)
		return queue.Fail(ctx, tx, c.JobID, c.Reason, now)
	case lifecycle.RowExpire:
		return queue.Expire(ctx, tx, c.JobID, c.Reason, now)
	case lifecycle.RowWithdraw:
		tx.After(e.dispatch.Wake)
		return queue.Withdraw(ctx, tx, c.JobID, c.Reason, now)
	}
	return fmt.Errorf("unknown queue operation %d", c.Op)
}

func (e *Engine) enqueue(ctx context.Context, tx *store.Tx, runID, jobID string, now int64) error {
	var selector string
	var position int64
	err := tx.QueryRowContext(ctx, "SELECT selector_id, position FROM execution_jobs WHERE job_id = $1", jobID).Scan(&selector, &position)
	if err != nil {
		return err
	}
	if err := tx.Do(ctx, "UPDATE execution_jobs SET ready_at = $2 WHERE job_id = $1", jobID, now); err != nil {
		return err
	}
	return queue.Enqueue(ctx, tx, jobID, runID, selector, now, position, e.expiry(now))
}

func (e *Engine) expiry(now int64) int64 {
	if e.settings.QueueTimeout == 0 {
		return 0
	}
	return now + e.settings.QueueTimeout.Milliseconds()
}

func (e *Engine) storeEffects(ctx context.Context, tx *store.Tx, runID string, effects []lifecycle.Effect, now int64) error {
	for _, effect := range effects {
		target, payload := agentEffect(runID, effect)
		if err := outbox.Put(ctx, tx, AgentTopic, target, payload, now); err != nil {
			return err
		}
		tx.After(e.effects.Wake)
		if c, ok := effect.(lifecycle.CancelJob); ok {
			if err := e.endWait(ctx, tx, runID, c, now); err != nil {
				return err
			}
		}
	}
	return nil
}

func agentEffect(runID string, effect lifecycle.Effect) (agent string, payload AgentEffect) {
	switch v := effect.(type) {
	case lifecycle.CancelJob:
		return v.AgentID, AgentEffect{RunID: runID, JobID: v.JobID, Reason: v.Reason, Force: v.Force, GraceMs: v.GraceMs}
	case lifecycle.DropAgent:
		return v.AgentID, AgentEffect{Reason: v.Reason}
	}
	panic(fmt.Sprintf("unknown effect %T", effect)) // a new effect of the life cycle must be carried here
}

// encodeReason gives a reason as its document and as its sentence.
func encodeReason(r *ci.Reason) (document, message sql.NullString, err error) {
	if r == nil {
		return document, message, nil
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return document, message, fmt.Errorf("encode reason: %w", err)
	}
	return nullText(string(raw)), nullText(ci.CutText(r.Message)), nil
}

func encodeInit(f *ci.InitFailure) (sql.NullString, error) {
	if f == nil {
		return sql.NullString{}, nil
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return sql.NullString{}, fmt.Errorf("encode init failure: %w", err)
	}
	return nullText(string(raw)), nil
}

func nullText(s string) sql.NullString  { return sql.NullString{String: s, Valid: s != ""} }
func nullMillis(at int64) sql.NullInt64 { return sql.NullInt64{Int64: at, Valid: at != 0} }

const (
	// Of the job $1.
	endingColumns = `NOT EXISTS (SELECT 1 FROM execution_jobs o WHERE o.run_id = r.run_id AND o.job_id <> $1),
    EXISTS (SELECT 1 FROM execution_steps s WHERE s.job_id = $1 AND s.status IN ('running', 'pending'))`

	// The casts tell PostgreSQL the types of parameters that it could not infer. The end is set by who ends the run alone:
	// SQLite writes the indexes of a column that is set, whatever to.
	setRun = `UPDATE execution_runs SET
    status = coalesce($2, status),
    started_at = coalesce(started_at, $3),
    reason = CASE WHEN CAST($11 AS BOOLEAN) THEN NULL ELSE coalesce($4, reason) END,
    failure_reason = CASE WHEN CAST($11 AS BOOLEAN) THEN NULL ELSE coalesce($5, failure_reason) END,
    init_failure = coalesce($6, init_failure),
    cancelled_by = coalesce($7, cancelled_by),
    cancel_reason = coalesce($8, cancel_reason),
    cancel_requested_at = coalesce($9, cancel_requested_at),
    cancel_forced = cancel_forced OR $10`

	// A terminal run never changes.
	whileRunOpen = ` WHERE run_id = $1 AND completed_at IS NULL`

	changeRun = setRun + whileRunOpen

	endRun = setRun + `,
    completed_at = CAST($12 AS BIGINT),
    duration_ms = CAST($12 AS BIGINT) - coalesce(started_at, $3, created_at),` + runEnds + whileRunOpen

	// A run that succeeded has nothing to explain.
	endRunWell = `UPDATE execution_runs SET status = $2, started_at = coalesce(started_at, $3), reason = NULL, failure_reason = NULL,
    completed_at = CAST($4 AS BIGINT),
    duration_ms = CAST($4 AS BIGINT) - coalesce(started_at, $3, created_at),` + runEnds + whileRunOpen

	// Nothing is sealed for the run any more. The duration counts from the start, or from the birth of a run that never started.
	runEnds = `
    public_key = NULL, sealed_private_key = NULL, key_made_at = NULL,
    log_bytes = (SELECT coalesce(sum(log_bytes), 0) FROM execution_jobs j WHERE j.run_id = execution_runs.run_id)`

	setJob = `UPDATE execution_jobs SET
    status = coalesce($2, status),
    error_message = coalesce($4, error_message),
    init_failure = coalesce($5, init_failure),
    agent_id = coalesce($6, agent_id),
    started_at = CASE WHEN CAST($14 AS BOOLEAN) THEN NULL ELSE coalesce(started_at, $7) END,
    last_heartbeat_at = coalesce($8, last_heartbeat_at),
    needs_satisfied = needs_satisfied OR $9,
    wave_gated = wave_gated AND NOT CAST($10 AS BOOLEAN),
    outputs = coalesce($11, outputs),
    deferred = deferred AND NOT CAST($12 AS BOOLEAN),
    holds = holds + CAST($13 AS BIGINT),
    slot_waiting = (slot_waiting OR CAST($14 AS BOOLEAN)) AND NOT CAST($15 AS BOOLEAN)`

	// A terminal job never changes.
	whileJobOpen = ` WHERE job_id = $1 AND completed_at IS NULL`

	changeJob = setJob + `, reason = coalesce($3, reason)` + whileJobOpen

	endJob = setJob + `,
    reason = $3,
    completed_at = CAST($16 AS BIGINT),
    duration_ms = CAST($16 AS BIGINT) - coalesce(started_at, CAST($7 AS BIGINT)),` + jobLogBytes + whileJobOpen

	endJobWell = `UPDATE execution_jobs SET status = $2, reason = NULL, agent_id = coalesce($3, agent_id), started_at = coalesce(started_at, $4),
    outputs = coalesce($5, outputs),
    completed_at = CAST($6 AS BIGINT),
    duration_ms = CAST($6 AS BIGINT) - coalesce(started_at, CAST($4 AS BIGINT)),` + jobLogBytes + whileJobOpen

	jobLogBytes = `
    log_bytes = (SELECT coalesce(sum(s.log_bytes), 0) FROM execution_steps s WHERE s.job_id = execution_jobs.job_id)`
)
