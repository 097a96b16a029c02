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
	cancelled := false
	for _, j := range jobs {
		switch {
		case !j.Status.Terminal():
			return "", nil, false
		case j.Status.FailsRun():
			failed = append(failed, j.Name)
		case j.Status == ci.JobCancelled:
			cancelled = true
		}
	}
	switch {
	case len(jobs) == 0:
		return "", nil, false
	case drift && checkMode == checkFailOnDrift:
		return ci.RunFailed, reasonOf("drift", driftReason, nil), true
	case len(failed) > 0:
		return ci.RunFailed, failedJobs(failed), true
	case cancelled:
		return ci.RunCancelled, nil, true
	}
	return ci.RunSuccess, nil, true
}

func failedJobs(names []string) *ci.Reason {
	listed := names[:min(len(names), ci.MaxListEntries)]
	return reasonOf(ci.ReasonFailedJobs, "Failed jobs: "+strings.Join(names, ", "), map[string]any{"jobs": listed, "count": len(names)})
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
		c.Reason = reasonOf(ci.ReasonCancelled, "jobs were cancelled", nil)
	}
	return Outcome{Run: c}
}
