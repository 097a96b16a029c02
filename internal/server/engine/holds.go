package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/core/wire"
	"kici/internal/decide/contexts"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/orgs"
	"kici/internal/server/store"
)

// ErrHoldNotFound says that there is no such hold.
var ErrHoldNotFound = errors.New("no such hold")

// newHold is a hold that is opened.
type newHold struct {
	runID, orgID, jobID string
	scope               ci.HoldScope
	context             string // whose rules ask for it; "" when the author does
	group               string // whose slot it waits for, where it waits for one
	stepIndex           int    // of a step
	stepName            string
	payload             json.RawMessage
	agentID, requestID  string // of a step: who waits for the answer
	hold                contexts.Hold
}

// open stores a hold, and has older ones rejected where only the newest may wait.
func (e *Engine) open(ctx context.Context, tx *store.Tx, n newHold, now int64) error {
	reason, err := json.Marshal(n.hold.Reason)
	if err != nil {
		return fmt.Errorf("encode reason of a hold: %w", err)
	}
	clauses, err := json.Marshal(append([]lockfile.Clause{}, n.hold.Clauses...))
	if err != nil {
		return fmt.Errorf("encode clauses of a hold: %w", err)
	}
	if n.hold.ReplacesOlder {
		if err := e.rejectOlder(ctx, tx, n, now); err != nil {
			return err
		}
	}
	index := -1
	if n.scope == ci.HoldStep {
		index = n.stepIndex
	}
	id, err := uuid.NewV7() // ids rise, so that holds of one moment keep their order
	if err != nil {
		return err
	}
	err = tx.Do(ctx, insertHold, id.String(), n.orgID, n.runID, n.jobID, string(n.scope), index, ci.CutName(n.stepName),
		string(n.hold.Type), string(n.hold.Queue), string(n.hold.Source), nullText(n.context), string(reason), string(clauses),
		nullText(ci.CleanText(string(n.payload))), n.agentID, n.requestID, now, now+n.hold.ExpiresIn.Milliseconds())
	if err != nil {
		return fmt.Errorf("open a hold on run %s: %w", n.runID, err)
	}
	return nil
}

// rejectOlder has the jobs that wait for the same slots make room for a newer one. They may be other runs' jobs, so it
// follows this transaction.
func (e *Engine) rejectOlder(ctx context.Context, tx *store.Tx, n newHold, now int64) error {
	rows, err := tx.QueryContext(ctx, "SELECT h.id, h.run_id"+waitingInGroup+" ORDER BY h.id", n.orgID, n.group)
	if err != nil {
		return fmt.Errorf("list older holds: %w", err)
	}
	defer rows.Close()
	type hold struct{ id, runID string }
	var older []hold
	for rows.Next() {
		var h hold
		if err := rows.Scan(&h.id, &h.runID); err != nil {
			return err
		}
		older = append(older, h)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	why := contexts.Superseded(n.group)
	for _, h := range older {
		if err := e.tellRun(ctx, tx, h.runID, runEffect{RejectHold: h.id, Why: &why}, now); err != nil {
			return err
		}
	}
	return nil
}

// openHold is a pending or decided hold as it is stored.
type openHold struct {
	id, orgID, runID, jobID string
	scope                   ci.HoldScope
	kind                    ci.HoldType
	queue                   ci.QueueType
	status                  ci.HoldStatus
	stepIndex               int
	agentID, requestID      string
	clauses                 []lockfile.Clause
	expiresAt               int64 // epoch ms, 0 for never
}

// overdue tells whether a hold that people decide has expired and no sweep has come by since.
func (h openHold) overdue(now int64) bool {
	asksPeople := h.kind == ci.HoldReviewer || h.kind == ci.HoldSecurity
	return h.status == ci.HoldPending && asksPeople && h.expiresAt != 0 && h.expiresAt <= now
}

// lockHold locks the run of a hold and loads the hold.
func lockHold(ctx context.Context, tx *store.Tx, id string) (lifecycle.Run, openHold, error) {
	var runID string
	err := tx.QueryRowContext(ctx, "SELECT run_id FROM held_runs WHERE id = $1", id).Scan(&runID)
	if isNoRows(err) {
		return lifecycle.Run{}, openHold{}, ErrHoldNotFound
	}
	if err != nil {
		return lifecycle.Run{}, openHold{}, fmt.Errorf("find hold %s: %w", id, err)
	}
	run, ok, err := loadRun(ctx, tx, runID)
	if err != nil || !ok {
		return run, openHold{}, errors.Join(err, ErrHoldNotFound)
	}
	h := openHold{id: id, runID: runID}
	var clauses string
	err = tx.QueryRowContext(ctx, selectHold, id).Scan(&h.orgID, &h.jobID, &h.scope, &h.kind, &h.queue, &h.status, &h.stepIndex,
		&h.agentID, &h.requestID, &clauses, &h.expiresAt)
	if err != nil {
		return run, h, fmt.Errorf("load hold %s: %w", id, err)
	}
	if err := json.Unmarshal([]byte(clauses), &h.clauses); err != nil {
		return run, h, fmt.Errorf("decode clauses of hold %s: %w", id, err)
	}
	return run, h, nil
}

// Vote is somebody's answer to a hold.
type Vote struct {
	By      contexts.Actor
	Through ci.QueueType
	Answer  contexts.Answer
	Comment string
}

// Decide takes an answer to a hold. The answer and what follows from it are one transaction; an answer to a hold that is
// decided changes nothing.
func (e *Engine) Decide(ctx context.Context, holdID string, v Vote) (d contexts.Decision, err error) {
	err = e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		run, h, err := lockHold(ctx, tx, holdID)
		if err != nil {
			return err
		}
		now := e.clock.Millis()
		if h.overdue(now) {
			why := contexts.Expired(h.scope)
			if err := e.resolve(ctx, tx, run, h, ci.HoldExpired, "", &why, now); err != nil {
				return err
			}
			h.status = ci.HoldExpired
		}
		votes, triggerer, err := loadVotes(ctx, tx, h)
		if err != nil {
			return err
		}
		org, err := orgs.Read(ctx, tx, h.orgID)
		if err != nil {
			return err
		}
		d = contexts.Decide(contexts.Open{Status: h.status, Queue: h.queue, Clauses: h.clauses, Votes: votes, Triggerer: triggerer,
			AllowSelfApproval: org.AllowSelfApproval}, v.Through, v.By, v.Answer)
		if d.Result == contexts.Ineligible || d.Result == contexts.NotFound {
			return nil
		}
		if err := insertVote(ctx, tx, h, v, d, now); err != nil {
			return err
		}
		switch d.Result {
		case contexts.Released:
			return e.resolve(ctx, tx, run, h, ci.HoldApproved, v.By.ID, nil, now)
		case contexts.Rejected:
			why := d.Reason
			if v.Comment != "" {
				why.Message = ci.CutText(why.Message + ": " + v.Comment)
			}
			return e.resolve(ctx, tx, run, h, ci.HoldRejected, v.By.ID, &why, now)
		}
		return nil
	})
	return d, err
}

// resolve closes a hold and lets what it held go, or ends it for that reason.
func (e *Engine) resolve(ctx context.Context, tx *store.Tx, run lifecycle.Run, h openHold, status ci.HoldStatus, by string, why *ci.Reason, now int64) error {
	mine, err := store.Changed(tx.ExecContext(ctx, `UPDATE held_runs SET status = $2, resolved_at = $3, resolved_by = $4
WHERE id = $1 AND status = 'pending'`, h.id, string(status), now, nullText(by)))
	if err != nil || !mine {
		return err
	}
	if h.scope == ci.HoldStep {
		return e.answerStep(ctx, tx, h, status, why, now)
	}
	if h.jobID != "" && h.scope == ci.HoldWorkflow {
		return e.resolveInstall(ctx, tx, run, h, holdEnd{status, by, why}, now)
	}
	held, err := e.heldBy(ctx, tx, h)
	if err != nil {
		return err
	}
	if !status.LetsGo() {
		return e.refuse(ctx, tx, run, h, held, *why, now)
	}
	var outcomes []lifecycle.Outcome
	for _, job := range held {
		outcomes = append(outcomes, lifecycle.HoldReleased(job))
	}
	return e.apply(ctx, tx, run, outcomes...)
}

// refuse ends what a hold held. Of a workflow those go first that waited for it alone: most others are then skipped, and one
// that would run because of their end must not.
func (e *Engine) refuse(ctx context.Context, tx *store.Tx, run lifecycle.Run, h openHold, held []lifecycle.Job, why ci.Reason, now int64) error {
	var first []lifecycle.Outcome
	for _, job := range held {
		if job.NeedsSatisfied || h.scope != ci.HoldWorkflow {
			first = append(first, lifecycle.HoldRefused(job, why, now))
		}
	}
	if err := e.apply(ctx, tx, run, first...); err != nil || h.scope != ci.HoldWorkflow {
		return err
	}
	held, err := e.heldBy(ctx, tx, h)
	if err != nil {
		return err
	}
	var rest []lifecycle.Outcome
	for _, job := range held {
		rest = append(rest, lifecycle.HoldRefused(job, why, now))
	}
	return e.apply(ctx, tx, run, rest...)
}

// holdEnd is how a hold ended, and why when it does not let go.
type holdEnd struct {
	status ci.HoldStatus
	by     string
	why    *ci.Reason
}

func (e *Engine) heldBy(ctx context.Context, tx *store.Tx, h openHold) ([]lifecycle.Job, error) {
	if h.scope == ci.HoldWorkflow {
		return e.heldByWorkflow(ctx, tx, h.runID)
	}
	job, err := loadJob(ctx, tx, h.jobID)
	return []lifecycle.Job{job}, err
}

// answerStep tells the agent that waits with a step. An agent that is away is told when it comes back with the job.
func (e *Engine) answerStep(ctx context.Context, tx *store.Tx, h openHold, status ci.HoldStatus, why *ci.Reason, now int64) error {
	return e.tellAgent(ctx, tx, h.agentID, stepAnswer(h, status, why), now)
}

func stepAnswer(h openHold, status ci.HoldStatus, why *ci.Reason) wire.ApprovalResolved {
	answer := wire.ApprovalResolved{RequestID: h.requestID, RunID: h.runID, JobID: h.jobID, StepIndex: h.stepIndex, Outcome: wire.ApprovalRejected}
	switch {
	case status.LetsGo():
		answer.Outcome = wire.ApprovalApproved
	case status == ci.HoldExpired:
		answer.Outcome = wire.ApprovalExpired
	}
	if why != nil {
		answer.Reason = why.Message
	}
	return answer
}

// closeHolds closes the holds of a job that ended, or all of a run: there is nothing left to decide.
func closeHolds(ctx context.Context, tx *store.Tx, runID, jobID string, now int64) error {
	err := tx.Do(ctx, `UPDATE held_runs SET status = 'rejected', resolved_at = $3, resolved_by = 'server'
WHERE run_id = $1 AND status = 'pending' AND ($2 = '' OR job_id = $2)`, runID, jobID, now)
	if err != nil {
		return fmt.Errorf("close holds of run %s: %w", runID, err)
	}
	return nil
}

func loadVotes(ctx context.Context, tx *store.Tx, h openHold) (votes []contexts.Vote, triggerer string, err error) {
	var by sql.NullString
	if err := tx.QueryRowContext(ctx, "SELECT triggered_by FROM execution_runs WHERE run_id = $1", h.runID).Scan(&by); err != nil {
		return nil, "", fmt.Errorf("load who started run %s: %w", h.runID, err)
	}
	rows, err := tx.QueryContext(ctx, "SELECT approver_id, decision, clauses_satisfied FROM held_run_approvals WHERE held_run_id = $1 ORDER BY id", h.id)
	if err != nil {
		return nil, "", fmt.Errorf("load votes on hold %s: %w", h.id, err)
	}
	defer rows.Close()
	for rows.Next() {
		var v contexts.Vote
		var clauses string
		if err := rows.Scan(&v.UserID, &v.Answer, &clauses); err != nil {
			return nil, "", err
		}
		if err := json.Unmarshal([]byte(clauses), &v.Satisfied); err != nil {
			return nil, "", fmt.Errorf("decode votes on hold %s: %w", h.id, err)
		}
		votes = append(votes, v)
	}
	return votes, by.String, rows.Err()
}

func insertVote(ctx context.Context, tx *store.Tx, h openHold, v Vote, d contexts.Decision, now int64) error {
	clauses, err := json.Marshal(append([]lockfile.Clause{}, d.Satisfied...))
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	err = tx.Do(ctx, `INSERT INTO held_run_approvals (id, held_run_id, approver_id, decision, clauses_satisfied, reason, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)`, id.String(), h.id, v.By.ID, string(v.Answer), string(clauses), nullText(ci.CutText(v.Comment)), now)
	if err != nil {
		return fmt.Errorf("record the vote on hold %s: %w", h.id, err)
	}
	return nil
}

const (
	insertHold = `INSERT INTO held_runs (id, org_id, run_id, job_id, hold_scope, step_index, step_name, hold_type, queue_type, trigger_source,
    context_name, status, reason, clauses, payload, agent_id, request_id, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'pending', $12, $13, $14, $15, $16, $17, $18)`

	selectHold = `SELECT org_id, job_id, hold_scope, hold_type, queue_type, status, step_index, agent_id, request_id, clauses,
    coalesce(expires_at, 0)
FROM held_runs WHERE id = $1`
)
