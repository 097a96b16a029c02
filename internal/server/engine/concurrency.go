package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/core/wire"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/outbox"
	"kici/internal/server/store"
)

// Groups keeps concurrency groups: of a group only so many runs go on at a time. All of it is decided in the database,
// under a lock on the group's row, so that a restart forgets nothing and several nodes agree.
type Groups struct{ *Engine }

// group names a concurrency group. Keys are compared byte by byte.
type group struct{ routingKey, key string }

// Report decides whether a job may go on in the group that its agent names. An agent that is not patient cannot be told
// to wait: its job is taken back in the same transaction, and given out again once its run has a place.
func (g Groups) Report(ctx context.Context, agentID string, patient bool, m wire.ConcurrencyReport) (ack wire.ConcurrencyAck, err error) {
	err = g.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		ack = wire.ConcurrencyAck{RequestID: m.MessageID, Action: wire.ConcurrencyProceed}
		run, job, err := lockJob(ctx, tx, m.JobID, nil)
		if err != nil {
			return err
		}
		if !lifecycle.Accepts(job, lifecycle.Report{Agent: agentID}) {
			ack = wire.ConcurrencyAck{RequestID: m.MessageID, Action: wire.ConcurrencyCancel, Reason: notAssigned}
			return nil
		}
		rule, routingKey, err := loadRule(ctx, tx, run.ID)
		if err != nil || rule == nil || m.Group == "" {
			return err // nothing holds it up
		}
		waits, err := g.take(ctx, tx, run, job, group{routingKey, ci.CleanText(m.Group)}, *rule, waiter{agentID, m.MessageID, patient})
		if err == nil && waits != nil {
			ack.Action, ack.Reason = wire.ConcurrencyWait, waits.Message
		}
		return err
	})
	return ack, err
}

// waiter is who asked for a place.
type waiter struct {
	agentID, requestID string
	patient            bool
}

// take gives the run its place in the group, or says why its job waits.
func (g Groups) take(ctx context.Context, tx *store.Tx, run lifecycle.Run, job lifecycle.Job, of group, rule lifecycle.Concurrency, w waiter) (*ci.Reason, error) {
	now := g.clock.Millis()
	if err := lockGroup(ctx, tx, of, now); err != nil {
		return nil, err
	}
	if doom, err := g.doom(ctx, tx, run); err != nil || doom != nil {
		return doom, errors.Join(err, g.turnAway(ctx, tx, run, job, doom, w))
	}
	slots, err := loadSlots(ctx, tx, of)
	if err != nil {
		return nil, err
	}
	d := lifecycle.TakeSlot(run.ID, rule, slots)
	for _, id := range d.Supersede {
		if err := g.supersede(ctx, tx, of, id, run.ID, now); err != nil {
			return nil, err
		}
	}
	if err := tx.Do(ctx, upsertSlot, of.routingKey, of.key, run.ID, d.Proceed, now); err != nil {
		return nil, fmt.Errorf("take a place in group %q: %w", of.key, err)
	}
	if err := tx.Do(ctx, "UPDATE execution_runs SET concurrency_group = $2 WHERE run_id = $1", run.ID, of.key); err != nil {
		return nil, fmt.Errorf("note group of run %s: %w", run.ID, err)
	}
	if d.Proceed {
		return nil, nil
	}
	return g.wait(ctx, tx, run, job, of, slots, w)
}

// doom is why a run is to end, nil when it may go on. A run that makes room for a newer one must not take the place back
// by another job of its, neither while its own end is still on its way nor while its agents clean up.
func (g Groups) doom(ctx context.Context, tx *store.Tx, run lifecycle.Run) (*ci.Reason, error) {
	if run.Cancel != nil {
		return &run.Cancel.Reason, nil
	}
	waiting, err := outbox.Waiting(ctx, tx, runTopic, run.ID)
	if err != nil {
		return nil, fmt.Errorf("look for what is to become of run %s: %w", run.ID, err)
	}
	for _, payload := range waiting {
		var effect runEffect
		if err := json.Unmarshal([]byte(payload), &effect); err != nil || effect.Cancel != nil {
			return effect.Cancel, err
		}
	}
	return nil, nil
}

// turnAway keeps a job of a run that is to end from going on. A patient agent waits for the cancel that is on its way, or is
// told behind the one that it has been sent.
func (g Groups) turnAway(ctx context.Context, tx *store.Tx, run lifecycle.Run, job lifecycle.Job, doom *ci.Reason, w waiter) error {
	if doom == nil {
		return nil
	}
	if w.patient {
		err := tx.Do(ctx, upsertWaiter, job.ID, run.ID, w.agentID, w.requestID)
		if err == nil && run.Cancel != nil {
			err = g.tellAgent(ctx, tx, w.agentID, refuse(run.ID, job.ID, w.requestID, doom.Message), g.clock.Millis())
		}
		return err
	}
	return g.apply(ctx, tx, run, lifecycle.Withdrawn(run, job, w.agentID, *doom, g.clock.Millis()))
}

// wait puts the job in the line of its run.
func (g Groups) wait(ctx context.Context, tx *store.Tx, run lifecycle.Run, job lifecycle.Job, of group, slots []lifecycle.Slot, w waiter) (*ci.Reason, error) {
	var holders []string
	for _, s := range slots {
		if s.Active {
			holders = append(holders, s.RunID)
		}
	}
	why := lifecycle.SlotReason(of.key, holders)
	agent := w.agentID
	o := lifecycle.Outcome{Jobs: []lifecycle.JobChange{{JobID: job.ID, Reason: &why}}}
	if !w.patient {
		agent, o = "", lifecycle.Withdrawn(run, job, w.agentID, why, g.clock.Millis())
	}
	if err := tx.Do(ctx, upsertWaiter, job.ID, run.ID, agent, w.requestID); err != nil {
		return nil, fmt.Errorf("let job %s wait for group %q: %w", job.ID, of.key, err)
	}
	return &why, g.apply(ctx, tx, run, o)
}

// supersede takes a run's place away and has it cancelled. That is a command on another run, which follows this
// transaction: no transaction holds two runs.
func (g Groups) supersede(ctx context.Context, tx *store.Tx, of group, runID, by string, now int64) error {
	if err := removeSlot(ctx, tx, of, runID); err != nil {
		return err
	}
	reason := lifecycle.SupersededReason(of.key, by)
	return g.tellRun(ctx, tx, runID, runEffect{Cancel: &reason}, now)
}

// releaseSlots gives the places of a run that has ended to those that wait.
func (e *Engine) releaseSlots(ctx context.Context, tx *store.Tx, runID string, now int64) error {
	groups, err := groupsOf(ctx, tx, runID)
	if err != nil {
		return err
	}
	for _, of := range groups {
		if err := lockGroup(ctx, tx, of, now); err != nil {
			return err
		}
		if err := removeSlot(ctx, tx, of, runID); err != nil {
			return err
		}
		if err := e.fillSlots(ctx, tx, of, now); err != nil {
			return err
		}
	}
	return tx.Do(ctx, "DELETE FROM concurrency_waiters WHERE run_id = $1", runID)
}

// fillSlots gives free places to the runs that have waited longest.
func (e *Engine) fillSlots(ctx context.Context, tx *store.Tx, of group, now int64) error {
	slots, err := loadSlots(ctx, tx, of)
	if err != nil {
		return err
	}
	limits := map[string]int{}
	for _, s := range slots {
		rule, _, err := loadRule(ctx, tx, s.RunID)
		if err != nil {
			return err
		}
		if limits[s.RunID] = 1; rule != nil {
			limits[s.RunID] = rule.Max
		}
	}
	for _, runID := range lifecycle.NextSlots(slots, func(id string) int { return limits[id] }) {
		if err := tx.Do(ctx, upsertSlot, of.routingKey, of.key, runID, true, now); err != nil {
			return fmt.Errorf("give a place in group %q: %w", of.key, err)
		}
		if err := e.wakeWaiters(ctx, tx, runID, now); err != nil {
			return err
		}
	}
	return nil
}

// wakeWaiters tells the agents that wait with jobs of a run that they may go on, and queues the jobs that were taken
// back. The rows stay until the run ends: an agent that was away is told when it comes back.
func (e *Engine) wakeWaiters(ctx context.Context, tx *store.Tx, runID string, now int64) error {
	rows, err := tx.QueryContext(ctx, "SELECT job_id, agent_id, request_id FROM concurrency_waiters WHERE run_id = $1 ORDER BY job_id", runID)
	if err != nil {
		return fmt.Errorf("list jobs that wait for a group: %w", err)
	}
	defer rows.Close()
	type waiting struct{ job, agent, request string }
	var all []waiting
	for rows.Next() {
		var w waiting
		if err := rows.Scan(&w.job, &w.agent, &w.request); err != nil {
			return err
		}
		all = append(all, w)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, w := range all {
		if w.agent == "" {
			err = e.tellRun(ctx, tx, runID, runEffect{GiveSlot: w.job}, now)
		} else {
			err = e.tellAgent(ctx, tx, w.agent, proceed(runID, w.job, w.request), now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func proceed(runID, jobID, requestID string) wire.ConcurrencyAck {
	return wire.ConcurrencyAck{RequestID: requestID, Action: wire.ConcurrencyProceed, RunID: runID, JobID: jobID}
}

func refuse(runID, jobID, requestID, why string) wire.ConcurrencyAck {
	return wire.ConcurrencyAck{RequestID: requestID, Action: wire.ConcurrencyCancel, Reason: why, RunID: runID, JobID: jobID}
}

// endWait answers an agent that waits for a place with a job that is cancelled. It follows the cancel itself, so that the
// agent knows the answer for what it is; without one the job would end only with its grace.
func (e *Engine) endWait(ctx context.Context, tx *store.Tx, runID string, c lifecycle.CancelJob, now int64) error {
	var request string
	err := tx.QueryRowContext(ctx, selectUnanswered, c.JobID, c.AgentID).Scan(&request)
	if isNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look whether job %s waits for a group: %w", c.JobID, err)
	}
	return e.tellAgent(ctx, tx, c.AgentID, refuse(runID, c.JobID, request, c.Reason), now)
}

// remindWaiter tells an agent that comes back with a job whose run got its place meanwhile.
func (e *Engine) remindWaiter(ctx context.Context, tx *store.Tx, runID, jobID, agentID string, now int64) error {
	var request string
	err := tx.QueryRowContext(ctx, selectAnswered, jobID, agentID).Scan(&request)
	if isNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a waiting job %s: %w", jobID, err)
	}
	return e.tellAgent(ctx, tx, agentID, proceed(runID, jobID, request), now)
}

// loadRule reads the rule of a run's workflow for its group, nil when it has none.
func loadRule(ctx context.Context, tx *store.Tx, runID string) (*lifecycle.Concurrency, string, error) {
	var text sql.NullString
	var routingKey string
	err := tx.QueryRowContext(ctx, "SELECT concurrency, routing_key FROM execution_runs WHERE run_id = $1", runID).Scan(&text, &routingKey)
	if err != nil {
		return nil, "", fmt.Errorf("load concurrency of run %s: %w", runID, err)
	}
	if !text.Valid {
		return nil, routingKey, nil
	}
	var c lockfile.Concurrency
	if err := json.Unmarshal([]byte(text.String), &c); err != nil {
		return nil, "", fmt.Errorf("decode concurrency of run %s: %w", runID, err)
	}
	if !c.HasGroup {
		return nil, routingKey, nil
	}
	rule := lifecycle.Concurrency{Max: max(c.Max, 1), CancelInProgress: c.CancelInProgress == nil || *c.CancelInProgress}
	return &rule, routingKey, nil
}

func lockGroup(ctx context.Context, tx *store.Tx, of group, now int64) error {
	if err := tx.Do(ctx, upsertGroup, of.routingKey, of.key, now); err != nil {
		return fmt.Errorf("lock group %q: %w", of.key, err)
	}
	// A run that ended without giving its place back holds up nobody.
	return tx.Do(ctx, deleteEndedSlots, of.routingKey, of.key)
}

func removeSlot(ctx context.Context, tx *store.Tx, of group, runID string) error {
	err := tx.Do(ctx, "DELETE FROM concurrency_slots WHERE routing_key = $1 AND group_key = $2 AND run_id = $3", of.routingKey, of.key, runID)
	if err != nil {
		return fmt.Errorf("remove place in group %q: %w", of.key, err)
	}
	return nil
}

func loadSlots(ctx context.Context, tx *store.Tx, of group) ([]lifecycle.Slot, error) {
	rows, err := tx.QueryContext(ctx, selectSlots, of.routingKey, of.key)
	if err != nil {
		return nil, fmt.Errorf("load group %q: %w", of.key, err)
	}
	defer rows.Close()
	var out []lifecycle.Slot
	for rows.Next() {
		var s lifecycle.Slot
		if err := rows.Scan(&s.RunID, &s.Active); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

func groupsOf(ctx context.Context, tx *store.Tx, runID string) ([]group, error) {
	rows, err := tx.QueryContext(ctx, "SELECT routing_key, group_key FROM concurrency_slots WHERE run_id = $1 ORDER BY routing_key, group_key", runID)
	if err != nil {
		return nil, fmt.Errorf("load groups of run %s: %w", runID, err)
	}
	defer rows.Close()
	var out []group
	for rows.Next() {
		var g group
		if err := rows.Scan(&g.routingKey, &g.key); err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, rows.Err()
}

// tellAgent leaves a frame for an agent in the outbox.
func (e *Engine) tellAgent(ctx context.Context, tx *store.Tx, agentID string, m wire.Message, now int64) error {
	frame, err := wire.Encode(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.MessageType(), err)
	}
	tx.After(e.effects.Wake)
	return outbox.Put(ctx, tx, AgentTopic, agentID, AgentEffect{Frame: frame}, now)
}

const (
	upsertGroup = `INSERT INTO concurrency_groups (routing_key, group_key, used_at) VALUES ($1, $2, $3)
ON CONFLICT (routing_key, group_key) DO UPDATE SET used_at = excluded.used_at`

	deleteEndedSlots = `DELETE FROM concurrency_slots WHERE routing_key = $1 AND group_key = $2
AND run_id IN (SELECT s.run_id FROM concurrency_slots s JOIN execution_runs r ON r.run_id = s.run_id
    WHERE s.routing_key = $1 AND s.group_key = $2 AND r.completed_at IS NOT NULL)`

	selectSlots = `SELECT run_id, active FROM concurrency_slots WHERE routing_key = $1 AND group_key = $2 ORDER BY created_at, run_id`

	// A place that is held is not lost to a later question.
	upsertSlot = `INSERT INTO concurrency_slots (routing_key, group_key, run_id, active, created_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (routing_key, group_key, run_id) DO UPDATE SET active = concurrency_slots.active OR excluded.active`

	upsertWaiter = `INSERT INTO concurrency_waiters (job_id, run_id, agent_id, request_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (job_id) DO UPDATE SET agent_id = excluded.agent_id, request_id = excluded.request_id`

	selectUnanswered = `SELECT w.request_id FROM concurrency_waiters w WHERE w.job_id = $1 AND w.agent_id = $2
AND NOT EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.run_id = w.run_id AND s.active)`

	selectAnswered = `SELECT w.request_id FROM concurrency_waiters w WHERE w.job_id = $1 AND w.agent_id = $2
AND EXISTS (SELECT 1 FROM concurrency_slots s WHERE s.run_id = w.run_id AND s.active)`
)
