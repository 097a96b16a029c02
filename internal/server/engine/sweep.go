package engine

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/decide/lifecycle"
	"kici/internal/kit/service"
	"kici/internal/server/cluster"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// sweepPeriod is how often deadlines are looked at. Every look reads few rows, or is left out, and finds nothing most of the time.
const sweepPeriod = time.Second

// sweepBatch bounds what one turn takes up; the next turn goes on.
const sweepBatch = 500

// ackWindow is at least how long an agent may take to answer a dispatch, as far as a nap of this process is concerned.
const ackWindow = 10 * time.Second

// sweepLease is the right to sweep. A second sweeper would do no harm, only double work.
const sweepLease = "engine-sweep"

// Sweep is the loop that acts on deadlines: dispatches that nobody answered, agents that did not come back, jobs that
// waited or ran for too long, cancels that were not obeyed. All of them stand in the database, so nothing is forgotten
// over a restart.
func (e *Engine) Sweep(ctx context.Context) error {
	return service.Every(ctx, e.log, "engine sweep", sweepPeriod, nil, e.SweepOnce)
}

// SweepOnce is one turn of Sweep.
func (e *Engine) SweepOnce(ctx context.Context) error {
	now := e.clock.Millis()
	mine, err := e.acquireSweep(ctx, now)
	if err != nil || !mine {
		return err
	}
	return errors.Join(
		e.sweepAcks(ctx, e.asOf(ackWindow)),
		e.sweepRecoveries(ctx, e.asOf(e.settings.RecoveryWindow)),
		e.sweepExpired(ctx, e.asOf(e.settings.QueueTimeout)),
		e.sweepJobs(ctx, e.asOf(e.settings.StaleAfter), e.asOf(e.settings.CancelPolite)),
		e.sweepRuns(ctx, now),
		e.sweepHolds(ctx, now),
	)
}

func (e *Engine) acquireSweep(ctx context.Context, now int64) (mine bool, err error) {
	err = e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		mine, err = cluster.Acquire(ctx, tx, sweepLease, e.settings.NodeID, now, now+5*sweepPeriod.Milliseconds())
		return err
	})
	return mine, err
}

func (e *Engine) sweepAcks(ctx context.Context, now int64) error {
	rows, err := queue.UnansweredSince(ctx, e.db.Read(), now, sweepBatch)
	if err != nil {
		return err
	}
	return each(ctx, rows, func(row queue.Row) error {
		return e.onJob(ctx, row.JobID, func(run lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
			if !stillUnanswered(job, row) {
				return lifecycle.Outcome{Ignored: "the dispatch was answered meanwhile"}
			}
			return lifecycle.AckExpired(run, job, row.AgentID, now)
		})
	})
}

// each takes up what is due, one after the other. What fails hides nothing behind it; the next turn meets it again.
func each[T any](ctx context.Context, due []T, do func(T) error) error {
	var first error
	failed := 0
	for _, one := range due {
		if ctx.Err() != nil {
			return errors.Join(first, context.Cause(ctx))
		}
		if err := do(one); err != nil {
			failed++
			first = cmp.Or(first, err)
		}
	}
	if failed > 1 {
		return fmt.Errorf("%w (and %d more of %d)", first, failed-1, len(due))
	}
	return first
}

// stillUnanswered tells that the dispatch seen by the sweep is the one that stands. The row's own deadline is read with
// the row again, in the transaction.
func stillUnanswered(job lifecycle.Job, seen queue.Row) bool {
	return job.Row != nil && job.Row.Status == ci.QueueDispatched && job.Row.Unanswered &&
		job.Row.AgentID == seen.AgentID && job.Row.Attempts == seen.Attempts
}

func (e *Engine) sweepRecoveries(ctx context.Context, now int64) error {
	rows, err := queue.UnrecoveredSince(ctx, e.db.Read(), now, sweepBatch)
	if err != nil {
		return err
	}
	return each(ctx, rows, func(row queue.Row) error { return e.recoveryExpired(ctx, row) })
}

func (e *Engine) sweepExpired(ctx context.Context, now int64) error {
	due, err := e.expiries.reached(now, e.clock.Millis(), cmp.Or(e.settings.QueueTimeout, sight), func() (int64, error) {
		return queue.FirstExpiry(ctx, e.db.Read())
	})
	if err != nil || !due {
		return err
	}
	rows, err := queue.ExpiredSince(ctx, e.db.Read(), now, sweepBatch)
	if err != nil || len(rows) == 0 {
		return err
	}
	agents, err := fleet.List(ctx, e.db.Read())
	if err != nil {
		return err
	}
	return each(ctx, rows, func(row queue.Row) error {
		routable, err := e.routable(ctx, row.SelectorID, agents)
		if err != nil {
			return err
		}
		return e.onJob(ctx, row.JobID, func(_ lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
			return lifecycle.QueueExpired(job, routable, row.ProvisioningError, now)
		})
	})
}

// routable tells whether some connected agent, on any node, fits the selector, or one could be started that does.
func (e *Engine) routable(ctx context.Context, selectorID string, agents []fleet.Agent) (bool, error) {
	s, err := queue.Selector(ctx, e.db.Read(), selectorID)
	if err != nil {
		return false, err
	}
	for _, a := range agents {
		if a.Connected() && s.Matches(label.Agent{ID: a.ID, Labels: a.Labels, Mandatory: a.MandatoryLabels}) {
			return true, nil
		}
	}
	return e.scalable(s), nil
}

// sweepJobs ends jobs that gave no sign of life, and those that ran for too long.
func (e *Engine) sweepJobs(ctx context.Context, staleAsOf, overranAsOf int64) error {
	window := e.settings.CancelPolite
	if after := e.settings.StaleAfter; after > 0 {
		window = min(window, after)
	}
	due, err := e.jobsDue.reached(max(staleAsOf, overranAsOf), e.clock.Millis(), window, func() (int64, error) { return e.firstJobDue(ctx) })
	if err != nil || !due {
		return err
	}
	return errors.Join(e.sweepStale(ctx, staleAsOf), e.sweepOverran(ctx, overranAsOf))
}

// firstJobDue is when the first job that is with an agent has been silent, or has run, for too long, 0 for never. It may be
// earlier for one that is being stopped, or whose agent is away.
func (e *Engine) firstJobDue(ctx context.Context) (at int64, err error) {
	var sign, limit sql.NullInt64
	if err := e.db.Read().QueryRowContext(ctx, selectFirstDue).Scan(&sign, &limit); err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	if e.settings.StaleAfter > 0 && sign.Valid {
		at = sign.Int64 + e.settings.StaleAfter.Milliseconds()
	}
	if ends := limit.Int64 + e.settings.CancelPolite.Milliseconds(); limit.Valid && (at == 0 || ends < at) {
		at = ends
	}
	return at, nil
}

func (e *Engine) sweepStale(ctx context.Context, now int64) error {
	if e.settings.StaleAfter == 0 {
		return nil
	}
	due, err := e.dueWith(ctx, selectStale, now-e.settings.StaleAfter.Milliseconds())
	if err != nil {
		return err
	}
	return each(ctx, due, func(silent timed) error {
		return e.onJob(ctx, silent.id, func(_ lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
			return lifecycle.Stale(job, now-silent.ms, now)
		})
	})
}

// sweepOverran ends jobs that agents should have ended: those that ran past their own limit, and for as long again as a polite
// end may take.
func (e *Engine) sweepOverran(ctx context.Context, now int64) error {
	due, err := e.dueWith(ctx, selectOverran, now-e.settings.CancelPolite.Milliseconds())
	if err != nil {
		return err
	}
	return each(ctx, due, func(limited timed) error {
		return e.onJob(ctx, limited.id, func(_ lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
			return lifecycle.Overran(job, limited.ms, now)
		})
	})
}

// sweepRuns acts on runs that passed their own limit, and on cancels that were not obeyed in time.
func (e *Engine) sweepRuns(ctx context.Context, now int64) error {
	due, err := e.dueWith(ctx, selectOverdueRuns, now)
	if err != nil {
		return err
	}
	patience := lifecycle.Patience{Polite: e.settings.CancelPolite.Milliseconds(), Forced: e.settings.CancelForced.Milliseconds()}
	return each(ctx, due, func(overdue timed) error {
		return e.onRun(ctx, overdue.id, func(ctx context.Context, tx *store.Tx, run lifecycle.Run, now int64) (lifecycle.Outcome, error) {
			open, err := loadOpen(ctx, tx, run.ID)
			if err != nil {
				return lifecycle.Outcome{}, err
			}
			if run.Cancel == nil && lifecycle.Deadline(run, now) {
				return lifecycle.CancelRun(run, open, deadlineWish(run, now), now), nil
			}
			return lifecycle.CancelOverdue(run, open, patience, now), nil
		})
	})
}

func deadlineWish(run lifecycle.Run, now int64) lifecycle.Cancel {
	message := fmt.Sprintf("workflow_timeout: run exceeded the workflow timeout of %dms", run.TimeoutMs)
	return lifecycle.Cancel{By: "server", At: now, Reason: ci.NewReason(ci.ReasonWorkflowTimeout, message, map[string]int64{"timeoutMs": run.TimeoutMs})}
}

// timed is a job or a run, with a time of it in milliseconds.
type timed struct {
	id string
	ms int64
}

// dueWith reads what is due before a time.
func (e *Engine) dueWith(ctx context.Context, query string, before int64) ([]timed, error) {
	rows, err := e.db.Read().QueryContext(ctx, query, before, sweepBatch)
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	defer rows.Close()
	var out []timed
	for rows.Next() {
		var one timed
		var ms sql.NullInt64
		if err := rows.Scan(&one.id, &ms); err != nil {
			return nil, err
		}
		one.ms = ms.Int64
		out = append(out, one)
	}
	return out, rows.Err()
}

// Adopt takes over what a node gave out before it died, or this node before it started: its agents may come back with
// their jobs until the recovery window ends.
func (e *Engine) Adopt(ctx context.Context, nodeID string) error {
	rows, err := queue.DispatchedBy(ctx, e.db.Read(), nodeID)
	if err != nil {
		return err
	}
	return each(ctx, rows, func(row queue.Row) error { return e.gone(ctx, row.JobID, lifecycle.Departure{Agent: row.AgentID}) })
}

const (
	// A job that is with an agent has a queue row that says so. The rows come first, as CROSS JOIN tells SQLite, since they are
	// few.
	withAgents = ` FROM dispatch_queue q CROSS JOIN execution_jobs j WHERE q.status IN ('dispatched', 'recovering') AND j.job_id = q.id`

	selectFirstDue = `SELECT min(coalesce(j.last_heartbeat_at, j.started_at, q.claimed_at)),
    min(CASE WHEN j.timeout_ms > 0 THEN j.started_at + j.timeout_ms END)` + withAgents

	selectStale = `SELECT j.job_id, coalesce(j.last_heartbeat_at, j.started_at, j.created_at)` + withAgents + `
    AND j.status = 'running' AND coalesce(j.last_heartbeat_at, j.started_at, j.created_at) < $1
UNION ALL
SELECT j.job_id, q.claimed_at` + withAgents + `
    AND q.status = 'dispatched' AND q.ack_deadline IS NULL AND q.claimed_at < $1 AND j.status = 'pending'
    AND coalesce(j.last_heartbeat_at, 0) < $1 LIMIT $2`

	selectOverran = `SELECT j.job_id, j.timeout_ms` + withAgents + `
    AND j.status = 'running' AND j.timeout_ms > 0 AND j.started_at + j.timeout_ms <= $1 LIMIT $2`

	// The first condition is that of their index.
	selectOverdueRuns = `SELECT run_id, started_at FROM execution_runs
WHERE completed_at IS NULL AND (cancel_requested_at IS NOT NULL OR workflow_timeout_ms > 0)
    AND (cancel_requested_at IS NOT NULL OR started_at + workflow_timeout_ms <= $1) LIMIT $2`
)
