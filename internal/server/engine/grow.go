package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

// helped takes the success of a job that worked for others: its result becomes jobs of the run, or the failure of the
// report. Whatever joins the run does so in the transaction that ends the job, so that no moment sees the run without
// both. Nil outcomes are nothing to add.
func (e *Engine) helped(ctx context.Context, tx *store.Tx, job lifecycle.Job, data wire.JobData, r *lifecycle.Report) ([]lifecycle.Outcome, error) {
	if !missingResult(job.Kind, data) {
		grown, failure, err := e.grow(ctx, tx, job, data)
		if err != nil || failure == nil {
			return grown, err
		}
		r.InitFailure = failure
	} else {
		r.InitFailure = &ci.InitFailure{Scope: ci.ScopeJob, Category: categoryOf(job.Kind), JobName: ci.CutName(job.Name),
			Message: "the agent reported success without a result"}
	}
	r.Status, r.Error = ci.JobFailed, r.InitFailure.Message
	return nil, nil
}

// missingResult tells that a success resolves nothing.
func missingResult(kind ci.JobKind, data wire.JobData) bool {
	switch kind {
	case ci.KindInit:
		return !data.InitComplete || data.InitResult == nil
	case ci.KindGenerator:
		return !data.DynamicComplete || data.DynamicJobs == nil || string(data.DynamicJobs) == "null"
	case ci.KindBuild:
		return !data.BuildComplete
	}
	return false
}

func categoryOf(kind ci.JobKind) string {
	if kind == ci.KindBuild {
		return ci.InitBuildCoordination
	}
	return ci.InitDynamicEval
}

func (e *Engine) grow(ctx context.Context, tx *store.Tx, job lifecycle.Job, data wire.JobData) ([]lifecycle.Outcome, *ci.InitFailure, error) {
	if job.Kind == ci.KindBuild || job.Kind == ci.KindBringup {
		return nil, nil, nil // what they give lies elsewhere
	}
	g, err := e.loadGrowth(ctx, tx, job, e.clock.Millis())
	if err != nil {
		return nil, nil, err
	}
	g.early = e.early
	if job.Kind == ci.KindInit {
		return g.fill(ctx, tx, data.InitResult)
	}
	return g.generate(ctx, tx, data.DynamicJobs)
}

// growth is a run that jobs join.
type growth struct {
	*insertion
	job      lifecycle.Job // that gives them
	target   string        // of an init job: the id of the place that it fills
	in       plan.Input
	known    plan.Known
	position int64
	edgeEnd  int // first free position of a need
	// early asks the gates of a job that joins.
	early func(ctx context.Context, tx *store.Tx, jobID string, now int64) (*ci.Reason, *ci.InitFailure, error)
}

func (e *Engine) loadGrowth(ctx context.Context, tx *store.Tx, job lifecycle.Job, now int64) (*growth, error) {
	g := &growth{job: job, known: plan.Known{Bases: map[string][]string{}, Groups: map[string][]string{}}}
	var document, event string
	var target sql.NullString
	var c checkout
	var runID string
	err := tx.QueryRowContext(ctx, selectGrowth, job.ID).Scan(&runID, &document, &event, &target, &g.position, &c.url, &c.ref, &c.sha)
	if err != nil {
		return nil, fmt.Errorf("load what run of job %s was planned from: %w", job.ID, err)
	}
	g.insertion, g.target = e.newInsertion(runID, c, now), target.String
	if g.in, err = plan.Decode(json.RawMessage(document), json.RawMessage(event)); err != nil {
		return nil, err
	}
	members, err := fleet.Members(ctx, tx)
	if err != nil {
		return nil, err
	}
	g.in.Roster, g.in.Now = fleet.Roster(members), now
	if err := g.loadNames(ctx, tx); err != nil {
		return nil, err
	}
	return g, g.loadEdges(ctx, tx)
}

// refusal is why nothing joins the run. A result that the plan cannot take at all is one, too: it would be no better the next
// time that its agent sent it.
func (g *growth) refusal(failure *ci.InitFailure, err error) *ci.InitFailure {
	if failure != nil {
		return failure
	}
	return &ci.InitFailure{Scope: ci.ScopeJob, Category: categoryOf(g.job.Kind), JobName: ci.CutName(g.job.Name),
		Message: ci.CutText(fmt.Sprintf("the result cannot become jobs of the run: %v", err))}
}

// loadNames reads which jobs the run has. A generator stands for its group until it has made the group's jobs.
func (g *growth) loadNames(ctx context.Context, tx *store.Tx) error {
	rows, err := tx.QueryContext(ctx, selectNames, g.runID)
	if err != nil {
		return fmt.Errorf("load job names of run %s: %w", g.runID, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, name, base string
		var group sql.NullString
		var kind ci.JobKind
		var status ci.JobStatus
		if err := rows.Scan(&id, &name, &base, &group, &kind, &status); err != nil {
			return err
		}
		g.ids[name] = id
		g.known.Bases[base] = append(g.known.Bases[base], name)
		if group.Valid {
			members := g.known.Groups[group.String]
			if kind != ci.KindGenerator || status != ci.JobSuccess {
				members = append(members, name)
			}
			g.known.Groups[group.String] = members
		}
	}
	return rows.Err()
}

func (g *growth) loadEdges(ctx context.Context, tx *store.Tx) error {
	rows, err := tx.QueryContext(ctx, selectAllEdges, g.runID)
	if err != nil {
		return fmt.Errorf("load needs of run %s: %w", g.runID, err)
	}
	defer rows.Close()
	for rows.Next() {
		var edge plan.Edge
		var runOn string
		var position int
		if err := rows.Scan(&edge.Job, &edge.Upstream, &runOn, &edge.ViaGroup, &position); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(runOn), &edge.RunOn); err != nil {
			return fmt.Errorf("decode needs of run %s: %w", g.runID, err)
		}
		g.known.Edges = append(g.known.Edges, edge)
		g.edgeEnd = max(g.edgeEnd, position+1)
	}
	return rows.Err()
}

// fill completes the place of an init job's target: in its own row, or by children that take over its needs and are
// needed in its stead.
func (g *growth) fill(ctx context.Context, tx *store.Tx, result json.RawMessage) ([]lifecycle.Outcome, *ci.InitFailure, error) {
	place, err := loadJob(ctx, tx, g.target)
	if err != nil || place.Status.Terminal() {
		return nil, nil, err
	}
	x, failure, err := plan.Resolve(g.in, g.known, place.Name, result)
	if err != nil || failure != nil {
		return nil, g.refusal(failure, err), nil
	}
	if len(x.Jobs) == 1 && x.Jobs[0].ID == place.ID {
		if err := completePlace(ctx, tx, x.Jobs[0]); err != nil {
			return nil, nil, err
		}
		outcomes, failure, err := g.guard(ctx, tx, &place)
		if failure != nil {
			return []lifecycle.Outcome{lifecycle.CannotStart(place, *failure, g.now)}, nil, err
		}
		return append(outcomes, lifecycle.Completed(place)), nil, err
	}
	if err := g.replace(ctx, tx, place, x); err != nil {
		return nil, nil, err
	}
	outcomes, err := g.judge(ctx, tx, x.Jobs, nil)
	return outcomes, nil, err
}

func completePlace(ctx context.Context, tx *store.Tx, j plan.Job) error {
	contexts, err := json.Marshal(append([]string{}, j.Contexts...))
	if err != nil {
		return err
	}
	err = tx.Do(ctx, "UPDATE execution_jobs SET job_config = $2, contexts = $3, slot_group = $4 WHERE job_id = $1", j.ID, string(j.Config), string(contexts),
		slotGroup(j))
	if err != nil {
		return fmt.Errorf("complete job %s: %w", j.ID, err)
	}
	return nil
}

// replace puts children in the place of a job that was not made yet. What needs the place needs the children, and not the
// jobs that start agents for them.
func (g *growth) replace(ctx context.Context, tx *store.Tx, place lifecycle.Job, x plan.Expansion) error {
	if err := g.jobs(ctx, tx, x.Jobs, int64(place.Position), 1); err != nil {
		return err
	}
	for _, c := range x.Jobs {
		if c.Kind == ci.KindBringup {
			continue
		}
		for _, statement := range []string{copyNeeds, copyDependants} {
			if err := tx.Do(ctx, statement, place.ID, c.ID); err != nil {
				return fmt.Errorf("put job %s in the place of %s: %w", c.Name, place.Name, err)
			}
		}
	}
	for _, statement := range []string{
		"DELETE FROM execution_job_needs WHERE job_id = $1 OR upstream_id = $1",
		"DELETE FROM execution_jobs WHERE job_id = $1",
	} {
		if err := tx.Do(ctx, statement, place.ID); err != nil {
			return fmt.Errorf("remove the place of job %s: %w", place.Name, err)
		}
	}
	return g.edges(ctx, tx, x.Edges, g.edgeEnd)
}

// generate adds what a generator gave, in the place of its group.
func (g *growth) generate(ctx context.Context, tx *store.Tx, result json.RawMessage) ([]lifecycle.Outcome, *ci.InitFailure, error) {
	upstreams, err := upstreamsOf(ctx, tx, g.job.ID)
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := upstreams.snapshot()
	if err != nil {
		return nil, nil, err
	}
	x, failure, err := plan.Generate(g.in, g.known, plan.Generated{Generator: g.job.Name, Jobs: result, Snapshot: snapshot,
		Pinned: g.knows})
	if err != nil || failure != nil {
		return nil, g.refusal(failure, err), nil
	}
	g.generatorID = g.job.ID
	if err := g.jobs(ctx, tx, x.Jobs, g.position+1, 1); err != nil {
		return nil, nil, err
	}
	waiting, err := groupDependants(ctx, tx, g.job.ID)
	if err != nil {
		return nil, nil, err
	}
	if err := tx.Do(ctx, "DELETE FROM execution_job_needs WHERE upstream_id = $1 AND via_group", g.job.ID); err != nil {
		return nil, nil, fmt.Errorf("take generator %s out of its group: %w", g.job.Name, err)
	}
	if err := g.edges(ctx, tx, x.Edges, g.edgeEnd); err != nil {
		return nil, nil, err
	}
	broken, err := g.broken(ctx, tx, x.Failed)
	if err != nil {
		return nil, nil, err
	}
	for name := range x.Failed { // judged already
		waiting = slices.DeleteFunc(waiting, func(id string) bool { return id == g.ids[name] })
	}
	outcomes, err := g.judge(ctx, tx, x.Jobs, waiting)
	return append(broken, outcomes...), nil, err
}

// knows tells whether a text is the id of a host of the roster.
func (g *growth) knows(id string) bool {
	return slices.ContainsFunc(g.in.Roster, func(h label.RosterHost) bool { return h.AgentID == id })
}

// broken ends jobs that the run had already and that can no longer run.
func (g *growth) broken(ctx context.Context, tx *store.Tx, failed map[string]ci.InitFailure) (out []lifecycle.Outcome, err error) {
	for name, f := range failed {
		job, err := loadJob(ctx, tx, g.ids[name])
		if err != nil {
			return nil, err
		}
		out = append(out, lifecycle.CannotStart(job, f, g.now))
	}
	return out, nil
}

// judge decides the first state of new jobs, and anew that of jobs whose needs were drawn again. What a new job needs
// may have ended long ago.
func (g *growth) judge(ctx context.Context, tx *store.Tx, jobs []plan.Job, again []string) ([]lifecycle.Outcome, error) {
	var failed []lifecycle.Planned
	for _, j := range jobs {
		if j.InitFailure != nil {
			failed = append(failed, lifecycle.Planned{Job: plannedJob(j, g.now), InitFailure: j.InitFailure})
			continue
		}
		again = append(again, j.ID)
	}
	var outcomes []lifecycle.Outcome
	var waiting []lifecycle.Dependant
	for _, id := range again {
		d, err := loadDependant(ctx, tx, id)
		if err != nil {
			return nil, err
		}
		held, failure, err := g.guard(ctx, tx, &d.Job)
		switch {
		case err != nil:
			return nil, err
		case failure != nil:
			failed = append(failed, lifecycle.Planned{Job: d.Job, InitFailure: failure})
		default:
			outcomes, waiting = append(outcomes, held...), append(waiting, d)
		}
	}
	return append(outcomes, lifecycle.BornFailed(failed, g.now), lifecycle.Recompute(waiting, g.now)), nil
}

// guard asks the gates of a job that has just been made, unless they were asked when it was.
func (g *growth) guard(ctx context.Context, tx *store.Tx, job *lifecycle.Job) ([]lifecycle.Outcome, *ci.InitFailure, error) {
	if job.Holds > 0 {
		return nil, nil, nil
	}
	reloaded, err := loadJob(ctx, tx, job.ID) // its contexts may be known only now
	if err != nil || !reloaded.Guarded {
		return nil, nil, err
	}
	job.Guarded = true
	why, failure, err := g.early(ctx, tx, job.ID, g.now)
	if err != nil || failure != nil || why == nil {
		return nil, failure, err
	}
	job.Holds, job.HoldReason = job.Holds+1, why
	return []lifecycle.Outcome{{Jobs: []lifecycle.JobChange{{JobID: job.ID, Hold: 1}}}}, nil, nil
}

// loadDependant reads a job with all of its needs.
func loadDependant(ctx context.Context, tx *store.Tx, jobID string) (d lifecycle.Dependant, err error) {
	if d.Job, err = loadJob(ctx, tx, jobID); err != nil {
		return d, err
	}
	d.Edges, err = queryEdges(ctx, tx, jobID, selectNeeds, jobID)
	return d, err
}

func groupDependants(ctx context.Context, tx *store.Tx, generatorID string) ([]string, error) {
	return store.Texts(ctx, tx, "SELECT job_id FROM execution_job_needs WHERE upstream_id = $1 AND via_group ORDER BY position", generatorID)
}

// dropped finds the jobs of a job's generator that its agent no longer found, by their base names.
func dropped(ctx context.Context, tx *store.Tx, jobID string, names []string) ([]lifecycle.Job, error) {
	var out []lifecycle.Job
	for _, name := range names[:min(len(names), plan.MaxGenerated)] {
		found, err := store.Texts(ctx, tx, selectDropped, jobID, ci.CutName(name))
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			job, err := loadJob(ctx, tx, id)
			if err != nil {
				return nil, err
			}
			out = append(out, job)
		}
	}
	return out, nil
}

const (
	selectGrowth = `SELECT j.run_id, coalesce(r.plan_input, ''), coalesce(r.event, '{}'), j.target_id, j.position, j.repo_url, j.ref, j.sha
FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id WHERE j.job_id = $1`

	selectNames = `SELECT job_id, job_name, base_job_name, group_name, kind, status FROM execution_jobs WHERE run_id = $1 ORDER BY position`

	selectAllEdges = `SELECT j.job_name, u.job_name, n.run_on, n.via_group, n.position FROM execution_job_needs n
JOIN execution_jobs j ON j.job_id = n.job_id JOIN execution_jobs u ON u.job_id = n.upstream_id WHERE n.run_id = $1 ORDER BY n.position`

	selectNeeds = `SELECT u.job_name, u.status, n.run_on FROM execution_job_needs n JOIN execution_jobs u ON u.job_id = n.upstream_id
WHERE n.job_id = $1 ORDER BY n.position, u.position`

	copyNeeds = `INSERT INTO execution_job_needs (run_id, job_id, upstream_id, position, run_on, via_group)
SELECT run_id, $2, upstream_id, position, run_on, via_group FROM execution_job_needs WHERE job_id = $1`

	copyDependants = `INSERT INTO execution_job_needs (run_id, job_id, upstream_id, position, run_on, via_group)
SELECT run_id, job_id, $2, position, run_on, FALSE FROM execution_job_needs WHERE upstream_id = $1`

	selectDropped = `SELECT d.job_id FROM execution_jobs d JOIN execution_jobs j ON j.generator_id = d.generator_id
WHERE j.job_id = $1 AND d.base_job_name = $2 AND d.completed_at IS NULL ORDER BY d.position`
)
