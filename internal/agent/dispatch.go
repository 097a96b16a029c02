package agent

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"kici/internal/agent/job"
	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
)

// dispatched answers a dispatch with exactly one frame and starts the job when it takes it.
func (a *Agent) dispatched(d wire.JobDispatch) {
	ref := ledger.Job{Run: d.RunID, ID: d.JobID}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.job != nil && a.job.Ref.ID == ref.ID, slices.ContainsFunc(a.ledger.OpenJobs(), func(o ledger.Job) bool { return o.ID == ref.ID }):
		// The first answer was lost, or the server has not heard of the end yet. The job is not started twice.
		a.ledger.Post(wire.JobAck{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, Timestamp: time.Now().UnixMilli()}, ledger.Entry{Keep: ledger.KeepAcked, Job: ref})
	case a.draining, a.reboot != nil && a.reboot.due:
		a.rejectLocked(d, wire.RejectDraining)
	case a.job != nil:
		a.rejectLocked(d, wire.RejectBusy)
	default:
		a.stopIdleLocked()
		a.log.Info("job accepted", "run", d.RunID, "job", d.JobID, "request", d.RequestID)
		// The answer goes out before any work: a slow clone must not use up the time for it.
		fence := make(chan struct{})
		a.ledger.Post(wire.JobAck{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, Timestamp: time.Now().UnixMilli()},
			ledger.Entry{Keep: ledger.KeepAcked, Job: ref, Settled: fence})
		if a.session == nil || !a.session.Has(wire.FeatureStartFence) {
			fence = nil
		}
		j := job.New(a.workshop(), d, fence)
		a.job, a.last = j, j
		a.metrics.Active.Add(1)
		a.closing.Go(j.Run)
	}
}

func (a *Agent) rejectLocked(d wire.JobDispatch, reason string) {
	a.log.Info("job rejected", "run", d.RunID, "job", d.JobID, "reason", reason)
	a.ledger.Post(wire.JobReject{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, Reason: reason, Timestamp: time.Now().UnixMilli()}, ledger.Entry{Keep: ledger.KeepWritten})
	a.postStatusLocked()
}

// cancelled ends a job on the server's order. A job that is not known here is no error.
func (a *Agent) cancelled(c wire.JobCancel) {
	ref := ledger.Job{Run: c.RunID, ID: c.JobID}
	a.mu.Lock()
	j := a.job
	a.mu.Unlock()
	if c.Reason == wire.ReasonNotAssigned {
		// The server has given the job to somebody else or ended it: it takes no more reports, and may not confirm
		// those that are on their way.
		if j != nil && j.Ref == ref {
			j.Abandon(job.ErrNotAssigned)
		}
		a.ledger.Release(ref)
		return
	}
	if j != nil && j.Ref == ref {
		a.log.Info("job is being cancelled", "run", c.RunID, "job", c.JobID, "reason", c.Reason, "force", c.Force)
		j.Cancel(c.MessageID, c.Force, time.Duration(c.GraceMs)*time.Millisecond)
	}
}

// finished frees the agent and reports the end, in one step: once the server knows of the end it may send the next job.
func (a *Agent) finished(j *job.Job, report func()) {
	a.mu.Lock()
	a.job = nil
	report()
	a.startIdleLocked(false)
	draining := a.draining
	reboot := a.reboot != nil
	if reboot {
		a.reboot.due = true
	}
	a.postMetricsLocked()
	a.postStatusLocked()
	next := a.reserveSpareLocked()
	a.mu.Unlock()
	if next != nil {
		a.closing.Go(func() { a.runSpare(next) })
	}
	if reboot {
		a.closing.Go(a.rebootHost)
	}
	if draining {
		a.depart(nil)
	}
}

// inFlight lists the jobs that the server must take for this agent's.
func (a *Agent) inFlight() []wire.InFlightJob {
	a.mu.Lock()
	j := a.job
	a.mu.Unlock()
	var jobs []wire.InFlightJob
	for _, ref := range a.ledger.OpenJobs() {
		jobs = append(jobs, wire.InFlightJob{JobID: ref.ID, RunID: ref.Run})
	}
	if j == nil {
		return jobs
	}
	running := wire.InFlightJob{JobID: j.Ref.ID, RunID: j.Ref.Run}
	if !slices.Contains(jobs, running) { // it may have ended just now
		jobs = append(jobs, running)
	}
	return jobs
}
