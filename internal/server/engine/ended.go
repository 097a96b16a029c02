package engine

import (
	"cmp"
	"context"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/store"
)

// Events takes note of what other workflows may wait for, in the transaction that makes it true. An error undoes the
// change. Jobs that only work for other jobs are never told of.
type Events interface {
	// Ended tells of jobs, and of their run where it ended with them.
	Ended(ctx context.Context, tx *store.Tx, from Source, jobs []EndedJob, run *EndedRun) error
	RunRepeated(ctx context.Context, tx *store.Tx, from Source, again Repetition) error
}

// Source is where a run comes from. It never changes.
type Source struct {
	RunID      string
	OrgID      string
	RoutingKey string
	Repo       string
	Workflow   string
	ChainDepth int  // of the event that started the run, 0 when none did
	Test       bool // the run tries something out
}

// EndedJob is a job at its end.
type EndedJob struct {
	ID         string
	Name       string
	Status     ci.JobStatus
	DurationMs int64                  // 0 when it never started
	Steps      []lifecycle.StepResult // as its agent reported them with the end
}

// EndedRun is a run at its end.
type EndedRun struct {
	Status     ci.RunStatus
	DurationMs int64
	Jobs       []lifecycle.Summary // in the order in which their author wrote them
}

// Repetition is how a run came to repeat another.
type Repetition struct {
	ParentRunID string
	SHA         string
	TriggeredBy string
}

// endings are the jobs that ended in one transaction.
type endings struct {
	jobs  []lifecycle.Job
	steps map[string][]lifecycle.StepResult // by job, of those that reported some
}

// reported notes what agents said of steps with the ends of their jobs.
func (n *endings) reported(o lifecycle.Outcome) {
	for _, c := range o.Jobs {
		if len(c.Steps) == 0 {
			continue
		}
		if n.steps == nil {
			n.steps = map[string][]lifecycle.StepResult{}
		}
		n.steps[c.JobID] = c.Steps
	}
}

// told is what is told of the jobs.
func (n endings) told(now int64) (jobs []EndedJob) {
	for _, j := range n.jobs {
		if j.Kind.Internal() {
			continue
		}
		ended := EndedJob{ID: j.ID, Name: j.Name, Status: j.Status, Steps: n.steps[j.ID]}
		if j.StartedAt != 0 {
			ended.DurationMs = now - j.StartedAt
		}
		jobs = append(jobs, ended)
	}
	return jobs
}

// endedRun is what is told of a run at its end.
func endedRun(run lifecycle.Run, jobs []lifecycle.Summary, now int64) *EndedRun {
	ended := EndedRun{Status: run.Status, DurationMs: now - cmp.Or(run.StartedAt, run.CreatedAt)}
	for _, j := range jobs {
		if !j.Kind.Internal() {
			ended.Jobs = append(ended.Jobs, j)
		}
	}
	return &ended
}

// announce tells of the ends of jobs, and of that of their run, which may be nil.
func (e *Engine) announce(ctx context.Context, tx *store.Tx, from Source, jobs []EndedJob, run *EndedRun) error {
	if e.events == nil || len(jobs) == 0 && run == nil {
		return nil
	}
	if err := e.events.Ended(ctx, tx, from, jobs, run); err != nil {
		return fmt.Errorf("tell of what ended in run %s: %w", from.RunID, err)
	}
	return nil
}

// announceRepetition tells that a new run repeats another.
func (e *Engine) announceRepetition(ctx context.Context, tx *store.Tx, r Registration) error {
	if e.events == nil || r.ParentRunID == "" {
		return nil
	}
	err := e.events.RunRepeated(ctx, tx, r.source(), Repetition{ParentRunID: r.ParentRunID, SHA: r.SHA, TriggeredBy: r.TriggeredBy})
	if err != nil {
		return fmt.Errorf("tell of the repetition of run %s: %w", r.ParentRunID, err)
	}
	return nil
}

// stillborn ends a new run of which no job can be made.
func (e *Engine) stillborn(ctx context.Context, tx *store.Tx, r Registration, run lifecycle.Run, why ci.InitFailure, now int64) error {
	o := lifecycle.Stillborn(why, now)
	if err := e.apply(ctx, tx, run, o); err != nil {
		return err
	}
	run.Status = o.Run.Status
	return e.announce(ctx, tx, r.source(), nil, endedRun(run, nil, now))
}

// source is what the row of the run will say.
func (r Registration) source() Source {
	return Source{RunID: r.RunID, OrgID: r.OrgID, RoutingKey: r.RoutingKey, Repo: r.Repo, Workflow: ci.CutName(r.Plan.Workflow),
		ChainDepth: r.ChainDepth}
}
