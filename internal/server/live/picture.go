package live

import (
	"reflect"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// picture is a run with its jobs and their steps as they were read at one moment.
type picture struct {
	run  adminwire.RunDetail
	jobs []adminwire.Job
}

// stepKey names a step of a run.
type stepKey struct {
	job  string
	step int
}

// changes are the messages that lead from one picture to the next. lines gives the messages with what a step, or the job
// itself, has written, which come before its end. The second result is false when the one does not lead to the other, because a job is
// no longer there: then only a snapshot tells what there is.
//
// The order is the one in which things happen: a job begins before its steps do and ends after them, the run begins
// before its jobs and ends after them.
func changes(old, new picture, lines func(adminwire.Job, adminwire.Step) []adminwire.Observed) ([]adminwire.Observed, bool) {
	before := map[string]adminwire.Job{}
	for _, j := range old.jobs {
		before[j.JobID] = j
	}
	var out []adminwire.Observed
	runChanged := !reflect.DeepEqual(old.run, new.run)
	if runChanged && !new.run.Status.Terminal() {
		out = append(out, runMessage(new.run))
	}
	for _, j := range new.jobs {
		out = append(out, jobChanges(before[j.JobID], j, lines)...)
		delete(before, j.JobID)
	}
	if runChanged && new.run.Status.Terminal() {
		out = append(out, runMessage(new.run), completeMessage(new))
	}
	return out, len(before) == 0
}

func jobChanges(old, new adminwire.Job, lines func(adminwire.Job, adminwire.Step) []adminwire.Observed) []adminwire.Observed {
	var own, steps []adminwire.Observed
	if !reflect.DeepEqual(bare(old), bare(new)) {
		own = append(own, jobMessage(new))
	}
	steps = append(steps, lines(new, new.OwnLog())...)
	before := map[int]adminwire.Step{}
	for _, s := range old.Steps {
		before[s.StepIndex] = s
	}
	for _, s := range new.Steps {
		was, known := before[s.StepIndex]
		changed := !known || !reflect.DeepEqual(was, s)
		if changed && !s.Status.Terminal() {
			steps = append(steps, stepMessage(new, s))
		}
		steps = append(steps, lines(new, s)...)
		if changed && s.Status.Terminal() {
			steps = append(steps, stepMessage(new, s))
		}
	}
	if new.Status.Terminal() {
		return append(steps, own...)
	}
	return append(own, steps...)
}

// bare is a job without its steps, which have messages of their own.
func bare(j adminwire.Job) adminwire.Job {
	j.Steps = nil
	return j
}

func runMessage(run adminwire.RunDetail) adminwire.Observed {
	return adminwire.Observed{Type: adminwire.ObserveStatus, RunID: run.RunID, Status: string(run.Status), DurationMs: run.DurationMs,
		Timestamp: latest(run.CompletedAt, run.StartedAt, run.CreatedAt), Run: &run}
}

func jobMessage(j adminwire.Job) adminwire.Observed {
	j = bare(j)
	return adminwire.Observed{Type: adminwire.ObserveStatus, JobID: j.JobID, JobName: j.JobName, Status: string(j.Status),
		DurationMs: j.DurationMs, Timestamp: latest(j.CompletedAt, j.StartedAt, j.DispatchedAt, j.CreatedAt), Job: &j}
}

func stepMessage(j adminwire.Job, s adminwire.Step) adminwire.Observed {
	return adminwire.Observed{Type: adminwire.ObserveStep, JobID: j.JobID, JobName: j.JobName, StepIndex: &s.StepIndex, StepName: s.StepName,
		State: s.Status, DurationMs: s.DurationMs, Timestamp: latest(s.CompletedAt, s.StartedAt, j.StartedAt), Step: &s}
}

func completeMessage(p picture) adminwire.Observed {
	sum := adminwire.RunSummary{Jobs: len(p.jobs), ByStatus: map[ci.JobStatus]int{}, DurationMs: p.run.DurationMs}
	for _, j := range p.jobs {
		sum.ByStatus[j.Status]++
	}
	return adminwire.Observed{Type: adminwire.ObserveComplete, RunID: p.run.RunID, Status: string(p.run.Status),
		DurationMs: p.run.DurationMs, Timestamp: p.run.CompletedAt, Summary: &sum}
}

// latest is the first of the times that is set.
func latest(times ...adminwire.Time) adminwire.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return adminwire.Time{}
}
