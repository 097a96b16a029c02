package agent

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/wire"
)

// dispatched answers a dispatch with exactly one frame and starts the job when it takes it.
func (a *Agent) dispatched(d wire.JobDispatch) {
	ref := jobRef{run: d.RunID, job: d.JobID}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.job != nil && a.job.ref.job == ref.job, slices.ContainsFunc(a.ledger.openJobs(), func(o jobRef) bool { return o.job == ref.job }):
		// The first answer was lost, or the server has not heard of the end yet. The job is not started twice.
		a.post(wire.JobAck{MessageID: newID(), RunID: d.RunID, JobID: d.JobID, Timestamp: now()}, entry{keep: keepAcked, job: ref})
	case a.draining:
		a.rejectLocked(d, wire.RejectDraining)
	case a.job != nil:
		a.rejectLocked(d, wire.RejectBusy)
	default:
		a.stopIdleLocked()
		a.log.Info("job accepted", "run", d.RunID, "job", d.JobID, "request", d.RequestID)
		// The answer goes out before any work: a slow clone must not use up the time for it.
		fence := make(chan struct{})
		a.post(wire.JobAck{MessageID: newID(), RunID: d.RunID, JobID: d.JobID, Timestamp: now()},
			entry{keep: keepAcked, job: ref, settled: fence})
		if a.session == nil || !slices.Contains(a.session.ack.Features, wire.FeatureStartFence) {
			fence = nil
		}
		j := newJob(a, d, fence)
		a.job, a.last = j, j
		a.metrics.active.Add(1)
		a.closing.Go(j.run)
	}
}

func (a *Agent) rejectLocked(d wire.JobDispatch, reason string) {
	a.log.Info("job rejected", "run", d.RunID, "job", d.JobID, "reason", reason)
	a.post(wire.JobReject{MessageID: newID(), RunID: d.RunID, JobID: d.JobID, Reason: reason, Timestamp: now()}, entry{keep: keepWritten})
	a.postStatusLocked()
}

// cancelled ends a job on the server's order. A job that is not known here is no error.
func (a *Agent) cancelled(c wire.JobCancel) {
	ref := jobRef{run: c.RunID, job: c.JobID}
	a.mu.Lock()
	j := a.job
	a.mu.Unlock()
	if c.Reason == wire.ReasonNotAssigned {
		// The server has given the job to somebody else or ended it: it takes no more reports, and may not confirm
		// those that are on their way.
		if j != nil && j.ref == ref {
			j.abandon(errNotAssigned)
		}
		a.ledger.release(ref)
		return
	}
	if j != nil && j.ref == ref {
		a.log.Info("job is being cancelled", "run", c.RunID, "job", c.JobID, "reason", c.Reason, "force", c.Force)
		j.cancel(c.Force, time.Duration(c.GraceMs)*time.Millisecond)
	}
}

// finished frees the agent and reports the end, in one step: once the server knows of the end it may send the next job.
func (a *Agent) finished(j *job, report func()) {
	a.mu.Lock()
	a.job = nil
	report()
	a.startIdleLocked(false)
	draining := a.draining
	reboot := a.reboot
	a.reboot = false
	a.postMetricsLocked()
	a.postStatusLocked()
	next := a.reserveSpareLocked()
	a.mu.Unlock()
	if next != nil {
		a.closing.Go(func() { a.runSpare(next) })
	}
	if reboot {
		a.rebootHost()
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
	for _, ref := range a.ledger.openJobs() {
		jobs = append(jobs, wire.InFlightJob{JobID: ref.job, RunID: ref.run})
	}
	if j == nil {
		return jobs
	}
	running := wire.InFlightJob{JobID: j.ref.job, RunID: j.ref.run}
	if !slices.Contains(jobs, running) { // it may have ended just now
		jobs = append(jobs, running)
	}
	return jobs
}

// post puts a frame into the ledger. It reports whether it was taken, which fails for log chunks alone.
func (a *Agent) post(m wire.Message, e entry) bool {
	raw, err := wire.Encode(m)
	if err != nil {
		a.log.Error("frame cannot be encoded", "err", err)
		return false
	}
	e.raw = raw
	e.id = messageID(m)
	return a.ledger.add(&e)
}

func (a *Agent) send(k keep, m wire.Message) { a.post(m, entry{keep: k}) }

// messageID is the id by which the server acknowledges a frame or answers it.
func messageID(m wire.Message) string {
	switch m := m.(type) {
	case wire.JobAck:
		return m.MessageID
	case wire.JobStatus:
		return m.MessageID
	case wire.StepStatus:
		return m.MessageID
	case wire.LogChunk:
		return m.MessageID
	case wire.ConcurrencyReport:
		return m.MessageID
	case wire.ApprovalRequest:
		return m.MessageID
	case wire.CacheUploadRequest:
		return m.MessageID
	case wire.ArtifactUploadRequest:
		return m.MessageID
	case wire.ArtifactCommitRequest:
		return m.MessageID
	}
	return ""
}

func newID() string { return uuid.NewString() }

// now is the time as frames carry it: milliseconds since 1970.
func now() int64 { return time.Now().UnixMilli() }
