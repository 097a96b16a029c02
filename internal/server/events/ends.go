package events

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// maxSteps bounds the steps that an event lists.
const maxSteps = ci.MaxJobsPerRun

// jobPayload is what __job_complete says. Times are milliseconds.
type jobPayload struct {
	WorkflowName     string       `json:"workflowName"`
	JobName          string       `json:"jobName"`
	RunID            string       `json:"runId"`
	JobID            string       `json:"jobId"`
	Status           ci.JobStatus `json:"status"`
	Duration         int64        `json:"duration"`
	StepResults      []stepResult `json:"stepResults"`
	SourceRepo       string       `json:"sourceRepo"`
	SourceRoutingKey string       `json:"sourceRoutingKey"`
}

// stepResult leaves out what a step printed of its failure: the workflow that hears of it may be of another repository.
type stepResult struct {
	Name       string        `json:"name"`
	Status     ci.StepStatus `json:"status"`
	DurationMs int64         `json:"durationMs"`
}

// runPayload is what __workflow_complete says. Times are milliseconds.
type runPayload struct {
	WorkflowName     string       `json:"workflowName"`
	RunID            string       `json:"runId"`
	Status           ci.RunStatus `json:"status"`
	Conclusion       string       `json:"conclusion"`
	Duration         int64        `json:"duration"`
	JobResults       []jobResult  `json:"jobResults"`
	SourceRepo       string       `json:"sourceRepo"`
	SourceRoutingKey string       `json:"sourceRoutingKey"`
}

type jobResult struct {
	Name   string       `json:"name"`
	Status ci.JobStatus `json:"status"`
}

// rerunPayload is what workflow.rerun says.
type rerunPayload struct {
	ParentRunID  string `json:"parentRunId"`
	NewRunID     string `json:"newRunId"`
	WorkflowName string `json:"workflowName"`
	Repo         string `json:"repo"`
	SHA          string `json:"sha"`
	TriggeredBy  string `json:"triggeredBy"`
}

// news is an event of the server itself.
type news struct {
	name    string
	jobID   string // "" where it is of the whole run
	payload any
}

// tell writes what a run is news of. What would continue a chain for too long is left out: the change that it tells of must
// not fail because of it.
func (r *Room) tell(ctx context.Context, tx *store.Tx, from engine.Source, depth int, all ...news) error {
	if err := r.breaker.chain(depth); err != nil {
		for _, n := range all {
			tx.After(func() {
				r.Log.Warn("event not written", "event", n.name, "run", from.RunID, "err", err)
				r.Dropped(reasonChainDepth, 1)
			})
		}
		return nil
	}
	now := r.Clock.Millis()
	for len(all) > 0 {
		some := all[:min(len(all), maxNews)]
		args := []any{from.OrgID, from.Repo, from.RoutingKey, optional(from.RunID), depth, now, now + r.Settings.TTL.Milliseconds()}
		for _, n := range some {
			raw, err := json.Marshal(n.payload)
			if err != nil {
				return fmt.Errorf("encode event %s: %w", n.name, err)
			}
			id, err := uuid.NewV7()
			if err != nil {
				return fmt.Errorf("write event %s: %w", n.name, err)
			}
			args = append(args, id.String(), n.name, ci.CleanText(string(raw)), optional(n.jobID))
		}
		if err := tx.Do(ctx, insertNews[len(some)], args...); err != nil {
			return fmt.Errorf("write event %s: %w", some[0].name, err)
		}
		all = all[len(some):]
	}
	tx.After(r.Wake.Wake)
	return nil
}

// Ended tells others that jobs have ended, and that their run has with them. Of a run that only tries something out nobody is
// told.
func (r *Room) Ended(ctx context.Context, tx *store.Tx, from engine.Source, jobs []engine.EndedJob, run *engine.EndedRun) error {
	if from.Test {
		return nil
	}
	all := make([]news, 0, len(jobs)+1)
	for _, job := range jobs {
		all = append(all, jobEnded(from, job))
	}
	if run != nil {
		all = append(all, runEnded(from, *run))
	}
	return r.tell(ctx, tx, from, from.ChainDepth+1, all...)
}

func jobEnded(from engine.Source, job engine.EndedJob) news {
	steps := make([]stepResult, min(len(job.Steps), maxSteps))
	for i := range steps {
		s := job.Steps[i]
		steps[i] = stepResult{Name: ci.CutName(s.Name), Status: s.Status, DurationMs: s.DurationMs}
	}
	payload := jobPayload{WorkflowName: from.Workflow, JobName: job.Name, RunID: from.RunID, JobID: job.ID, Status: job.Status, Duration: job.DurationMs,
		StepResults: steps, SourceRepo: from.Repo, SourceRoutingKey: from.RoutingKey}
	return news{name: jobComplete, jobID: job.ID, payload: payload}
}

func runEnded(from engine.Source, run engine.EndedRun) news {
	jobs := make([]jobResult, len(run.Jobs)) // no more than a run may have
	for i, j := range run.Jobs {
		jobs[i] = jobResult{Name: j.Name, Status: j.Status}
	}
	payload := runPayload{WorkflowName: from.Workflow, RunID: from.RunID, Status: run.Status, Conclusion: conclusion(run), Duration: run.DurationMs,
		JobResults: jobs, SourceRepo: from.Repo, SourceRoutingKey: from.RoutingKey}
	return news{name: workflowComplete, payload: payload}
}

// RunRepeated tells others that somebody asked for a run again. No run caused that, so no chain goes on with it.
func (r *Room) RunRepeated(ctx context.Context, tx *store.Tx, from engine.Source, again engine.Repetition) error {
	payload := rerunPayload{ParentRunID: again.ParentRunID, NewRunID: from.RunID, WorkflowName: from.Workflow, Repo: from.Repo,
		SHA: again.SHA, TriggeredBy: again.TriggeredBy}
	return r.tell(ctx, tx, from, 0, news{name: workflowRerun, payload: payload})
}

// conclusion is the end of a run in the words of forges.
func conclusion(run engine.EndedRun) string {
	switch run.Status {
	case ci.RunSuccess:
		return "success"
	case ci.RunCancelled:
		return "cancelled"
	}
	if slices.ContainsFunc(run.Jobs, func(j lifecycle.Summary) bool { return j.Status == ci.JobTimedOutStale }) {
		return "timed_out"
	}
	return "failure"
}

// maxNews is how many are written at once: mostly a run ends with its only job.
const maxNews = 2

// insertNews writes so many. What is the same for all of a run is given once.
var insertNews = [maxNews + 1]string{1: insertNewsOf + store.Places(1, 8, newsRow), 2: insertNewsOf + store.Places(2, 8, newsRow)}

const (
	insertNewsOf = `INSERT INTO kici_events (org_id, source_repo, source_routing_key, source_run_id, chain_depth, created_at, expires_at,
    id, event_name, payload, source_job_id) VALUES `
	newsRow = "($1, $2, $3, $4, $5, $6, $7, $%d, $%d, $%d, $%d)"
)
