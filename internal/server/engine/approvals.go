package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/core/wire"
	"kici/internal/decide/contexts"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/store"
)

// Approvals asks people whether a step may go on.
type Approvals struct{ *Engine }

// Request stores a step's question, or finds it when it comes again: by its job and step while it is open, and by its
// message id once it is decided. A nil answer says that nobody has decided yet.
func (a Approvals) Request(ctx context.Context, agentID string, m wire.ApprovalRequest) (answer *wire.ApprovalResolved, err error) {
	err = a.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		answer = nil
		run, job, err := lockJob(ctx, tx, m.JobID, nil)
		if err != nil {
			return err
		}
		if !lifecycle.Accepts(job, lifecycle.Report{Agent: agentID}) || run.Cancel != nil {
			answer = &wire.ApprovalResolved{RequestID: m.MessageID, RunID: m.RunID, JobID: m.JobID, StepIndex: m.StepIndex,
				Outcome: wire.ApprovalRejected, Reason: notAssigned}
			return nil
		}
		known, err := a.asked(ctx, tx, agentID, m)
		if err != nil {
			return err
		}
		if known != nil {
			if known.status.Terminal() {
				resolved := stepAnswer(*known, known.status, nil)
				answer = &resolved
			}
			return nil
		}
		return a.openStep(ctx, tx, run, agentID, m)
	})
	return answer, err
}

// asked finds the hold of a question that came before. An open one is told where its answer goes now.
func (a Approvals) asked(ctx context.Context, tx *store.Tx, agentID string, m wire.ApprovalRequest) (*openHold, error) {
	found, err := store.Texts(ctx, tx, `SELECT id FROM held_runs WHERE job_id = $1 AND hold_scope = 'step' AND step_index = $2
AND (status = 'pending' OR request_id = $3) ORDER BY created_at DESC, id DESC LIMIT 1`, m.JobID, m.StepIndex, m.MessageID)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	_, h, err := lockHold(ctx, tx, found[0])
	if err != nil || h.status.Terminal() {
		return &h, err
	}
	err = tx.Do(ctx, "UPDATE held_runs SET agent_id = $2, request_id = $3 WHERE id = $1", h.id, agentID, m.MessageID)
	return &h, err
}

func (a Approvals) openStep(ctx context.Context, tx *store.Tx, run lifecycle.Run, agentID string, m wire.ApprovalRequest) error {
	var orgID string
	if err := tx.QueryRowContext(ctx, "SELECT org_id FROM execution_runs WHERE run_id = $1", run.ID).Scan(&orgID); err != nil {
		return fmt.Errorf("find organisation of run %s: %w", run.ID, err)
	}
	approval := lockfile.Approval{Reason: ci.CutText(m.Reason), TimeoutSeconds: float64(m.TimeoutSeconds)}
	for _, c := range m.Clauses[:min(len(m.Clauses), ci.MaxListEntries)] {
		approval.Clauses = append(approval.Clauses, lockfile.Clause{Team: ci.CutName(c.Team), User: ci.CutName(c.User)})
	}
	var payload json.RawMessage
	if m.Payload != nil {
		raw, err := json.Marshal(m.Payload)
		if err != nil {
			return fmt.Errorf("encode what a step shows its reviewers: %w", err)
		}
		payload = raw
	}
	expiry, err := expiryOf(ctx, tx, orgID, &approval)
	if err != nil {
		return err
	}
	hold := contexts.Protect(contexts.Request{Approval: &approval, Expiry: expiry}).Holds[0]
	return a.open(ctx, tx, newHold{runID: run.ID, orgID: orgID, jobID: m.JobID, scope: ci.HoldStep, stepIndex: m.StepIndex,
		stepName: m.StepName, payload: payload, agentID: agentID, requestID: m.MessageID, hold: hold}, a.clock.Millis())
}

// remindSteps repeats the answers that an agent may have missed while it was away.
func (e *Engine) remindSteps(ctx context.Context, tx *store.Tx, jobID, agentID string, now int64) error {
	decided, err := store.Texts(ctx, tx, `SELECT id FROM held_runs WHERE job_id = $1 AND agent_id = $2 AND hold_scope = 'step'
AND status <> 'pending' ORDER BY created_at, id`, jobID, agentID)
	if err != nil {
		return err
	}
	for _, id := range decided {
		_, h, err := lockHold(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := e.answerStep(ctx, tx, h, h.status, nil, now); err != nil {
			return err
		}
	}
	return nil
}

// sweepHolds releases the holds whose time or slot has come, and ends what nobody decided about in time.
func (e *Engine) sweepHolds(ctx context.Context, now int64) error {
	pending, groups, err := e.dueHolds(ctx, now)
	if err != nil || len(pending) == 0 {
		return err
	}
	free := map[string]int64{}
	for key, of := range groups {
		if free[key], err = e.freeSlots(ctx, of); err != nil {
			return err
		}
	}
	released, expired := contexts.Sweep(pending, free, now)
	for _, id := range released {
		if err := e.sweepHold(ctx, id, ci.HoldReleased); err != nil {
			return err
		}
	}
	for _, id := range expired {
		if err := e.sweepHold(ctx, id, ci.HoldExpired); err != nil {
			return err
		}
	}
	return nil
}

// slots are those of a group of one organisation: groups of one name are not the same in two. How many there are follows from
// all contexts of the job that waits, of which the strictest counts.
type slots struct {
	orgID, group, names string
	install             bool // installing dependencies takes none, and goes on as soon as there are any; the contexts are the group
}

func (s slots) key() string { return fmt.Sprint(s.orgID, "\x00", s.group, "\x00", s.install) }

// dueHolds lists the pending holds that a sweep may act on, those whose time is up and those that wait for a slot, with
// the slots that the latter wait for, by key.
func (e *Engine) dueHolds(ctx context.Context, now int64) ([]contexts.Waiting, map[string]slots, error) {
	rows, err := e.db.Read().QueryContext(ctx, selectDueHolds, now, sweepBatch)
	if err != nil {
		return nil, nil, fmt.Errorf("list due holds: %w", err)
	}
	defer rows.Close()
	var out []contexts.Waiting
	groups := map[string]slots{}
	for rows.Next() {
		var w contexts.Waiting
		var of slots
		var kept sql.NullString
		if err := rows.Scan(&w.ID, &w.Type, &of.orgID, &of.group, &of.names, &kept, &w.CreatedAt, &w.ExpiresAt); err != nil {
			return nil, nil, err
		}
		if kept.Valid && w.Type == ci.HoldConcurrency {
			if err := of.installs(kept); err != nil {
				return nil, nil, err
			}
		}
		if w.Type == ci.HoldConcurrency {
			w.Group = of.key()
			first, known := groups[w.Group]
			if !known {
				groups[w.Group] = of
			} else if first.names != of.names {
				w.Group += "\x00" + of.names // the next turn asks for its own limit; until then it has no slot
			}
		}
		out = append(out, w)
	}
	return out, groups, rows.Err()
}

// installs makes the slots those that installing the dependencies of a run waits for.
func (s *slots) installs(kept sql.NullString) error {
	secrets, err := decodeSecrets(kept)
	if err != nil {
		return err
	}
	in, err := secrets.Install("", true)
	if err != nil {
		return err
	}
	names, err := json.Marshal(in.Contexts())
	s.names, s.group, s.install = string(names), string(names), true
	return err
}

// freeSlots is how many jobs more of a group may go on.
func (e *Engine) freeSlots(ctx context.Context, of slots) (free int64, err error) {
	if e.contexts == nil {
		return 0, nil
	}
	var names []string
	if err := json.Unmarshal([]byte(of.names), &names); err != nil {
		return 0, fmt.Errorf("decode contexts of a job that waits for a slot of %q: %w", of.group, err)
	}
	err = e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		bound, err := e.contexts.Bound(ctx, tx, of.orgID, names)
		if err != nil {
			return fmt.Errorf("find contexts of jobs that wait for a slot of %q: %w", of.group, err)
		}
		limit := contexts.Aggregate(bound).ConcurrencyLimit
		if limit == nil {
			free = sweepBatch // the limit was taken away
			return nil
		}
		if of.install {
			free = min(*limit, 1) * sweepBatch
			return nil
		}
		busy, err := busyIn(ctx, tx, of.orgID, of.group)
		if err != nil {
			return err
		}
		free = max(*limit-busy, 0)
		return nil
	})
	return free, err
}

func (e *Engine) sweepHold(ctx context.Context, id string, status ci.HoldStatus) error {
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		run, h, err := lockHold(ctx, tx, id)
		if err != nil || h.status.Terminal() {
			return err
		}
		var why *ci.Reason
		if status == ci.HoldExpired {
			reason := contexts.Expired(h.scope)
			why = &reason
		}
		return e.resolve(ctx, tx, run, h, status, "", why, e.clock.Millis())
	})
}

// selectDueHolds takes those whose time is up first: many that wait for slots, which nothing bounds, must not hide them.
const selectDueHolds = `SELECT h.id, h.hold_type, h.org_id, coalesce(j.slot_group, ''), coalesce(j.contexts, '[]'), r.workflow_secrets,
    h.created_at, coalesce(h.expires_at, 0)
FROM held_runs h LEFT JOIN execution_jobs j ON j.job_id = h.job_id
LEFT JOIN execution_runs r ON r.run_id = h.run_id AND h.hold_scope = 'workflow'
WHERE h.status = 'pending' AND (h.expires_at <= $1 OR h.hold_type = 'concurrency')
ORDER BY CASE WHEN h.expires_at <= $1 THEN 0 ELSE 1 END, h.created_at, h.id LIMIT $2`
