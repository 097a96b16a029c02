package engine

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/decide/lifecycle"
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
	generatorID string                     // of generated jobs
	interned    *lru.Cache[string, string] // canonical texts of selectors → ids; none is ever deleted
	selectors   map[string]string          // the same of this run, so that a fan-out interns its selector once
	ids         map[string]string          // of the run's jobs, by name
	births      map[string]birth           // by job id
	expiry      int64                      // until when those that are queued at once may wait; 0: for ever
}

func (e *Engine) newInsertion(runID string, c checkout, now int64) *insertion {
	return &insertion{runID: runID, checkout: c, now: now, interned: e.interned, selectors: map[string]string{}, ids: map[string]string{}}
}

// jobs writes jobs in order, the first at position.
func (in *insertion) jobs(ctx context.Context, tx *store.Tx, jobs []plan.Job, position, step int64) error {
	for _, j := range jobs {
		in.ids[j.Name] = j.ID
	}
	if err := in.intern(ctx, tx, jobs); err != nil {
		return err
	}
	rows := make([][]any, len(jobs))
	var queued []queue.New
	for i, j := range jobs {
		selector := in.selectors[j.Selector.Canonical()]
		at := position + int64(i)*step
		var err error
		if rows[i], err = in.row(j, selector, at); err != nil {
			return fmt.Errorf("insert job %s: %w", j.Name, err)
		}
		if in.births[j.ID].queued {
			queued = append(queued, queue.New{JobID: j.ID, SelectorID: selector, Position: at})
		}
	}
	statement := insertJobs.of(rows...)
	for i := range rows {
		rows[i] = rows[i][:statement.columns]
	}
	if err := store.InsertAll(ctx, tx, statement.head, statement.columns, "", rows); err != nil {
		return fmt.Errorf("insert jobs of run %s: %w", in.runID, err)
	}
	return queue.EnqueueAll(ctx, tx, in.runID, queued, in.now, in.expiry)
}

// birth is the first state of a job, where that is known before its row is written.
type birth struct {
	reason            sql.NullString
	satisfied, queued bool
}

// bear takes from the first decision about a run what can be written with its jobs, and leaves the rest. Most jobs of
// most runs are written once so, and their rows are not touched again until an agent has them.
func (in *insertion) bear(o lifecycle.Outcome, expiry int64) (lifecycle.Outcome, error) {
	in.births, in.expiry = map[string]birth{}, expiry
	rest := lifecycle.Outcome{Run: o.Run, Ended: o.Ended}
	for _, c := range o.Jobs {
		if c.CompletedAt != 0 {
			rest.Jobs = append(rest.Jobs, c)
			continue
		}
		reason, _, err := encodeReason(c.Reason)
		if err != nil {
			return rest, err
		}
		in.births[c.JobID] = birth{reason: reason, satisfied: c.Satisfied}
	}
	for _, r := range o.Rows {
		b := in.births[r.JobID]
		b.queued = true
		in.births[r.JobID] = b
	}
	return rest, nil
}

// row is the values of a job's row.
func (in *insertion) row(j plan.Job, selector string, position int64) ([]any, error) {
	labels, err := json.Marshal(wanted(j.Selector))
	if err != nil {
		return nil, err
	}
	contexts, err := json.Marshal(append([]string{}, j.Contexts...))
	if err != nil {
		return nil, err
	}
	born := in.births[j.ID]
	var ready sql.NullInt64
	if born.queued {
		ready = nullMillis(in.now)
	}
	var approval sql.NullString
	if j.Approval != nil {
		raw, err := json.Marshal(j.Approval)
		if err != nil {
			return nil, err
		}
		approval = nullText(string(raw))
	}
	var matrix sql.NullString
	if len(j.MatrixValues) > 0 {
		raw, err := json.Marshal(j.MatrixValues)
		if err != nil {
			return nil, err
		}
		matrix = nullText(string(raw))
	}
	url, generator := in.url, in.generatorID
	if kindOf(j) == ci.KindBringup {
		url, generator = "", "" // it clones nothing, and no generator gave it
	}
	return []any{j.ID, in.runID, position, ci.CutName(j.Name), ci.CutName(j.BaseName), string(ci.JobPending), selector, string(labels), j.Pick,
		cmp.Or(string(j.Config), "{}"), string(contexts), url, in.ref, in.sha, j.TimeoutMs, born.satisfied, in.now, born.reason, ready,
		matrix, j.VariantKind, j.VariantLabel, j.FanoutIndex, j.FanoutTotal, j.WaveGated, j.MaxParallel, j.FailFast, j.GraceMs, string(kindOf(j)), j.Deferred,
		nullText(in.ids[j.Target]), nullText(j.Group), nullText(generator), nullText(string(j.DynamicSource)), approval, nullText(j.BringsUp), slotGroup(j)}, nil
}

// slotGroup is whose slots a job takes, where a context of its limits how many jobs go on.
func slotGroup(j plan.Job) sql.NullString {
	if len(j.Contexts) == 0 {
		return sql.NullString{}
	}
	return nullText(ci.CutName(cmp.Or(j.Concurrency, j.Contexts[0])))
}

// intern stores the selectors of jobs. It does so in one order for all runs: two that bring the same new ones would wait
// for each other otherwise.
func (in *insertion) intern(ctx context.Context, tx *store.Tx, jobs []plan.Job) (err error) {
	demanded := map[string]label.Selector{}
	for _, j := range jobs {
		demanded[j.Selector.Canonical()] = j.Selector
	}
	for _, text := range slices.Sorted(maps.Keys(demanded)) {
		id, known := in.interned.Get(text)
		if !known {
			if id, err = queue.Intern(ctx, tx, demanded[text]); err != nil {
				return err
			}
			tx.After(func() { in.interned.Add(text, id) })
		}
		in.selectors[text] = id
	}
	return nil
}

// edges writes needs in order, the first at position. They name jobs that exist by then.
func (in *insertion) edges(ctx context.Context, tx *store.Tx, edges []plan.Edge, position int) error {
	rows := make([][]any, len(edges))
	for i, edge := range edges {
		runOn, err := json.Marshal(edge.RunOn)
		if err != nil {
			return err
		}
		rows[i] = []any{in.runID, in.ids[edge.Job], in.ids[edge.Upstream], position + i, string(runOn), edge.ViaGroup}
	}
	if err := store.InsertAll(ctx, tx, insertNeeds, 6, "ON CONFLICT (job_id, upstream_id) DO NOTHING", rows); err != nil {
		return fmt.Errorf("insert needs of run %s: %w", in.runID, err)
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

// insertJobs takes the values of insertion.row.
var insertJobs = mostlyInto("execution_jobs", `job_id, run_id, position, job_name, base_job_name, status, selector_id, runs_on_labels, pick,
    job_config, contexts, repo_url, ref, sha, timeout_ms, needs_satisfied, created_at, reason, ready_at`,
	`matrix_values, variant_kind, variant_label, fanout_index, fanout_total, wave_gated, wave_max_parallel, wave_fail_fast, grace_ms,
    kind, deferred, target_id, group_name, generator_id, dynamic_source, approval, brings_up, slot_group`,
	unsetText, "", "", 0, 0, false, 0, false, int64(0),
	string(ci.KindStandard), false, unsetText, unsetText, unsetText, unsetText, unsetText, unsetText, unsetText)

var unsetText sql.NullString

const insertNeeds = `INSERT INTO execution_job_needs (run_id, job_id, upstream_id, position, run_on, via_group) VALUES`
