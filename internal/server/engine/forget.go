package engine

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"kici/internal/kit/service"
	"kici/internal/server/cluster"
	"kici/internal/server/inbox"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/timeline"
)

// DefaultRunMaxAge is how long an ended run is kept without configuration.
const DefaultRunMaxAge = 365 * 24 * time.Hour

const (
	forgetPeriod = 10 * time.Minute
	forgetBatch  = 100 // runs between two looks at the lease
	// forgetLease is the right to forget. Two that do so at once do no harm, only double work.
	forgetLease = "run-retention"
	forgetTerm  = time.Minute
	// forgottenFor is how long it is remembered that there was a run. After it the run is as unknown as one that never was.
	forgottenFor = 90 * 24 * time.Hour
)

// RunKeeper is a room behind this one that keeps something of runs.
type RunKeeper interface {
	// ForgetRunTx deletes what the room keeps of a run.
	ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error
}

// Retention says which ended runs are kept.
type Retention struct {
	MaxAge  time.Duration // since the end of the run; 0 is for ever
	Keepers []RunKeeper
}

// Retain is the loop that deletes runs which ended too long ago, with everything that any room keeps of them.
func (e *Engine) Retain(ctx context.Context, keep Retention) error {
	return service.Every(ctx, e.log, "run retention", forgetPeriod, nil, func(ctx context.Context) error {
		return e.RetainOnce(ctx, keep)
	})
}

// RetainOnce is one turn of Retain.
func (e *Engine) RetainOnce(ctx context.Context, keep Retention) error {
	total := 0
	for {
		mine, err := e.acquireForget(ctx)
		if err != nil || !mine {
			return err
		}
		found, gone, err := e.forgetSome(ctx, keep)
		total += gone
		if err == nil && found == forgetBatch && gone > 0 {
			continue
		}
		if total > 0 {
			e.log.Info("ended runs forgotten", "runs", total)
		}
		return err
	}
}

// acquireForget takes or renews the lease, and drops what has been remembered of forgotten runs for long enough.
func (e *Engine) acquireForget(ctx context.Context) (mine bool, err error) {
	now := e.clock.Millis()
	err = e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		mine, err = cluster.Acquire(ctx, tx, forgetLease, e.settings.NodeID, now, now+forgetTerm.Milliseconds())
		if err != nil || !mine {
			return err
		}
		return tx.Do(ctx, deleteForgotten, now-forgottenFor.Milliseconds())
	})
	if err != nil {
		return false, fmt.Errorf("forget runs: %w", err)
	}
	return mine, nil
}

// forgetSome forgets the runs of one batch, each in a transaction of its own: a run is there whole or not at all, and the
// writer is free in between.
func (e *Engine) forgetSome(ctx context.Context, keep Retention) (found, gone int, err error) {
	if keep.MaxAge <= 0 {
		return 0, 0, nil
	}
	before := e.clock.Millis() - keep.MaxAge.Milliseconds()
	runs, err := store.Texts(ctx, e.db.Read(), selectForgettable, before, forgetBatch)
	if err != nil {
		return 0, 0, fmt.Errorf("find runs to forget: %w", err)
	}
	for _, runID := range runs {
		if ctx.Err() != nil {
			return len(runs), gone, context.Cause(ctx)
		}
		var went bool
		err := e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			went, err = e.forgetTx(ctx, tx, runID, before, keep.Keepers)
			return err
		})
		if err != nil {
			return len(runs), gone, fmt.Errorf("forget run %s: %w", runID, err)
		}
		if went {
			gone++
		}
	}
	return len(runs), gone, nil
}

// forgetTx deletes a run from every room, and reports whether it did. What others may still refer to:
//   - A repetition names the run that it repeats. While it is kept, that run is, too, so that a chain of repetitions can be
//     read to its beginning; it goes from its end.
//   - Holds, places in groups and waiting jobs are closed with the end of a run; they are rows here and nothing more.
//   - Artifacts can be reached by their run alone, so they go with it, whatever their own time. An upload that nobody
//     confirmed is closed: its job has ended, and its blob is removed once its link leads nowhere.
//   - An event lives for a shorter time than the run that told it, as the settings are checked. What is left are dead
//     letters, and what the next sweep of events would have removed.
//   - Files of logs are as old as the run, and go by their own sweep on every node that has some: see server.runState.
//   - The delivery stays in the event log for its own time and no longer names the run.
//   - Audit logs keep the run's id. They tell who did what, for times of their own.
func (e *Engine) forgetTx(ctx context.Context, tx *store.Tx, runID string, before int64, keepers []RunKeeper) (bool, error) {
	var org, routingKey string
	var delivery sql.NullString
	err := tx.QueryRowContext(ctx, selectForgotten+tx.ForUpdate(), runID, before).Scan(&org, &routingKey, &delivery)
	if isNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var repeated bool // asked again under the lock, which a repetition takes, too
	if err := tx.QueryRowContext(ctx, selectRepeated, runID).Scan(&repeated); err != nil || repeated {
		return false, err
	}
	jobs, err := store.Texts(ctx, tx, "SELECT job_id FROM execution_jobs WHERE run_id = $1", runID)
	if err != nil {
		return false, err
	}
	if err := e.forgetElsewhere(ctx, tx, runID, jobs, keepers); err != nil {
		return false, err
	}
	if err := inbox.ForgetRunTx(ctx, tx, org, delivery.String, runID); err != nil {
		return false, err
	}
	for _, statement := range forgetStatements {
		if err := tx.Do(ctx, statement, runID); err != nil {
			return false, fmt.Errorf("%.40q: %w", statement, err)
		}
	}
	err = tx.Do(ctx, insertForgotten, runID, routingKey, e.clock.Millis())
	return err == nil, err
}

func (e *Engine) forgetElsewhere(ctx context.Context, tx *store.Tx, runID string, jobs []string, keepers []RunKeeper) error {
	if err := queue.ForgetRunTx(ctx, tx, runID, jobs); err != nil {
		return err
	}
	if err := timeline.ForgetRunTx(ctx, tx, runID, jobs); err != nil {
		return err
	}
	if err := e.forgetSecretOutputs(ctx, tx, runID); err != nil {
		return err
	}
	for _, room := range keepers {
		if err := room.ForgetRunTx(ctx, tx, runID); err != nil {
			return err
		}
	}
	return nil
}

// Forgotten tells whether there was a run that is forgotten, and whose it was. After a while nobody knows any more.
func Forgotten(ctx context.Context, q store.Querier, runID string) (routingKey string, was bool, err error) {
	err = q.QueryRowContext(ctx, "SELECT routing_key FROM forgotten_runs WHERE run_id = $1", runID).Scan(&routingKey)
	if isNoRows(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look for forgotten run %s: %w", runID, err)
	}
	return routingKey, true, nil
}

const (
	// Runs are indexed by their beginning, which comes before their end.
	selectForgettable = `SELECT run_id FROM execution_runs r WHERE created_at <= $1 AND completed_at <= $1
    AND NOT EXISTS (SELECT 1 FROM execution_runs c WHERE c.parent_run_id = r.run_id) ORDER BY created_at LIMIT $2`

	selectForgotten = `SELECT org_id, routing_key, delivery_id FROM execution_runs WHERE run_id = $1 AND completed_at <= $2`

	selectRepeated = `SELECT EXISTS (SELECT 1 FROM execution_runs WHERE parent_run_id = $1)`

	insertForgotten = `INSERT INTO forgotten_runs (run_id, routing_key, forgotten_at) VALUES ($1, $2, $3)
ON CONFLICT (run_id) DO UPDATE SET forgotten_at = excluded.forgotten_at`

	deleteForgotten = `DELETE FROM forgotten_runs WHERE forgotten_at <= $1`

	ofItsJobs = ` IN (SELECT job_id FROM execution_jobs WHERE run_id = $1)`
)

// forgetStatements go from what refers to what is referred to.
var forgetStatements = []string{
	"DELETE FROM held_run_approvals WHERE held_run_id IN (SELECT id FROM held_runs WHERE run_id = $1)",
	"DELETE FROM held_runs WHERE run_id = $1",
	"DELETE FROM concurrency_waiters WHERE run_id = $1",
	"DELETE FROM concurrency_slots WHERE run_id = $1",
	"DELETE FROM execution_steps WHERE job_id" + ofItsJobs,
	"DELETE FROM execution_job_needs WHERE job_id" + ofItsJobs,
	"DELETE FROM execution_jobs WHERE run_id = $1",
	"DELETE FROM execution_runs WHERE run_id = $1",
}
