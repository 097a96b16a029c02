package report

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// Result reads a run as programs want it, with every text that somebody outside chose marked as untrusted.
func Result(ctx context.Context, q store.Querier, runID string) (adminwire.RunResult, error) {
	run, _, err := RunOf(ctx, q, runID)
	if err != nil {
		return adminwire.RunResult{}, err
	}
	jobs, err := Jobs(ctx, q, runID, true)
	if err != nil {
		return adminwire.RunResult{}, err
	}
	secret, err := secretOutputKeys(ctx, q, runID)
	if err != nil {
		return adminwire.RunResult{}, err
	}
	out := adminwire.RunResult{
		RunID: run.RunID, WorkflowName: adminwire.Mark(run.WorkflowName), Status: run.Status, Provider: run.Provider,
		RepoIdentifier: adminwire.Mark(run.RepoIdentifier), Ref: adminwire.Mark(run.Ref), SHA: run.SHA,
		StartedAt: run.StartedAt, CompletedAt: run.CompletedAt, DurationMs: run.DurationMs, TrustTier: run.TrustTier,
		ContributorUsername: markPointer(run.ContributorUsername), FailureReason: markPointer(run.FailureReason),
		TriggeredBy: run.TriggeredBy, Jobs: make([]adminwire.JobResult, len(jobs)),
	}
	for i, j := range jobs {
		out.Jobs[i] = jobResult(j, secret[j.JobID])
	}
	if category := failureCategory(run, jobs); category != "" {
		out.FailureCategory = &category
	}
	return out, nil
}

func jobResult(j adminwire.Job, secret []string) adminwire.JobResult {
	out := adminwire.JobResult{
		JobID: j.JobID, JobName: adminwire.Mark(j.JobName), Status: j.Status, StartedAt: j.StartedAt, CompletedAt: j.CompletedAt,
		DurationMs: j.DurationMs, AgentID: j.AgentID, ErrorMessage: markPointer(j.ErrorMessage), Outputs: flatten(j.Outputs),
		Needs: []adminwire.NeedResult{}, SecretOutputKeys: append([]string{}, secret...), Steps: make([]adminwire.StepResult, len(j.Steps)),
	}
	if f := j.InitFailure; f != nil {
		out.InitFailure = &adminwire.FailureResult{Scope: f.Scope, Category: f.Category, Message: adminwire.Mark(f.Message)}
	}
	for _, n := range j.Needs {
		out.Needs = append(out.Needs, adminwire.NeedResult{Ref: adminwire.Mark(n.UpstreamName), RunOn: n.RunOn})
	}
	for i, s := range j.Steps {
		out.Steps[i] = stepResult(s)
	}
	return out
}

// secretOutputKeys are the names of the secret outputs of each job, sorted. They outlive the values.
func secretOutputKeys(ctx context.Context, q store.Querier, runID string) (map[string][]string, error) {
	rows, err := q.QueryContext(ctx, "SELECT job_id, output_key FROM run_secret_output_names WHERE run_id = $1", runID)
	if err != nil {
		return nil, fmt.Errorf("list secret outputs of run %s: %w", runID, err)
	}
	defer rows.Close()
	keys := map[string][]string{}
	for rows.Next() {
		var jobID, key string
		if err := rows.Scan(&jobID, &key); err != nil {
			return nil, fmt.Errorf("list secret outputs of run %s: %w", runID, err)
		}
		keys[jobID] = append(keys[jobID], key)
	}
	for _, k := range keys {
		slices.Sort(k) // databases order texts each in its way
	}
	return keys, rows.Err()
}

func stepResult(s adminwire.Step) adminwire.StepResult {
	if s.StepType == "" {
		s.StepType = "step"
	}
	if s.SecretsAccessed == nil {
		s.SecretsAccessed = []string{}
	}
	return adminwire.StepResult{
		StepIndex: s.StepIndex, StepName: adminwire.Mark(s.StepName), Status: s.Status, ExitCode: s.ExitCode, DurationMs: s.DurationMs,
		StartedAt: s.StartedAt, CompletedAt: s.CompletedAt, ErrorMessage: markPointer(s.ErrorMessage), StepType: s.StepType,
		CheckOutcome: s.CheckOutcome, SecretsAccessed: s.SecretsAccessed,
	}
}

func markPointer(s *string) *adminwire.Untrusted {
	if s == nil {
		return nil
	}
	return adminwire.Mark(*s)
}

// flatten turns the outputs by step into one map by "<step>.<key>". What a step gave otherwise than as an object stands
// under the step's own name.
func flatten(outputs json.RawMessage) *adminwire.UntrustedMap {
	var steps map[string]any
	if json.Unmarshal(outputs, &steps) != nil || len(steps) == 0 { // outputs that are no object have no keys to show
		return nil
	}
	out := map[string]any{}
	for step, value := range steps {
		keys, ok := value.(map[string]any)
		if !ok {
			out[step] = value
			continue
		}
		for key, v := range keys {
			out[step+"."+key] = v
		}
	}
	return &adminwire.UntrustedMap{Untrusted: true, Value: out}
}

// outOfTime are the ends of jobs whose time ran out, in the queue or at an agent that fell silent.
var outOfTime = []ci.JobStatus{ci.JobTimedOutStale, ci.JobUnroutable}

// failureCategory sorts the end of a run by what its jobs tell.
func failureCategory(run adminwire.RunDetail, jobs []adminwire.Job) string {
	init := run.InitFailure
	timedOut := isTimeout(run.Reason)
	nonZero := false
	for _, j := range jobs {
		if init == nil {
			init = j.InitFailure
		}
		timedOut = timedOut || slices.Contains(outOfTime, j.Status) || j.Status.Terminal() && j.Status != ci.JobSuccess && isTimeout(j.Reason)
		for _, s := range j.Steps {
			nonZero = nonZero || s.ExitCode != nil && *s.ExitCode != 0
		}
	}
	return ci.FailureCategory(run.Status, init, timedOut, nonZero)
}

func isTimeout(r *ci.Reason) bool {
	return r != nil && (r.Code == ci.ReasonWorkflowTimeout || r.Code == ci.ReasonJobTimeout || r.Code == ci.ReasonQueueTimeout)
}
