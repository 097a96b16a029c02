package chaos

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// collect reads what the servers have left, once all of them have ended.
func (s *system) collect(ctx context.Context, o Options, f *facts) error {
	db, err := store.Open(ctx, store.Options{URL: o.Postgres, Path: filepath.Join(s.Server.Data, "kici.db")})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := readDatabase(ctx, db.Read(), f); err != nil {
		return err
	}
	file, err := os.Open(s.ledger())
	if err != nil {
		return fmt.Errorf("no step has ever run: %w", err)
	}
	defer file.Close()
	if f.Executions, err = readLedger(file); err != nil {
		return err
	}
	f.Acked = s.witness.seen()
	if err := s.readLogs(ctx, db, f); err != nil {
		return err
	}
	if runtime.GOOS == "linux" { // elsewhere no kernel ends what a killed process has started
		for _, a := range s.agents {
			for _, at := range a.ends {
				f.Ends = append(f.Ends, agentEnd{Agent: a.name, At: at})
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Crashes = s.crashes
	return nil
}

func readDatabase(ctx context.Context, q store.Querier, f *facts) (err error) {
	if f.Runs, err = list(ctx, q, selectRuns, scanRun); err != nil {
		return err
	}
	if f.Jobs, err = list(ctx, q, selectJobs, scanJob); err != nil {
		return err
	}
	if err := readNeeds(ctx, q, f.Jobs); err != nil {
		return err
	}
	f.Steps, err = list(ctx, q, selectSteps, func(scan scanner) (s stepFact, err error) {
		return s, scan(&s.Job, &s.stepKey.Step, &s.Name, &s.Type, &s.Status)
	})
	if err != nil {
		return err
	}
	f.Rows, err = list(ctx, q, selectRows, func(scan scanner) (r rowFact, err error) { return r, scan(&r.Job, &r.Status, &r.Requeued) })
	if err != nil {
		return err
	}
	f.Attempts, err = list(ctx, q, selectAttempts, func(scan scanner) (a attemptFact, err error) {
		return a, scan(&a.Job, &a.Number, &a.Agent, &a.Claimed, &a.Ended, &a.Outcome)
	})
	return err
}

// scanner is the Scan of a row.
type scanner func(...any) error

func list[T any](ctx context.Context, q store.Querier, query string, scan func(scanner) (T, error)) (out []T, err error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("collect facts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		one, err := scan(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("collect facts: %w", err)
		}
		out = append(out, one)
	}
	return out, rows.Err()
}

func scanRun(scan scanner) (r runFact, err error) {
	var event string
	if err := scan(&r.ID, &r.Delivery, &r.Workflow, &r.Parent, &r.Status, &r.Created, &r.Ended, &event); err != nil {
		return r, err
	}
	var body struct {
		Payload struct{ Chaos struct{ Mark string } }
	}
	err = json.Unmarshal([]byte(event), &body)
	r.Mark = body.Payload.Chaos.Mark
	return r, err
}

func scanJob(scan scanner) (j jobFact, err error) {
	var reason sql.NullString
	if err := scan(&j.ID, &j.Run, &j.Name, &j.Status, &reason, &j.Ended); err != nil || !reason.Valid {
		return j, err
	}
	var r ci.Reason
	err = json.Unmarshal([]byte(reason.String), &r)
	j.Reason, j.Message = r.Code, r.Message
	return j, err
}

func readNeeds(ctx context.Context, q store.Querier, jobs []jobFact) error {
	at := map[string]int{}
	for i, j := range jobs {
		at[j.ID] = i
	}
	_, err := list(ctx, q, selectNeeds, func(scan scanner) (none struct{}, err error) {
		var job, runOn string
		var n needFact
		if err := scan(&job, &n.Job, &runOn); err != nil {
			return none, err
		}
		jobs[at[job]].Needs = append(jobs[at[job]].Needs, n)
		needs := jobs[at[job]].Needs
		return none, json.Unmarshal([]byte(runOn), &needs[len(needs)-1].RunOn)
	})
	return err
}

const (
	selectRuns = `SELECT run_id, coalesce(delivery_id, ''), workflow_name, coalesce(parent_run_id, ''), status, created_at,
    coalesce(completed_at, 0), coalesce(event, '{}') FROM execution_runs ORDER BY created_at, run_id`

	selectJobs = `SELECT job_id, run_id, job_name, status, reason, coalesce(completed_at, 0) FROM execution_jobs ORDER BY run_id, position`

	selectNeeds = `SELECT job_id, upstream_id, run_on FROM execution_job_needs ORDER BY job_id, position`

	selectSteps = `SELECT job_id, step_index, step_name, step_type, status FROM execution_steps ORDER BY job_id, step_index`

	selectRows = `SELECT id, status, attempts FROM dispatch_queue ORDER BY id`

	selectAttempts = `SELECT job_id, attempt, agent_id, claimed_at, coalesce(ended_at, 0), coalesce(outcome, '') FROM dispatch_attempts
ORDER BY job_id, attempt`
)
