package report

import (
	"context"
	"fmt"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/kit/collate"
	"kici/internal/server/store"
)

// Explain says of every job of a run what exactly it waits for, or by what and why it ended.
func Explain(ctx context.Context, q store.Querier, runID string) (adminwire.Explanation, error) {
	run, _, err := RunOf(ctx, q, runID)
	if err != nil {
		return adminwire.Explanation{}, err
	}
	jobs, err := Jobs(ctx, q, runID, false)
	if err != nil {
		return adminwire.Explanation{}, err
	}
	rows, err := readWaiting(ctx, q, selectQueue+" WHERE q.run_id = $1 ORDER BY q.created_at, q.position, q.id", runID)
	if err != nil {
		return adminwire.Explanation{}, err
	}
	view, err := newFleetView(ctx, q)
	if err != nil {
		return adminwire.Explanation{}, err
	}
	queued := map[string]waiting{}
	for _, w := range rows {
		queued[w.entry.ID] = w
	}
	status := map[string]ci.JobStatus{}
	for _, j := range jobs {
		status[j.JobName] = j.Status
	}
	out := adminwire.Explanation{RunID: runID, WorkflowName: run.WorkflowName, Status: run.Status, Reason: run.Reason, Jobs: []adminwire.ExplainedJob{}}
	for _, j := range jobs {
		e := adminwire.ExplainedJob{JobID: j.JobID, JobName: j.JobName, Status: j.Status}
		w, inQueue := queued[j.JobID]
		switch {
		case j.Status.Terminal():
			e.Reason = ended(j)
		case j.Status == ci.JobCancelling && j.Reason != nil:
			e.Reason = *j.Reason
		case inQueue:
			e.Reason, e.Agents = view.explain(w)
		case heldByWave(j):
			e.Reason = wavePlace(j, jobs)
		default:
			e.Reason = openNeeds(j, status)
		}
		out.Jobs = append(out.Jobs, e)
	}
	return out, nil
}

// ended is the stored reason of a job's end. Success has none to store.
func ended(j adminwire.Job) ci.Reason {
	if j.Reason != nil {
		return *j.Reason
	}
	return ci.NewReason(string(j.Status), "ended as "+string(j.Status), nil)
}

// openNeeds names the needs that have not ended, with their state.
func openNeeds(j adminwire.Job, status map[string]ci.JobStatus) ci.Reason {
	var open []string
	for _, need := range j.Needs {
		if s := status[need.UpstreamName]; !s.Terminal() {
			open = append(open, fmt.Sprintf("%s (%s)", need.UpstreamName, s))
		}
	}
	if len(open) == 0 && j.Reason != nil {
		return *j.Reason
	}
	return ci.NewReason(ci.ReasonNeeds, "waits for "+strings.Join(open, ", "), map[string]any{"open": open[:min(len(open), ci.MaxListEntries)]})
}

// heldByWave tells whether a job waits only for its turn in a fan-out that runs a few children at a time.
func heldByWave(j adminwire.Job) bool {
	return j.Status == ci.JobPending && j.Reason != nil && j.Reason.Code == ci.ReasonWave
}

// wavePlace names the siblings that have the places now, and how many get one before this job. Places are given in the
// order of names, as the engine does.
func wavePlace(j adminwire.Job, jobs []adminwire.Job) ci.Reason {
	before, now := 0, []string{}
	for _, s := range jobs {
		switch {
		case s.BaseJobName != j.BaseJobName || s.JobID == j.JobID || s.Status.Terminal():
		case !heldByWave(s):
			now = append(now, s.JobName)
		case collate.Compare(s.JobName, j.JobName) < 0:
			before++
		}
	}
	shown := now[:min(len(now), ci.MaxListEntries)]
	message := fmt.Sprintf("%s; now %s; %s before it", j.Reason.Message, strings.Join(shown, ", "), plural(before, "job"))
	return ci.NewReason(ci.ReasonWave, message, map[string]any{"now": shown, "ahead": before})
}
