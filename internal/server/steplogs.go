package server

import (
	"context"
	"errors"
	"fmt"

	"kici/internal/server/logs"
	"kici/internal/server/logs/retention"
	"kici/internal/server/report"
)

// openLogs opens the logs of steps.
func (s *Server) openLogs(ctx context.Context) (err error) {
	s.logs, err = logs.Open(ctx, logs.Options{Root: s.node.path(logFolder), DB: s.db, MaxBytes: s.settings.MaxLogBytes, Segments: s.storage.logs, Log: s.log})
	if err != nil {
		return fmt.Errorf("open logs: %w", err)
	}
	return nil
}

// sweepLogs deletes logs whose time is up.
func (s *Server) sweepLogs(ctx context.Context) error {
	return s.logs.Sweep(ctx, retention.Policy{MaxAge: s.settings.LogMaxAge, RunMaxAge: s.settings.RunMaxAge,
		MaxTotal: s.settings.LogMaxTotal, Run: s.runState})
}

// flushLogs uploads what is left, as far as the time to stop allows.
func (s *Server) flushLogs(ctx context.Context) {
	if err := s.logs.Flush(ctx); err != nil {
		s.log.Warn("step logs not uploaded yet, the next start goes on with it", "err", err)
	}
}

// runState tells whether the logs of a run may go.
func (s *Server) runState(ctx context.Context, id string) (retention.RunState, error) {
	run, _, err := report.RunOf(ctx, s.db.Read(), id)
	switch {
	case errors.Is(err, report.ErrNotFound):
		return retention.RunUnknown, nil
	case err != nil:
		return retention.RunOpen, err
	case run.Status.Terminal():
		return retention.RunEnded, nil
	}
	return retention.RunOpen, nil
}

// exposeLogs registers what the logs count.
func (s *Server) exposeLogs() {
	for _, c := range []struct {
		name, help string
		of         func(logs.Stats) int64
	}{
		{"kici_orch_log_chunks_received_total", "Chunks of step logs stored.", func(l logs.Stats) int64 { return l.Chunks }},
		{"kici_orch_log_bytes_stored_total", "Bytes of step logs stored.", func(l logs.Stats) int64 { return l.Bytes }},
		{"kici_orch_log_append_failures_total", "Chunks of step logs that could not be stored.", func(l logs.Stats) int64 { return l.Failed }},
		{"kici_orch_log_segments_uploaded_total", "Segments of step logs that went to the object store.", func(l logs.Stats) int64 { return l.Uploaded }},
		{"kici_orch_log_upload_failures_total", "Segments of step logs that the object store did not take, at each attempt.", func(l logs.Stats) int64 { return l.Unsent }},
		{"kici_orch_log_expired_runs_total", "Runs whose step logs were deleted.", func(l logs.Stats) int64 { return l.ExpiredRuns }},
		{"kici_orch_log_expired_bytes_total", "Bytes of step logs deleted.", func(l logs.Stats) int64 { return l.ExpiredBytes }},
	} {
		s.metrics.CounterFunc(c.name, c.help, func() float64 { return float64(c.of(s.logs.Stats())) })
	}
	s.metrics.GaugeFunc("kici_orch_log_bytes_kept", "Bytes of all step logs, as the last sweep left them.", func() float64 { return float64(s.logs.Stats().KeptBytes) })
	s.metrics.GaugeFunc("kici_orch_log_uploads_owing", "Step logs of which something is still to be uploaded.", func() float64 { return float64(s.logs.Stats().Owing) })
}
