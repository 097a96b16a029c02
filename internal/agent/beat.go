package agent

import (
	"context"
	"time"

	"kici/internal/agent/ledger"
	"kici/internal/agent/link"
	"kici/internal/core/wire"
)

const metricsEvery = 30 * time.Second

// beatLoop sends the signs of life and the metrics.
func (a *Agent) beatLoop(ctx context.Context, s *link.Session) error {
	beat, jobBeat := 30*time.Second, a.cfg.JobHeartbeat
	if s.Has(wire.FeatureFastBeat) {
		beat, jobBeat = 5*time.Second, min(jobBeat, 10*time.Second)
	}
	beats, jobBeats, metrics := time.NewTicker(beat), time.NewTicker(jobBeat), time.NewTicker(metricsEvery)
	defer beats.Stop()
	defer jobBeats.Stop()
	defer metrics.Stop()
	a.beatJob(s) // the server learns at once that the job has outlived the connection
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beats.C:
			a.ledger.Send(ledger.KeepNot, wire.Heartbeat{Timestamp: time.Now().UnixMilli()})
		case <-jobBeats.C:
			a.beatJob(s)
		case <-metrics.C:
			a.sendMetrics()
		}
	}
}

// beatJob sends the sign of life of the running job.
func (a *Agent) beatJob(s *link.Session) {
	a.mu.Lock()
	j := a.job
	a.mu.Unlock()
	if j == nil {
		return
	}
	m := wire.JobHeartbeat{RunID: j.Ref.Run, JobID: j.Ref.ID, Timestamp: time.Now().UnixMilli()}
	if s.Has(wire.FeatureFastBeat) {
		n := j.Progress()
		m.Progress = &n
	}
	a.ledger.Send(ledger.KeepNot, m)
}
