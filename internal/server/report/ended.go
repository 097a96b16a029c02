package report

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// EndedRun is a run that has ended, as metrics count it. Times are epoch milliseconds.
type EndedRun struct {
	RunID       string
	Status      ci.RunStatus
	CompletedAt int64
	DurationMs  int64
	Steps       map[ci.StepStatus]int // of all its jobs, by the state in which they ended
	Started     int                   // steps that ever ran
	Silences    []int64               // how long each job was silent that was given up for it, in milliseconds
	Builds      []int64               // how long each build took, in milliseconds
}

// endedBatch bounds the runs of one statement. SQLite's driver finds each place of a statement by its name, among all of them.
const endedBatch = 32

// Ended reads those of the runs that have ended.
func Ended(ctx context.Context, q store.Querier, runIDs []string) ([]EndedRun, error) {
	var out []EndedRun
	for len(runIDs) > 0 {
		batch := runIDs[:min(len(runIDs), endedBatch)]
		runIDs = runIDs[len(batch):]
		ended, err := endedOf(ctx, q, batch)
		if err != nil {
			return nil, err
		}
		out = append(out, ended...)
	}
	return out, nil
}

func endedOf(ctx context.Context, q store.Querier, batch []string) (out []EndedRun, err error) {
	places, args := placesOf(filled(batch))
	at := map[string]int{}
	err = each(ctx, q, selectEnded+places+")", args, func(scan func(...any) error) error {
		r := EndedRun{Steps: map[ci.StepStatus]int{}}
		if err := scan(&r.RunID, &r.Status, &r.CompletedAt, &r.DurationMs); err != nil {
			return err
		}
		at[r.RunID] = len(out)
		out = append(out, r)
		return nil
	})
	if err != nil || len(out) == 0 {
		return nil, err
	}
	err = each(ctx, q, selectStepCounts+places+") GROUP BY j.run_id, s.status", args, func(scan func(...any) error) error {
		var run string
		var status ci.StepStatus
		var n, started int
		if err := scan(&run, &status, &n, &started); err != nil {
			return err
		}
		if i, ok := at[run]; ok {
			out[i].Steps[status] += n
			out[i].Started += started
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, each(ctx, q, selectSpans+places+")", args, func(scan func(...any) error) error {
		var run string
		var silent, build bool
		var silence, took int64
		if err := scan(&run, &silent, &build, &silence, &took); err != nil {
			return err
		}
		i, ok := at[run]
		if ok && silent {
			out[i].Silences = append(out[i].Silences, silence)
		}
		if ok && build {
			out[i].Builds = append(out[i].Builds, took)
		}
		return nil
	})
}

// filled repeats the last of some ids up to a power of two, so that there are few statements to prepare, however many ids there
// are each time.
func filled(ids []string) []string {
	for len(ids)&(len(ids)-1) != 0 {
		ids = append(slices.Clip(ids), ids[len(ids)-1])
	}
	return ids
}

// StaleRuns counts the runs of which a running job has given no sign of life since before.
func StaleRuns(ctx context.Context, q store.Querier, before int64) (int, error) {
	var n int
	err := q.QueryRowContext(ctx, selectStaleRuns, before).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count stale runs: %w", err)
	}
	return n, nil
}

// placesOf writes $1, $2… for values.
func placesOf(values []string) (places string, args []any) {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "$%d", i+1)
		args = append(args, v)
	}
	return b.String(), args
}

// each calls fn for every row.
func each(ctx context.Context, q store.Querier, query string, args []any, fn func(scan func(...any) error) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return fmt.Errorf("read rows: %w", err)
		}
	}
	return rows.Err()
}

const (
	selectEnded = `SELECT run_id, status, completed_at, coalesce(duration_ms, 0) FROM execution_runs
WHERE completed_at IS NOT NULL AND run_id IN (`

	selectStepCounts = `SELECT j.run_id, s.status, count(*), count(s.started_at) FROM execution_jobs j
JOIN execution_steps s ON s.job_id = j.job_id WHERE j.run_id IN (`

	selectSpans = `SELECT run_id, status = 'timed_out_stale', kind = 'build', completed_at - coalesce(last_heartbeat_at, started_at, created_at),
    completed_at - started_at FROM execution_jobs
WHERE (status = 'timed_out_stale' OR kind = 'build') AND started_at IS NOT NULL AND completed_at IS NOT NULL AND run_id IN (`

	selectStaleRuns = `SELECT count(DISTINCT j.run_id) FROM dispatch_queue q CROSS JOIN execution_jobs j
WHERE j.job_id = q.id AND q.status IN ('dispatched', 'recovering') AND j.status = 'running'
AND coalesce(j.last_heartbeat_at, j.started_at, j.created_at) < $1`
)
