package report

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/kit/collate"
	"kici/internal/server/store"
)

// Explain says of every job of a run what exactly it waits for, or by what and why it ended. Why something ended is what
// was stored when it did. Jobs of other routing keys than the scope are not named; "" names all. now is when somebody asks,
// epoch milliseconds.
func Explain(ctx context.Context, q store.Querier, runID, scope string, now int64) (adminwire.Explanation, error) {
	run, _, err := RunOf(ctx, q, runID)
	if err != nil {
		return adminwire.Explanation{}, err
	}
	x := explainer{runID: runID, workflow: run.WorkflowName, named: map[string][]int{}}
	if x.jobs, err = Jobs(ctx, q, runID, true); err != nil {
		return adminwire.Explanation{}, err
	}
	for i, j := range x.jobs {
		x.named[j.JobName] = append(x.named[j.JobName], i)
	}
	x.waves = wavesOf(x.jobs)
	if x.queued, err = queuedOf(ctx, q, runID); err != nil {
		return adminwire.Explanation{}, err
	}
	if x.view, err = newFleetView(ctx, q, scope, now); err != nil {
		return adminwire.Explanation{}, err
	}
	if x.cancel, err = cancelOf(ctx, q, runID); err != nil {
		return adminwire.Explanation{}, err
	}
	if x.holds, err = pendingHolds(ctx, q, runID); err != nil {
		return adminwire.Explanation{}, err
	}
	if x.expired, err = expiredHolds(ctx, q, runID, x.jobs); err != nil {
		return adminwire.Explanation{}, err
	}
	if x.slots, err = slotsOf(ctx, q, runID); err != nil {
		return adminwire.Explanation{}, err
	}
	if x.contextSlots, err = contextSlotsOf(ctx, q, runID, scope); err != nil {
		return adminwire.Explanation{}, err
	}
	if x.bringUps, err = bringUpsOf(ctx, q, runID); err != nil {
		return adminwire.Explanation{}, err
	}
	if run.Reason != nil {
		why := whole(*run.Reason)
		run.Reason = &why
	}
	out := adminwire.Explanation{RunID: runID, WorkflowName: run.WorkflowName, Status: run.Status, Reason: run.Reason,
		CancelledBy: run.CancelledBy, Jobs: make([]adminwire.ExplainedJob, len(x.jobs))}
	if out.CancelledByName, err = tokenName(ctx, q, run.CancelledBy); err != nil {
		return adminwire.Explanation{}, err
	}
	for i, j := range x.jobs {
		out.Jobs[i] = x.explain(j)
	}
	return out, nil
}

// queuedOf reads the queue rows of a run, by job.
func queuedOf(ctx context.Context, q store.Querier, runID string) (map[string]waiting, error) {
	rows, err := readWaiting(ctx, q, selectQueue+" WHERE q.run_id = $1", runID)
	if err != nil {
		return nil, err
	}
	out := map[string]waiting{}
	for _, w := range rows {
		out[w.entry.ID] = w
	}
	return out, nil
}

// cancelWish is the wish that a run ends.
type cancelWish struct {
	at     int64 // 0 when nobody asked
	forced bool
}

func cancelOf(ctx context.Context, q store.Querier, runID string) (cancelWish, error) {
	var w cancelWish
	var at sql.NullInt64
	err := q.QueryRowContext(ctx, "SELECT cancel_requested_at, cancel_forced FROM execution_runs WHERE run_id = $1", runID).Scan(&at, &w.forced)
	if err != nil {
		return w, fmt.Errorf("read cancel of run %s: %w", runID, err)
	}
	w.at = at.Int64
	return w, nil
}

// explainer is all that the jobs of one run are judged by.
type explainer struct {
	jobs   []adminwire.Job
	named  map[string][]int // places of jobs, by name
	waves  map[string]*wave
	queued map[string]waiting
	view   fleetView
	cancel cancelWish
	holds  []Hold
	// expired are the holds about which nobody decided in time, where a job ended for one.
	expired []Hold
	slots   slots
	// contextSlots are those that holds of the run wait for, by the hold's id.
	contextSlots map[string]*contextSlots
	runID        string
	// workflow is the name of the run's, which names of jobs that work for others hold.
	workflow string
	// bringUps are the hosts on which jobs of the run start agents, by the names of those jobs.
	bringUps map[string]string
}

func bringUpsOf(ctx context.Context, q store.Querier, runID string) (map[string]string, error) {
	rows, err := q.QueryContext(ctx, "SELECT job_name, variant_label FROM execution_jobs WHERE run_id = $1 AND brings_up IS NOT NULL", runID)
	if err != nil {
		return nil, fmt.Errorf("list bring-ups of run %s: %w", runID, err)
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var name, host string
		if err := rows.Scan(&name, &host); err != nil {
			return nil, err
		}
		out[name] = host
	}
	return out, rows.Err()
}

func (x explainer) explain(j adminwire.Job) adminwire.ExplainedJob {
	e := adminwire.ExplainedJob{JobID: j.JobID, JobName: j.JobName, Status: j.Status, Since: j.CreatedAt}
	w, inQueue := x.queued[j.JobID]
	open, holds := x.openNeeds(j), x.holdsOf(j)
	for _, h := range holds {
		e.Holds = append(e.Holds, h.HeldRun)
	}
	switch {
	case j.Status.Terminal():
		e.Reason, e.Since, e.Steps = x.ended(j), j.CompletedAt, unwell(j.Steps)
	case j.Status == ci.JobCancelling && inQueue:
		e.Reason, e.Since = x.cancelling(j), adminwire.At(x.cancel.at)
	case x.slots.waiting[j.JobID] && w.entry.Status != ci.QueueRecovering: // else it waits for its agent first
		e.Reason = x.slots.reason(x.runID, x.view.clock)
	case inQueue && w.entry.Status == ci.QueueDispatched && len(holds) > 0: // of one of its steps
		e.Reason, e.Since, e.Until = held(holds[0]), holds[0].CreatedAt, holds[0].ExpiresAt
	case inQueue:
		e.Reason = x.view.reason(w)
		e.Since, e.Until = times(w)
		if w.entry.Status == ci.QueuePending {
			e.Agents = x.view.nearest(w.selector, adminwire.MaxCandidates)
		}
	case len(open) > 0:
		e.Reason = needs(open)
	case len(holds) > 0:
		e.Reason, e.Since, e.Until = held(holds[0]), holds[0].CreatedAt, holds[0].ExpiresAt
		if s := x.contextSlots[holds[0].ID]; s != nil {
			e.Reason = s.add(e.Reason, holds[0].ID)
		}
	case heldByWave(j):
		e.Reason = x.waves[j.BaseJobName].place(j)
	case j.Reason != nil:
		e.Reason = x.stored(j)
	default:
		e.Reason = ci.NewReason(reasonUnknown, "waits, and no reason is stored", nil)
	}
	return e
}

// holdsOf are the open holds on a job: its own, those of its steps, and for a job that needs nothing more the workflow's.
func (x explainer) holdsOf(j adminwire.Job) []Hold {
	var out []Hold
	for _, h := range x.holds {
		if h.JobID != nil && *h.JobID == j.JobID || h.HoldScope == ci.HoldWorkflow && len(x.openNeeds(j)) == 0 && !j.Status.Terminal() {
			out = append(out, h)
		}
	}
	return out
}

// times are when a row came to where it stands, and when that ends by itself.
func times(w waiting) (since, until adminwire.Time) {
	switch w.entry.Status {
	case ci.QueuePending:
		return w.entry.CreatedAt, w.entry.ExpiresAt
	case ci.QueueRecovering:
		return adminwire.Time{}, adminwire.At(w.recoverUntil)
	}
	if w.started {
		return adminwire.At(w.begun()), adminwire.Time{}
	}
	return adminwire.At(w.claimed), adminwire.At(w.ackUntil)
}

// whole is a stored reason whose text says whom it is about, where its details alone do.
func whole(why ci.Reason) ci.Reason {
	var about struct{ By, Agent string }
	_ = json.Unmarshal(why.Details, &about) // details that are something else say nothing of it
	switch {
	case why.Code == ci.ReasonSuperseded && about.By != "":
		why.Message = ci.CutText(why.Message + ": run " + about.By)
	case (why.Code == ci.ReasonStale || why.Code == ci.ReasonAgentLost) && about.Agent != "":
		why.Message = ci.CutText(why.Message + ": agent " + about.Agent)
	}
	return why
}

// unwell are the steps that did not end well. A job that was skipped or cancelled before them has none.
func unwell(steps []adminwire.Step) []adminwire.ExplainedStep {
	var out []adminwire.ExplainedStep
	for _, s := range steps {
		if s.Status == ci.StepFailed || s.Status == ci.StepCancelled {
			out = append(out, adminwire.ExplainedStep{StepIndex: s.StepIndex, StepName: s.StepName, Status: s.Status,
				ExitCode: s.ExitCode, ErrorMessage: s.ErrorMessage})
		}
	}
	return out
}

// cancelling names the agent that has been asked to stop a job and has not said that it did.
func (x explainer) cancelling(j adminwire.Job) ci.Reason {
	agent := ""
	if a := x.queued[j.JobID].entry.AgentID; a != nil {
		agent = *a
	}
	how := "to stop it"
	if x.cancel.forced {
		how = "to kill it"
	}
	why := "cancelled"
	code := ci.ReasonCancelled
	if j.Reason != nil {
		code, why = j.Reason.Code, j.Reason.Message
	}
	return ci.NewReason(code, fmt.Sprintf("%s; agent %s was asked %s%s and has not confirmed", why, agent, how, x.view.tell(" at ", adminwire.At(x.cancel.at))),
		map[string]any{"agent": agent, "askedAt": adminwire.At(x.cancel.at), "forced": x.cancel.forced})
}

// openNeed is a need that has not been met yet.
type openNeed struct {
	Job    string         `json:"job"`
	Status ci.JobStatus   `json:"status"`
	RunOn  []ci.JobStatus `json:"runOn"`
	Host   string         `json:"host,omitempty"` // on which the job starts an agent
}

func (n openNeed) String() string {
	if n.Host != "" {
		return fmt.Sprintf("host %s to be brought up by job %s (%s)", n.Host, n.Job, n.Status)
	}
	return fmt.Sprintf("%s (%s)", n.Job, n.Status)
}

// openNeeds are the needs of a job that have not ended.
func (x explainer) openNeeds(j adminwire.Job) []openNeed {
	var open []openNeed
	for _, need := range j.Needs {
		for _, i := range x.named[need.UpstreamName] {
			if up := x.jobs[i]; !up.Status.Terminal() {
				open = append(open, openNeed{up.JobName, up.Status, need.RunOn, x.bringUps[up.JobName]})
			}
		}
	}
	return open
}

func needs(open []openNeed) ci.Reason {
	shown := open[:min(len(open), ci.MaxListEntries)]
	texts := make([]string, len(shown))
	for i, n := range shown {
		texts[i] = n.String()
	}
	message := "waits for " + strings.Join(texts, ", ")
	if more := len(open) - len(shown); more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	return ci.NewReason(ci.ReasonNeeds, message, map[string]any{"open": shown})
}

// stored is the stored reason of a job, with the state of the init job that works for it, if it waits for one.
func (x explainer) stored(j adminwire.Job) ci.Reason {
	if j.Reason.Code != ci.ReasonInit {
		return *j.Reason
	}
	name := ci.CutName(ci.InitJobName(x.workflow, j.BaseJobName))
	for _, helper := range x.jobs {
		if helper.JobName == name {
			return ci.NewReason(ci.ReasonInit, fmt.Sprintf("%s: job %s (%s)", j.Reason.Message, name, helper.Status),
				map[string]any{"job": name, "status": helper.Status})
		}
	}
	return *j.Reason
}

// heldByWave tells whether a job waits only for its turn in a fan-out that runs a few children at a time.
func heldByWave(j adminwire.Job) bool {
	return j.Status == ci.JobPending && j.Reason != nil && j.Reason.Code == ci.ReasonWave
}

// wave is a fan-out that runs a few children at a time.
type wave struct {
	now  []string       // children that have the places
	line map[string]int // of those that wait, by id: how many get a place before
}

// wavesOf are the fan-outs of which a child waits for its turn, by base name. Places are given in the order of names, as the
// engine does.
func wavesOf(jobs []adminwire.Job) map[string]*wave {
	waves, waiting := map[string]*wave{}, map[string][]adminwire.Job{}
	for _, j := range jobs {
		if heldByWave(j) {
			waiting[j.BaseJobName] = append(waiting[j.BaseJobName], j)
		}
	}
	for base, line := range waiting {
		slices.SortFunc(line, func(a, b adminwire.Job) int { return collate.Compare(a.JobName, b.JobName) })
		waves[base] = &wave{now: []string{}, line: map[string]int{}}
		for i, j := range line {
			waves[base].line[j.JobID] = i
		}
	}
	for _, j := range jobs {
		if w := waves[j.BaseJobName]; w != nil && !j.Status.Terminal() && !heldByWave(j) {
			w.now = append(w.now, j.JobName)
		}
	}
	return waves
}

// place names the siblings that have the places now, and how many get one before this job.
func (w *wave) place(j adminwire.Job) ci.Reason {
	shown, ahead := w.now[:min(len(w.now), ci.MaxListEntries)], w.line[j.JobID]
	message := fmt.Sprintf("%s; now %s; %s before it", j.Reason.Message, strings.Join(shown, ", "), plural(ahead, "job"))
	return ci.NewReason(ci.ReasonWave, message, map[string]any{"now": shown, "ahead": ahead})
}
