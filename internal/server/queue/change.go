package queue

import (
	"context"

	"kici/internal/server/store"
)

// Acknowledge clears the ack deadline of a dispatched row.
func Acknowledge(ctx context.Context, tx *store.Tx, jobID string) error {
	return tx.DoOne(ctx, store.ErrUnchanged, "UPDATE dispatch_queue SET ack_deadline = NULL WHERE id = $1 AND status = 'dispatched'", jobID)
}

// AskAnswered clears the ack deadline of a row that a node gave to an agent, and tells the run and the name of its job.
// There may be no such row, and nothing to tell.
func AskAnswered(jobID, agentID, nodeID string, answered func(runID, jobName string)) store.Ask {
	return store.Ask{Query: `UPDATE dispatch_queue SET ack_deadline = NULL
WHERE id = $1 AND agent_id = $2 AND node_id = $3 AND status = 'dispatched' AND ack_deadline IS NOT NULL
RETURNING run_id, (SELECT job_name FROM execution_jobs WHERE job_id = $1)`,
		Args: []any{jobID, agentID, nodeID}, Row: func(r store.Row) error {
			var runID, jobName string
			err := r.Scan(&runID, &jobName)
			answered(runID, jobName)
			return err
		}}
}

// Start marks a row as started: a step of it may run. It also answers the dispatch. It leaves the status alone: SQLite writes
// the indexes of a column that is set, whatever to.
func Start(ctx context.Context, tx *store.Tx, jobID string) error {
	return tx.DoOne(ctx, store.ErrUnchanged, "UPDATE dispatch_queue SET started = TRUE, ack_deadline = NULL WHERE id = $1 AND status = 'dispatched'", jobID)
}

// Resume is Start of a row that waited for its agent.
func Resume(ctx context.Context, tx *store.Tx, jobID string) error {
	return tx.DoOne(ctx, store.ErrUnchanged, `UPDATE dispatch_queue
SET status = 'dispatched', started = TRUE, ack_deadline = NULL, recovery_deadline = NULL WHERE id = $1 AND status = 'recovering'`, jobID)
}

// Requeue puts a row back in line, with one attempt more, at its old place. A row that never had an expiry gets one
// now, else it could wait for ever.
func Requeue(ctx context.Context, tx *store.Tx, jobID, why string, now, expiresAt int64) error {
	err := tx.DoOne(ctx, store.ErrUnchanged, `UPDATE dispatch_queue
SET status = 'pending', attempts = attempts + 1, agent_id = NULL, node_id = NULL, ack_deadline = NULL,
    recovery_deadline = NULL, started = FALSE, expires_at = coalesce(expires_at, $2)
WHERE id = $1 AND status IN ('dispatched', 'recovering')`, jobID, nullMillis(expiresAt))
	if err != nil {
		return err
	}
	return endAttempt(ctx, tx, jobID, why, now)
}

// Release puts a row back in line whose dispatch was never sent. It costs no attempt.
func Release(ctx context.Context, tx *store.Tx, jobID, why string, now int64) error {
	err := tx.DoOne(ctx, store.ErrUnchanged, `UPDATE dispatch_queue
SET status = 'pending', agent_id = NULL, node_id = NULL, ack_deadline = NULL
WHERE id = $1 AND status = 'dispatched' AND NOT started AND ack_deadline IS NOT NULL`, jobID)
	if err != nil {
		return err
	}
	return endAttempt(ctx, tx, jobID, why, now)
}

// ProvisioningFailed keeps, on a pending row, why no agent could be started for it. A claim clears it; a row that expires
// shows it. It reports whether that was news.
func ProvisioningFailed(ctx context.Context, tx *store.Tx, jobID, message string) (bool, error) {
	return store.Changed(tx.ExecContext(ctx, `UPDATE dispatch_queue SET last_provisioning_error = $2
WHERE id = $1 AND status = 'pending' AND coalesce(last_provisioning_error, '') <> $2`, jobID, message))
}

// Recover marks a row as waiting for its agent until the deadline. The ack deadline stays: it tells later that the
// dispatch was never answered, so that the job cannot have started.
func Recover(ctx context.Context, tx *store.Tx, jobID string, deadline int64) error {
	return tx.DoOne(ctx, store.ErrUnchanged, `UPDATE dispatch_queue
SET status = 'recovering', recovery_deadline = $2 WHERE id = $1 AND status = 'dispatched'`, jobID, deadline)
}

// Reclaim gives a row back to the agent that returned with it, to this node or another.
func Reclaim(ctx context.Context, tx *store.Tx, jobID, nodeID string, now int64) error {
	err := tx.DoOne(ctx, store.ErrUnchanged, `UPDATE dispatch_queue
SET status = 'dispatched', started = TRUE, node_id = $2, ack_deadline = NULL, recovery_deadline = NULL
WHERE id = $1 AND status IN ('dispatched', 'recovering')`, jobID, nodeID)
	if err != nil {
		return err
	}
	return NoteStay(ctx, tx, jobID, Stay{nodeID, now})
}

// Complete ends a row whose job was done.
func Complete(ctx context.Context, tx *store.Tx, jobID, why string, now int64) error {
	return end(ctx, tx, jobID, "completed", why, now, "status IN ('dispatched', 'recovering')")
}

// Fail gives a row up.
func Fail(ctx context.Context, tx *store.Tx, jobID, why string, now int64) error {
	return end(ctx, tx, jobID, "failed", why, now, "status IN ('pending', 'dispatched', 'recovering')")
}

// Expire ends a row that was never given to an agent.
func Expire(ctx context.Context, tx *store.Tx, jobID, why string, now int64) error {
	return end(ctx, tx, jobID, "expired", why, now, "status = 'pending'")
}

func end(ctx context.Context, tx *store.Tx, jobID, status, why string, now int64, guard string) error {
	err := tx.DoOne(ctx, store.ErrUnchanged, `UPDATE dispatch_queue
SET status = $2, ack_deadline = NULL, recovery_deadline = NULL WHERE id = $1 AND `+guard, jobID, status)
	if err != nil {
		return err
	}
	return endAttempt(ctx, tx, jobID, why, now)
}

func endAttempt(ctx context.Context, tx *store.Tx, jobID, why string, now int64) error {
	return tx.Do(ctx, `UPDATE dispatch_attempts SET ended_at = $2, outcome = $3
WHERE job_id = $1 AND ended_at IS NULL`, jobID, now, why)
}
