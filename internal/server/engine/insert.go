package engine

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/decide/plan"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// positionStep leaves room between the jobs of a plan for those that one of them may give, so that jobs stand in the
// order in which their author wrote them whenever they are made.
const positionStep = 2048

// checkout is what an agent clones.
type checkout struct{ url, ref, sha string }

// insertion writes jobs and needs of one run.
type insertion struct {
	runID string
	checkout
	now         int64
	generatorID string            // of generated jobs
	selectors   map[string]string // canonical text → id, so that a fan-out interns its selector once
	ids         map[string]string // of the run's jobs, by name
}

func newInsertion(runID string, c checkout, now int64) *insertion {
	return &insertion{runID: runID, checkout: c, now: now, selectors: map[string]string{}, ids: map[string]string{}}
}

// jobs writes jobs in order, the first at position.
func (in *insertion) jobs(ctx context.Context, tx *store.Tx, jobs []plan.Job, position, step int64) error {
	for _, j := range jobs {
		in.ids[j.Name] = j.ID
	}
	for i, j := range jobs {
		if err := in.job(ctx, tx, j, position+int64(i)*step); err != nil {
			return fmt.Errorf("insert job %s: %w", j.Name, err)
		}
	}
	return nil
}

func (in *insertion) job(ctx context.Context, tx *store.Tx, j plan.Job, position int64) error {
	selector, err := in.intern(ctx, tx, j.Selector)
	if err != nil {
		return err
	}
	labels, err := json.Marshal(wanted(j.Selector))
	if err != nil {
		return err
	}
	contexts, err := json.Marshal(append([]string{}, j.Contexts...))
	if err != nil {
		return err
	}
	var approval sql.NullString
	if j.Approval != nil {
		raw, err := json.Marshal(j.Approval)
		if err != nil {
			return err
		}
		approval = nullText(string(raw))
	}
	var matrix sql.NullString
	if len(j.MatrixValues) > 0 {
		raw, err := json.Marshal(j.MatrixValues)
		if err != nil {
			return err
		}
		matrix = nullText(string(raw))
	}
	_, err = tx.ExecContext(ctx, insertJobRow, j.ID, in.runID, position, ci.CutName(j.Name), ci.CutName(j.BaseName), matrix,
		j.VariantKind, j.VariantLabel, j.FanoutIndex, j.FanoutTotal, j.WaveGated, j.MaxParallel, j.FailFast, selector,
		string(labels), j.Pick, cmp.Or(string(j.Config), "{}"), string(contexts), in.url, in.ref, in.sha, j.TimeoutMs, j.GraceMs, in.now,
		string(kindOf(j)), j.Deferred, nullText(in.ids[j.Target]), nullText(j.Group), nullText(in.generatorID), nullText(string(j.DynamicSource)), approval)
	return err
}

func (in *insertion) intern(ctx context.Context, tx *store.Tx, s label.Selector) (string, error) {
	text := s.Canonical()
	if id, ok := in.selectors[text]; ok {
		return id, nil
	}
	id, err := queue.Intern(ctx, tx, s)
	in.selectors[text] = id
	return id, err
}

// edges writes needs in order, the first at position. They name jobs that exist by then.
func (in *insertion) edges(ctx context.Context, tx *store.Tx, edges []plan.Edge, position int) error {
	for i, edge := range edges {
		runOn, err := json.Marshal(edge.RunOn)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, insertNeed, in.runID, in.ids[edge.Job], in.ids[edge.Upstream], position+i, string(runOn), edge.ViaGroup)
		if err != nil {
			return fmt.Errorf("insert need of job %s: %w", edge.Job, err)
		}
	}
	return nil
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
	insertJobRow = `INSERT INTO execution_jobs (job_id, run_id, position, job_name, base_job_name, status, matrix_values, variant_kind,
    variant_label, fanout_index, fanout_total, wave_gated, wave_max_parallel, wave_fail_fast, selector_id, runs_on_labels, pick,
    job_config, contexts, repo_url, ref, sha, timeout_ms, grace_ms, needs_satisfied, created_at, kind, deferred, target_id, group_name,
    generator_id, dynamic_source, approval)
VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, FALSE, $24,
    $25, $26, $27, $28, $29, $30, $31)`

	insertNeed = `INSERT INTO execution_job_needs (run_id, job_id, upstream_id, position, run_on, via_group)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (job_id, upstream_id) DO NOTHING`
)
