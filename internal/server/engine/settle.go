package engine

import (
	"context"
	"database/sql"
	"fmt"

	"kici/internal/decide/lifecycle"
	"kici/internal/server/store"
)

// standing is how a run stands.
type standing struct {
	from Source
	open bool // some job of it has not ended
	// jobs are all jobs of a run in which none is open, in the order in which their author wrote them.
	jobs         []lifecycle.Summary
	ending       int  // the place among them of the job that is about to end, -1 where it is not
	drift        bool // some step of a run in check mode found something to change
	slots, holds bool // it has, or waits for, a place in a group; something in it waits for somebody
	outputs      bool // secret outputs of it are kept
}

// loadStanding reads how a run stands. A run that does not exist is sql.ErrNoRows.
func loadStanding(ctx context.Context, q store.Querier, runID string) (standing, error) {
	var s standing
	err := q.All(ctx, askStanding(&s, runID)...)
	if err == nil && s.from.RunID == "" {
		err = sql.ErrNoRows
	}
	if err != nil {
		return s, fmt.Errorf("read how run %s stands: %w", runID, err)
	}
	return s, nil
}

// askStanding is loadStanding among other questions.
func askStanding(s *standing, runID string) []store.Ask {
	args := []any{"", runID}
	return []store.Ask{
		{Query: "SELECT " + standingColumns + " FROM execution_runs r WHERE r.run_id = $2", Args: args, Row: func(r store.Row) error { return r.Scan(s.into()...) }},
		askSummaries(s, "run_id = $2", args...),
	}
}

// into takes the standingColumns.
func (s *standing) into() []any {
	return []any{&s.from.RunID, &s.from.OrgID, &s.from.RoutingKey, &s.from.Repo, &s.from.Workflow, &s.from.ChainDepth, &s.from.Test,
		&s.open, &s.drift, &s.slots, &s.holds, &s.outputs}
}

// askSummaries asks for the jobs of a run in which none is open but the one that is about to end, $1.
func askSummaries(s *standing, run string, args ...any) store.Ask {
	s.ending = -1
	return store.Ask{Query: selectSummaries + run + noOther + run + ") ORDER BY position", Args: args, Row: func(r store.Row) error {
		var job lifecycle.Summary
		var ends bool
		err := r.Scan(&job.Name, &job.Status, &job.Kind, &ends)
		if ends {
			s.ending = len(s.jobs)
		}
		s.jobs = append(s.jobs, job)
		return err
	}, Idle: func() bool { return s.open }}
}

// after is how a run stands once the job that was about to end has ended.
func (s standing) after(ended lifecycle.Job) standing {
	if s.ending >= 0 {
		s.jobs[s.ending].Status = ended.Status
	}
	return s
}

// SourceOf reads where a run comes from. Error: ErrRunNotFound.
func SourceOf(ctx context.Context, q store.Querier, runID string) (Source, error) {
	s, err := loadStanding(ctx, q, runID)
	if isNoRows(err) {
		err = ErrRunNotFound
	}
	return s.from, err
}

// settle tells of the jobs that ended, and ends the run when the last of its jobs is among them. That it has begun is stored here,
// too, where that is still to be done.
func (e *Engine) settle(ctx context.Context, tx *store.Tx, run lifecycle.Run, s standing, begun *lifecycle.RunChange, news endings, now int64) error {
	var o lifecycle.Outcome
	if !s.open {
		o = lifecycle.Settle(run, s.jobs, s.drift, now)
	}
	ends := o.Run != nil
	switch {
	case begun != nil && ends:
		o.Run.StartedAt = begun.StartedAt
	case begun != nil:
		o.Run = begun
	}
	if err := e.storeOutcome(ctx, tx, &run, o, looseEnds{holds: s.holds}, now); err != nil {
		return err
	}
	if !ends {
		return e.announce(ctx, tx, s.from, news.told(now), nil)
	}
	if err := e.release(ctx, tx, run.ID, s, now); err != nil {
		return err
	}
	return e.announce(ctx, tx, s.from, news.told(now), endedRun(run, s.jobs, now))
}

// release gives back what a run that has ended holds, and closes what waits in it.
func (e *Engine) release(ctx context.Context, tx *store.Tx, runID string, s standing, now int64) error {
	if s.slots {
		if err := e.releaseSlots(ctx, tx, runID, now); err != nil {
			return err
		}
	}
	if s.holds {
		if err := closeHolds(ctx, tx, runID, "", now); err != nil {
			return err
		}
	}
	if s.outputs {
		return e.forgetSecretOutputs(ctx, tx, runID)
	}
	return nil
}

const (
	// The job $1 is taken for one that has ended; see standing.after.
	standingColumns = `r.run_id, r.org_id, r.routing_key, r.repo_identifier, r.workflow_name, r.chain_depth, r.is_test_run,
    EXISTS (SELECT 1 FROM execution_jobs o WHERE o.run_id = r.run_id AND o.completed_at IS NULL AND o.job_id <> $1),
    r.check_mode IS NOT NULL AND EXISTS (SELECT 1 FROM execution_jobs o JOIN execution_steps s ON s.job_id = o.job_id
        WHERE o.run_id = r.run_id AND s.check_outcome = 'dry-run'),
    EXISTS (SELECT 1 FROM concurrency_slots c WHERE c.run_id = r.run_id)
        OR EXISTS (SELECT 1 FROM concurrency_waiters w WHERE w.run_id = r.run_id),
    EXISTS (SELECT 1 FROM held_runs h WHERE h.run_id = r.run_id AND h.status = 'pending'),
    EXISTS (SELECT 1 FROM run_secret_outputs p WHERE p.run_id = r.run_id)`

	selectSummaries = `SELECT job_name, status, kind, job_id = $1 FROM execution_jobs WHERE `

	// It is looked for once, not for each job.
	noOther = ` AND NOT EXISTS (SELECT 1 FROM execution_jobs o WHERE o.completed_at IS NULL AND o.job_id <> $1 AND o.`
)
