package lifecycle

import (
	"slices"
	"strings"

	"kici/internal/core/ci"
)

// Summary is a job as the fold sees it.
type Summary struct {
	Name   string
	Status ci.JobStatus
	Kind   ci.JobKind
}

// driftReason is what people read when a run in check mode found something to change.
const driftReason = "Drift detected in check mode (--fail-on-drift)"

// checkFailOnDrift is the check mode in which drift fails the run.
const checkFailOnDrift = "check-fail-on-drift"

// Fold gives a run's status from its jobs, in registration order. It is independent of the order but for the names in
// the sentence. done is false while some job is open, or there is none.
func Fold(jobs []Summary, checkMode string, drift bool) (status ci.RunStatus, reason *ci.Reason, done bool) {
	var failed []string
	stopped := false
	for _, j := range jobs {
		switch {
		case !j.Status.Terminal():
			return "", nil, false
		case j.Status.FailsRun():
			failed = append(failed, j.Name)
		case j.Status == ci.JobCancelled:
			stopped = true
		}
	}
	switch {
	case len(jobs) == 0:
		return "", nil, false
	case drift && checkMode == checkFailOnDrift:
		return ci.RunFailed, reasonOf("drift", driftReason, nil), true
	case len(failed) > 0:
		return ci.RunFailed, naming(ci.ReasonFailedJobs, "Failed jobs: ", failed), true
	case stopped:
		return ci.RunCancelled, nil, true
	}
	return ci.RunSuccess, nil, true
}

// naming is a reason that names jobs.
func naming(code, what string, names []string) *ci.Reason {
	listed := names[:min(len(names), ci.MaxListEntries)]
	return reasonOf(code, what+strings.Join(names, ", "), map[string]any{"jobs": listed, "count": len(names)})
}

// specific lists reasons that say more than that jobs failed; they are kept.
var specific = []string{ci.ReasonWorkflowTimeout, ci.ReasonStale, ci.ReasonInitFailure, ci.ReasonQueueTimeout, ci.ReasonUnroutable}

// Settle ends a run whose last job has ended. A run that was cancelled keeps the reason of the wish.
func Settle(run Run, jobs []Summary, drift bool, now int64) Outcome {
	if run.Status.Terminal() {
		return Outcome{}
	}
	status, reason, done := Fold(jobs, run.CheckMode, drift)
	if !done {
		return Outcome{}
	}
	c := &RunChange{Status: status, CompletedAt: now}
	switch {
	case status == ci.RunSuccess:
		c.ClearReason = true
	case run.Cancel != nil && (status == ci.RunCancelled || slices.Contains(specific, run.Cancel.Reason.Code)):
		kept := run.Cancel.Reason
		c.Reason = &kept
	case run.Reason != nil && slices.Contains(specific, run.Reason.Code):
	case reason != nil:
		c.Reason = reason
	default:
		c.Reason = naming(ci.ReasonCancelled, "Cancelled jobs: ", cancelled(jobs))
	}
	return Outcome{Run: c}
}

func cancelled(jobs []Summary) (names []string) {
	for _, j := range jobs {
		if j.Status == ci.JobCancelled {
			names = append(names, j.Name)
		}
	}
	return names
}
