// Package timeline keeps what happened in a run, moment by moment, and the surroundings in which its jobs ran. It alone
// writes the tables run_events and job_contexts.
package timeline

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/store"
)

// MaxEvents is how many events a run keeps. Older ones are dropped: the end of a run tells more about it than its
// beginning.
const MaxEvents = 500

// maxMetadata bounds the document of an event in bytes. A larger one is left out, since half a document is none.
const maxMetadata = 16 << 10

// maxContext bounds the document of a job's surroundings in bytes. What is larger is refused.
const maxContext = 256 << 10

// ErrTooLarge says that a document was not stored because of its size.
var ErrTooLarge = errors.New("document is too large")

// Event is one entry of a run's timeline.
type Event struct {
	RunID      string
	JobID      string // "" for the run itself
	At         int64  // epoch milliseconds
	Type       string
	Source     string          // agent, orchestrator
	DurationMs *int64          // of what ended with the event
	Metadata   json.RawMessage // an object, or nil
}

// Append adds events and drops what of their runs exceeds MaxEvents.
func Append(ctx context.Context, tx *store.Tx, events ...Event) error {
	rows := make([][]any, len(events))
	runs := map[string]bool{}
	for i, e := range events {
		metadata := sql.NullString{String: string(e.Metadata), Valid: len(e.Metadata) > 0 && len(e.Metadata) <= maxMetadata}
		rows[i] = []any{uuid.NewString(), e.RunID, sql.NullString{String: e.JobID, Valid: e.JobID != ""},
			e.At, ci.CutName(e.Type), ci.CutName(e.Source), e.DurationMs, metadata}
		runs[e.RunID] = true
	}
	if err := store.InsertAll(ctx, tx, insertEvents, 8, "", rows); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	for _, run := range slices.Sorted(maps.Keys(runs)) {
		if err := tx.Do(ctx, trimEvents, run, MaxEvents); err != nil {
			return fmt.Errorf("trim events of run %s: %w", run, err)
		}
	}
	return nil
}

// List reads the events of a run in order of time.
func List(ctx context.Context, q store.Querier, runID string) ([]Event, error) {
	rows, err := q.QueryContext(ctx, selectEvents, runID)
	if err != nil {
		return nil, fmt.Errorf("list events of run %s: %w", runID, err)
	}
	defer rows.Close()
	var out []Event
	for rows.Next() {
		var e Event
		var job, metadata sql.NullString
		var duration sql.NullInt64
		if err := rows.Scan(&e.RunID, &job, &e.At, &e.Type, &e.Source, &duration, &metadata); err != nil {
			return nil, fmt.Errorf("list events of run %s: %w", runID, err)
		}
		e.JobID = job.String
		if duration.Valid {
			e.DurationMs = &duration.Int64
		}
		if metadata.Valid {
			e.Metadata = json.RawMessage(metadata.String)
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// Context stores the surroundings of a job; the last ones sent are kept. Values of variables that are secret, or whose
// name says so, are masked first: some agents send the token of their own connection among them.
func Context(ctx context.Context, tx *store.Tx, runID, jobID string, at int64, env wire.Environment) error {
	raw, err := json.Marshal(masked(env))
	if err != nil {
		return fmt.Errorf("store context of job %s: %w", jobID, err)
	}
	if len(raw) > maxContext {
		return fmt.Errorf("store context of job %s: %w: %d bytes, the limit is %d", jobID, ErrTooLarge, len(raw), maxContext)
	}
	if err := tx.Do(ctx, upsertContext, jobID, runID, at, string(raw)); err != nil {
		return fmt.Errorf("store context of job %s: %w", jobID, err)
	}
	return nil
}

// ContextOf reads the surroundings of a job as they were stored; nil when none were sent.
func ContextOf(ctx context.Context, q store.Querier, jobID string) (json.RawMessage, error) {
	rows, err := q.QueryContext(ctx, "SELECT context FROM job_contexts WHERE job_id = $1", jobID)
	if err != nil {
		return nil, fmt.Errorf("read context of job %s: %w", jobID, err)
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	var text string
	if err := rows.Scan(&text); err != nil {
		return nil, fmt.Errorf("read context of job %s: %w", jobID, err)
	}
	return json.RawMessage(text), rows.Err()
}

const mask = "***"

var secretWords = []string{"TOKEN", "SECRET", "KEY", "PASSWORD"}

func masked(env wire.Environment) wire.Environment {
	vars := make([]wire.EnvVar, len(env.EnvVars))
	for i, v := range env.EnvVars {
		if v.Category == "secret" || namesSecret(v.Name) {
			v.Value = mask
		}
		vars[i] = v
	}
	env.EnvVars = vars
	return env
}

func namesSecret(name string) bool {
	name = strings.ToUpper(name)
	for _, word := range secretWords {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

const (
	insertEvents = `INSERT INTO run_events (id, run_id, job_id, at, event_type, source, duration_ms, metadata) VALUES`

	// Nothing is deleted below the limit: the inner select is empty then and the comparison with it unknown.
	trimEvents = `DELETE FROM run_events WHERE run_id = $1 AND (at, id) <= (
    SELECT at, id FROM run_events WHERE run_id = $1 ORDER BY at DESC, id DESC LIMIT 1 OFFSET $2)`

	selectEvents = `SELECT run_id, job_id, at, event_type, source, duration_ms, metadata FROM run_events
WHERE run_id = $1 ORDER BY at, id`

	upsertContext = `INSERT INTO job_contexts (job_id, run_id, at, context) VALUES ($1, $2, $3, $4)
ON CONFLICT (job_id) DO UPDATE SET run_id = excluded.run_id, at = excluded.at, context = excluded.context`
)
