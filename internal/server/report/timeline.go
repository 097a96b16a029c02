package report

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/server/store"
	"kici/internal/server/timeline"
)

// orchestrator is the source of what the server itself did.
const orchestrator = "orchestrator"

// Timeline is everything that happened in a run, in order of time. What agents told is stored; what the server did is
// read off its rows, so that the two can never disagree, and costs a run nothing.
func Timeline(ctx context.Context, q store.Querier, runID string) ([]timeline.Event, error) {
	events, err := timeline.List(ctx, q, runID)
	if err != nil {
		return nil, err
	}
	own, err := ownEvents(ctx, q, runID)
	if err != nil {
		return nil, err
	}
	events = append(own, events...)
	slices.SortStableFunc(events, func(a, b timeline.Event) int { return int(a.At - b.At) })
	if extra := len(events) - timeline.MaxEvents; extra > 0 {
		events = events[extra:]
	}
	return events, nil
}

// milestones are the moments of a job that its row keeps.
type milestones struct {
	runID, jobID, name                      string
	status                                  ci.JobStatus
	agent, reason                           string
	claimed, started, completed, durationMs sql.NullInt64
}

func ownEvents(ctx context.Context, q store.Querier, runID string) ([]timeline.Event, error) {
	var events []timeline.Event
	var created int64
	var workflow string
	err := q.QueryRowContext(ctx, "SELECT created_at, workflow_name FROM execution_runs WHERE run_id = $1", runID).Scan(&created, &workflow)
	if err != nil {
		return nil, fmt.Errorf("read the milestones of run %s: %w", runID, err)
	}
	rows, err := q.QueryContext(ctx, selectMilestones, runID)
	if err != nil {
		return nil, fmt.Errorf("read the milestones of run %s: %w", runID, err)
	}
	defer rows.Close()
	jobs := 0
	for rows.Next() {
		m := milestones{runID: runID}
		var agent, reason sql.NullString
		if err := rows.Scan(&m.jobID, &m.name, &m.status, &agent, &reason, &m.claimed, &m.started, &m.completed, &m.durationMs); err != nil {
			return nil, err
		}
		m.agent = agent.String
		var why ci.Reason
		if reason.Valid && json.Unmarshal([]byte(reason.String), &why) == nil { // one that cannot be read tells nothing more
			m.reason = why.Code
		}
		events = append(events, m.events()...)
		jobs++
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	first := timeline.Event{RunID: runID, At: created, Type: "orchestrator.dispatch", Source: orchestrator,
		Metadata: metadata(map[string]any{"jobCount": jobs, "workflow": workflow})}
	return append([]timeline.Event{first}, events...), nil
}

// events are what happened to a job, as far as its row tells.
func (m milestones) events() (out []timeline.Event) {
	add := func(at sql.NullInt64, kind string, about map[string]any) {
		if at.Valid {
			out = append(out, timeline.Event{RunID: m.runID, JobID: m.jobID, At: at.Int64, Type: kind, Source: orchestrator, Metadata: metadata(about)})
		}
	}
	who := map[string]any{"agentId": m.agent, "jobName": m.name}
	if m.agent != "" {
		add(m.claimed, "orchestrator.agent.assigned", who)
	}
	add(m.started, "orchestrator.job.started", who)
	switch m.reason {
	case ci.ReasonStale:
		add(m.completed, "orchestrator.job.stale_detected", map[string]any{"jobName": m.name, "reason": m.reason})
	case ci.ReasonAgentLost:
		add(m.completed, "orchestrator.job.orphan_recovered", map[string]any{"jobName": m.name, "reason": m.reason})
	case ci.ReasonQueueTimeout, ci.ReasonUnroutable:
		add(m.completed, "orchestrator.job.queue_expired", map[string]any{"jobName": m.name, "reason": m.reason})
	}
	end := map[string]any{"status": m.status, "agentId": m.agent, "jobName": m.name}
	if m.reason != "" {
		end["reason"] = m.reason
	}
	add(m.completed, "orchestrator.job.completed", end)
	if m.completed.Valid && m.durationMs.Valid {
		out[len(out)-1].DurationMs = &m.durationMs.Int64
	}
	return out
}

// metadata is a document of plain values, which always marshals.
func metadata(v map[string]any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return raw
}

const selectMilestones = `SELECT j.job_id, j.job_name, j.status, j.agent_id, j.reason, q.claimed_at, j.started_at, j.completed_at, j.duration_ms
FROM execution_jobs j LEFT JOIN dispatch_queue q ON q.id = j.job_id WHERE j.run_id = $1 ORDER BY j.position`
