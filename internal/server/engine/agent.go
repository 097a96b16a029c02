package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"kici/internal/core/wire"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// notAssigned is what an agent reads when it speaks of a job that was given to somebody else, or is over.
const notAssigned = "job no longer assigned to this agent"

// Owned tells how an agent may speak of a job. See the type. It notes that this node has a part of the job's log from now
// on, where the agent brings what is left of a job without taking it up again.
func (e *Engine) Owned(ctx context.Context, agentID, jobID string) (Owned, error) {
	o := Owned{JobID: jobID}
	var completed sql.NullInt64
	var holder, node sql.NullString
	err := e.db.Read().QueryRowContext(ctx, selectOwner, jobID).Scan(&o.RunID, &o.JobName, &completed, &holder, &node)
	if isNoRows(err) {
		return Owned{}, ErrNotOwner
	}
	if err != nil {
		return Owned{}, fmt.Errorf("find owner of job %s: %w", jobID, err)
	}
	if holder.Valid && holder.String == agentID {
		o.Past = completed.Valid && e.clock.Millis() > completed.Int64+e.settings.LateMessages.Milliseconds()
		if !o.Past && node.String != e.settings.NodeID {
			err = e.noteStay(ctx, jobID)
		}
		return o, err
	}
	held, err := queue.WasHeldBy(ctx, e.db.Read(), jobID, agentID)
	if err != nil {
		return Owned{}, err
	}
	if !held {
		return Owned{}, ErrNotOwner
	}
	o.Past = true
	return o, nil
}

// noteStay keeps that an agent has come to this node with what is left of a job that it does not take up again: lines of
// its log will lie here.
func (e *Engine) noteStay(ctx context.Context, jobID string) error {
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return queue.NoteStay(ctx, tx, jobID, queue.Stay{NodeID: e.settings.NodeID, Since: e.clock.Millis()})
	})
}

// Acked takes an agent's job.ack. An agent that is no longer the job's owner is fenced off: it must not start. It touches
// the queue row alone, since nothing of the run depends on it.
func (e *Engine) Acked(ctx context.Context, agentID, _, jobID string) (Ack, error) {
	ack, taken, err := e.ackedHere(ctx, agentID, jobID)
	if err != nil || taken {
		return ack, err
	}
	err = e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		var row queue.Row
		ack.Job = Owned{}
		err := tx.All(ctx, queue.AskByJob(tx, jobID, func(r queue.Row) { row = r }), askName(jobID, &ack.Job))
		if err != nil {
			return fmt.Errorf("take the ack of job %s: %w", jobID, err)
		}
		if row.JobID == "" {
			return ErrNotOwner
		}
		change, fenced := lifecycle.Acked(jobID, rowOf(row), agentID)
		ack.Fenced = fenced
		if fenced || row.NodeID != e.settings.NodeID {
			ack.Job = Owned{}
		}
		if change == nil {
			return nil
		}
		return e.storeRow(ctx, tx, row.RunID, *change, e.clock.Millis())
	})
	return ack, err
}

// ackedHere is Acked for a dispatch of this node that the agent has and has not answered, as most are. Of any other it
// changes nothing.
func (e *Engine) ackedHere(ctx context.Context, agentID, jobID string) (ack Ack, taken bool, err error) {
	err = e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Last(ctx, queue.AskAnswered(jobID, agentID, e.settings.NodeID, func(runID, jobName string) {
			ack.Job, taken = Owned{RunID: runID, JobID: jobID, JobName: jobName}, true
		}))
	})
	if err != nil {
		return Ack{}, false, fmt.Errorf("take the ack of job %s: %w", jobID, err)
	}
	return ack, taken, nil
}

// askName asks for what an agent's words about a job need to know of it.
func askName(jobID string, job *Owned) store.Ask {
	return store.Ask{Query: "SELECT run_id, job_id, job_name FROM execution_jobs WHERE job_id = $1", Args: []any{jobID},
		Row: func(r store.Row) error { return r.Scan(&job.RunID, &job.JobID, &job.JobName) }}
}

// Rejected takes an agent's refusal of a dispatch.
func (e *Engine) Rejected(ctx context.Context, agentID, jobID, reason string) error {
	return e.onJob(ctx, jobID, func(run lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
		if job.Row == nil || job.Row.Started {
			return lifecycle.Outcome{Ignored: "a job that runs cannot be refused"}
		}
		return lifecycle.Undelivered(run, job, agentID, fmt.Sprintf("agent rejected dispatch (%s)", reason), now)
	})
}

// Deferred takes back a claim whose frame could not be made, for a reason that may be over in a moment, or that nobody knows to
// have been stored. claimedAt tells it from other claims of the job.
func (e *Engine) Deferred(ctx context.Context, agentID, jobID string, claimedAt int64) error {
	return e.onJob(ctx, jobID, func(run lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
		return lifecycle.Deferred(run, job, agentID, claimedAt, now)
	})
}

// Unsent takes back a claim whose frame could not be written, because the connection ended in the same moment.
func (e *Engine) Unsent(ctx context.Context, agentID, jobID string) error {
	return e.onJob(ctx, jobID, func(run lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
		if job.Row == nil || job.Row.Started {
			return lifecycle.Outcome{Ignored: "the job runs"}
		}
		return lifecycle.Undelivered(run, job, agentID, "agent connection ended before the dispatch was written", now)
	})
}

// JobBeat takes a running job's sign of life, with its progress where the agent counts it.
func (e *Engine) JobBeat(ctx context.Context, agentID string, m wire.JobHeartbeat) error {
	return e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		now := e.clock.Millis()
		var progress int64
		if m.Progress != nil {
			progress = *m.Progress
		}
		err := tx.Do(ctx, updateBeat, m.JobID, agentID, now, progress)
		if err != nil {
			return fmt.Errorf("beat job %s: %w", m.JobID, err)
		}
		return nil
	})
}

// Connected settles, for an agent that registered, what the database has with it against what it says it still holds.
// fresh tells that it registered on a new connection. The result are the cancels it must be sent.
func (e *Engine) Connected(ctx context.Context, agentID string, inFlight []wire.InFlightJob, fresh bool) ([]wire.JobCancel, error) {
	agent, err := fleet.Get(ctx, e.db.Read(), agentID)
	if err != nil {
		return nil, err
	}
	rows, err := queue.OfAgent(ctx, e.db.Read(), agentID)
	if err != nil {
		return nil, err
	}
	r := lifecycle.Return{Agent: agentID, Fresh: fresh, Truthful: slices.Contains(agent.Features, wire.FeatureFrameAck),
		Fences: slices.Contains(agent.Features, wire.FeatureStartFence), Rebooted: e.reboots(agent)}
	for _, row := range rows {
		r.Listed = slices.ContainsFunc(inFlight, func(j wire.InFlightJob) bool { return j.JobID == row.JobID })
		if err := e.returned(ctx, row.JobID, r); err != nil {
			return nil, err
		}
	}
	if fresh {
		if err := e.hostIsBack(ctx, agent); err != nil {
			return nil, err
		}
	}
	if err := e.broughtUp(ctx, agentID); err != nil {
		return nil, err
	}
	return e.strays(ctx, agentID, inFlight)
}

// returned settles one job of an agent that registers, and repeats the answers that it may have missed.
func (e *Engine) returned(ctx context.Context, jobID string, r lifecycle.Return) error {
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		run, job, err := lockJob(ctx, tx, jobID, nil)
		if err != nil {
			return err
		}
		now := e.clock.Millis()
		r.Deadline = now + e.settings.RecoveryWindow.Milliseconds()
		o := lifecycle.Returned(run, job, r, now)
		e.explain(run.ID, o)
		if err := e.apply(ctx, tx, run, o); err != nil || !r.Listed || !r.Fresh || o.Ignored != "" {
			return err
		}
		return errors.Join(e.remindWaiter(ctx, tx, run.ID, jobID, r.Agent, now), e.remindSteps(ctx, tx, jobID, r.Agent, now))
	})
}

// strays are the jobs that an agent says it holds and that are not its own any more.
func (e *Engine) strays(ctx context.Context, agentID string, inFlight []wire.InFlightJob) ([]wire.JobCancel, error) {
	rows, err := queue.OfAgent(ctx, e.db.Read(), agentID)
	if err != nil {
		return nil, err
	}
	var out []wire.JobCancel
	for _, j := range inFlight {
		if slices.ContainsFunc(rows, func(r queue.Row) bool { return r.JobID == j.JobID }) {
			continue
		}
		out = append(out, wire.JobCancel{MessageID: uuid.NewString(), RunID: j.RunID, JobID: j.JobID, Reason: notAssigned})
	}
	return out, nil
}

// Lost takes the end of an agent's connection. Its jobs wait for it, or are offered again when it never comes back, or left in
// order and has not begun them.
func (e *Engine) Lost(ctx context.Context, agentID, _ string, left bool) error {
	agent, err := fleet.Get(ctx, e.db.Read(), agentID)
	if err != nil {
		return err
	}
	rows, err := queue.OfAgent(ctx, e.db.Read(), agentID)
	if err != nil {
		return err
	}
	var failed error
	for _, row := range rows {
		failed = errors.Join(failed, e.gone(ctx, row.JobID, lifecycle.Departure{Agent: agentID, SingleUse: agent.SingleUse(), Left: left,
			Fences: slices.Contains(agent.Features, wire.FeatureStartFence), Reboots: e.reboots(agent)}))
	}
	return failed
}

func (e *Engine) gone(ctx context.Context, jobID string, d lifecycle.Departure) error {
	return e.onJob(ctx, jobID, func(run lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
		d.Deadline = now + e.settings.RecoveryWindow.Milliseconds()
		return lifecycle.AgentGone(run, job, d, now)
	})
}

const (
	selectOwner = `SELECT j.run_id, j.job_name, j.completed_at, q.agent_id, q.node_id
FROM execution_jobs j LEFT JOIN dispatch_queue q ON q.id = j.job_id WHERE j.job_id = $1`

	// The progress time moves only when the counter does, so that a stalled job can be told from a quiet one.
	updateBeat = `UPDATE execution_jobs SET last_heartbeat_at = $3,
    progress_at = CASE WHEN $4 > progress THEN $3 ELSE coalesce(progress_at, $3) END,
    progress = CASE WHEN $4 > progress THEN $4 ELSE progress END
WHERE job_id = $1 AND agent_id = $2 AND completed_at IS NULL`
)
