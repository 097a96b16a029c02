package engine

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// Register makes a run with all its jobs, needs and queue rows in one transaction. A run that exists is left alone, so a
// delivery that is worked on twice makes one run. A plan with an init failure, or a queue that is full, makes a failed
// run with the reason.
func (e *Engine) Register(ctx context.Context, r Registration) error {
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		now := e.clock.Millis()
		created, err := insertRun(ctx, tx, r, now)
		if err != nil || !created {
			return err
		}
		run := lifecycle.Run{ID: r.RunID, Status: ci.RunPending, CreatedAt: now, TimeoutMs: r.Plan.TimeoutMs}
		failure, err := e.admission(ctx, tx, r.Plan)
		if err != nil {
			return err
		}
		if failure != nil {
			return e.apply(ctx, tx, run, lifecycle.Stillborn(*failure, now), now)
		}
		outcome := lifecycle.Register(plannedJobs(r.Plan, now), now)
		if err := insertJobs(ctx, tx, r, now); err != nil {
			return err
		}
		return e.apply(ctx, tx, run, outcome, now)
	})
}

// admission tells why no job of the plan may be made at all.
func (e *Engine) admission(ctx context.Context, tx *store.Tx, p plan.Plan) (*ci.InitFailure, error) {
	if p.InitFailure != nil {
		return p.InitFailure, nil
	}
	if len(p.Jobs) == 0 {
		return &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitEnvironmentRules, Message: "the workflow has no jobs to run"}, nil
	}
	depth, err := queue.Depth(ctx, tx, e.settings.QueueMaxDepth)
	if err != nil {
		return nil, fmt.Errorf("read queue depth: %w", err)
	}
	if depth >= e.settings.QueueMaxDepth {
		return &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitEnvironmentRules,
			Message: fmt.Sprintf("queue full: %d jobs are waiting already", depth)}, nil
	}
	return nil, nil
}

func plannedJobs(p plan.Plan, now int64) []lifecycle.Planned {
	needs := map[string][]string{}
	for _, edge := range p.Edges {
		needs[edge.Job] = append(needs[edge.Job], edge.Upstream)
	}
	out := make([]lifecycle.Planned, len(p.Jobs))
	for i, j := range p.Jobs {
		out[i] = lifecycle.Planned{
			Job: lifecycle.Job{ID: j.ID, Name: j.Name, Position: i, Status: ci.JobPending, CreatedAt: now, GraceMs: j.GraceMs,
				Wave: lifecycle.Wave{Gated: j.WaveGated, MaxParallel: j.MaxParallel, FailFast: j.FailFast, Label: j.VariantLabel}},
			Needs:       needs[j.Name],
			InitFailure: j.InitFailure,
		}
	}
	return out
}

func insertRun(ctx context.Context, tx *store.Tx, r Registration, now int64) (bool, error) {
	created, err := store.Changed(tx.ExecContext(ctx, insertRunRow, r.RunID, r.OrgID, r.RoutingKey, ci.CutName(r.Plan.Workflow),
		r.Provider, r.Repo, ci.CutName(r.Ref), ci.CutName(r.SHA), nullText(r.DeliveryID), r.RequestID, nullText(ci.CutText(r.TriggerEvent)),
		nullText(string(r.Decision)), nullText(ci.CutText(r.CommitMessage)), nullText(ci.CutName(r.Sender)), nullText(ci.CutName(r.TriggeredBy)),
		nullText(r.LockFileSource), nullMillis(r.Plan.TimeoutMs), now, nullText(string(r.Event))))
	if err != nil {
		return false, fmt.Errorf("insert run %s: %w", r.RunID, err)
	}
	return created, nil
}

// insertJobs writes the jobs in the order of the plan, then the needs, which name jobs that exist by then.
func insertJobs(ctx context.Context, tx *store.Tx, r Registration, now int64) error {
	selectors := map[string]string{} // canonical text → id, so that a fan-out interns its selector once
	ids := make(map[string]string, len(r.Plan.Jobs))
	for i, j := range r.Plan.Jobs {
		selector, err := internOnce(ctx, tx, selectors, j.Selector)
		if err != nil {
			return err
		}
		if err := insertJob(ctx, tx, r, j, i, selector, now); err != nil {
			return fmt.Errorf("insert job %s: %w", j.Name, err)
		}
		ids[j.Name] = j.ID
	}
	for i, edge := range r.Plan.Edges {
		runOn, err := json.Marshal(edge.RunOn)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertNeed, r.RunID, ids[edge.Job], ids[edge.Upstream], i, string(runOn)); err != nil {
			return fmt.Errorf("insert need of job %s: %w", edge.Job, err)
		}
	}
	return nil
}

func internOnce(ctx context.Context, tx *store.Tx, known map[string]string, s label.Selector) (string, error) {
	text := s.Canonical()
	if id, ok := known[text]; ok {
		return id, nil
	}
	id, err := queue.Intern(ctx, tx, s)
	known[text] = id
	return id, err
}

func insertJob(ctx context.Context, tx *store.Tx, r Registration, j plan.Job, position int, selector string, now int64) error {
	labels, err := json.Marshal(wanted(j.Selector))
	if err != nil {
		return err
	}
	contexts, err := json.Marshal(append([]string{}, j.Contexts...))
	if err != nil {
		return err
	}
	var matrix sql.NullString
	if len(j.MatrixValues) > 0 {
		raw, err := json.Marshal(j.MatrixValues)
		if err != nil {
			return err
		}
		matrix = nullText(string(raw))
	}
	_, err = tx.ExecContext(ctx, insertJobRow, j.ID, r.RunID, position, ci.CutName(j.Name), ci.CutName(j.BaseName), matrix,
		j.VariantKind, j.VariantLabel, j.FanoutIndex, j.FanoutTotal, j.WaveGated, j.MaxParallel, j.FailFast, selector,
		string(labels), j.Pick, cmp.Or(string(j.Config), "{}"), string(contexts), r.CloneURL, r.CheckoutRef, r.SHA, j.TimeoutMs, j.GraceMs, now)
	return err
}

// wanted is what a selector demands, in words for lists and tables.
func wanted(s label.Selector) []string {
	out := append([]string{}, s.Labels...)
	for _, m := range s.Patterns {
		out = append(out, m.String())
	}
	return out[:min(len(out), ci.MaxListEntries)]
}

const (
	insertRunRow = `INSERT INTO execution_runs (run_id, org_id, routing_key, workflow_name, status, provider, repo_identifier, ref, sha,
    delivery_id, request_id, trigger_event, trigger_decision, commit_message, sender, triggered_by, lock_file_source,
    workflow_timeout_ms, created_at, event)
VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
ON CONFLICT (run_id) DO NOTHING`

	insertJobRow = `INSERT INTO execution_jobs (job_id, run_id, position, job_name, base_job_name, status, matrix_values, variant_kind,
    variant_label, fanout_index, fanout_total, wave_gated, wave_max_parallel, wave_fail_fast, selector_id, runs_on_labels, pick,
    job_config, contexts, repo_url, ref, sha, timeout_ms, grace_ms, needs_satisfied, created_at)
VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, FALSE, $24)`

	insertNeed = `INSERT INTO execution_job_needs (run_id, job_id, upstream_id, position, run_on) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (job_id, upstream_id) DO NOTHING`
)
