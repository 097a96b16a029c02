package events

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

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

// JobEnded tells others that a job has ended. Of a run that only tries something out nobody is told.
func (r *Room) JobEnded(ctx context.Context, tx *store.Tx, from engine.Source, job engine.EndedJob) error {
	if from.Test {
		return nil
	}
	steps := make([]stepResult, min(len(job.Steps), maxSteps))
	for i := range steps {
		s := job.Steps[i]
		steps[i] = stepResult{Name: ci.CutName(s.Name), Status: s.Status, DurationMs: s.DurationMs}
	}
	payload := jobPayload{WorkflowName: from.Workflow, JobName: job.Name, RunID: from.RunID, JobID: job.ID, Status: job.Status, Duration: job.DurationMs,
		StepResults: steps, SourceRepo: from.Repo, SourceRoutingKey: from.RoutingKey}
	return r.tell(ctx, tx, jobComplete, from, job.ID, from.ChainDepth+1, payload)
}

// RunEnded tells others that a run has ended.
func (r *Room) RunEnded(ctx context.Context, tx *store.Tx, from engine.Source, run engine.EndedRun) error {
	if from.Test {
		return nil
	}
	jobs := make([]jobResult, len(run.Jobs)) // no more than a run may have
	for i, j := range run.Jobs {
		jobs[i] = jobResult{Name: j.Name, Status: j.Status}
	}
	payload := runPayload{WorkflowName: from.Workflow, RunID: from.RunID, Status: run.Status, Conclusion: conclusion(run), Duration: run.DurationMs,
		JobResults: jobs, SourceRepo: from.Repo, SourceRoutingKey: from.RoutingKey}
	return r.tell(ctx, tx, workflowComplete, from, "", from.ChainDepth+1, payload)
}

// RunRepeated tells others that somebody asked for a run again. No run caused that, so no chain goes on with it.
func (r *Room) RunRepeated(ctx context.Context, tx *store.Tx, from engine.Source, again engine.Repetition) error {
	payload := rerunPayload{ParentRunID: again.ParentRunID, NewRunID: from.RunID, WorkflowName: from.Workflow, Repo: from.Repo,
		SHA: again.SHA, TriggeredBy: again.TriggeredBy}
	return r.tell(ctx, tx, workflowRerun, from, "", 0, payload)
}

func (r *Room) tell(ctx context.Context, tx *store.Tx, name string, from engine.Source, jobID string, depth int, payload any) error {
	raw, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", name, err)
	}
	return r.system(ctx, tx, Event{Name: name, Payload: raw, OrgID: from.OrgID, Source: sourceOf(from, jobID), ChainDepth: depth})
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
