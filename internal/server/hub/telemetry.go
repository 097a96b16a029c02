package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"kici/internal/core/wire"
	"kici/internal/kit/service"
	"kici/internal/server/store"
	"kici/internal/server/timeline"
)

// What agents tell beside their jobs' states, moments and surroundings, is for people who look back. It waits a moment
// for more of its kind, so that the handful of such frames of every job costs one transaction for all jobs of that
// moment, and no frame that a run depends on waits for one of them. A killed server loses that moment of it.
const (
	telemetryDelay = 100 * time.Millisecond
	telemetryBatch = 256  // so many do not wait any longer
	telemetryLimit = 8192 // beyond it they are dropped, counted in the log: the store takes nothing at present
)

// surroundings are those of one job.
type surroundings struct {
	runID, jobID string
	at           int64
	env          wire.Environment
}

// telemetry collects what agents tell until it is stored.
type telemetry struct {
	poke service.Poke

	mu      sync.Mutex
	events  []timeline.Event
	jobs    []surroundings
	dropped int
	failed  int  // turns in a row
	waiting bool // a timer will wake the loop
}

func newTelemetry() *telemetry { return &telemetry{poke: service.NewPoke()} }

// add takes what fits and sees that it is stored soon.
func (t *telemetry) add(e *timeline.Event, s *surroundings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := len(t.events) + len(t.jobs); {
	case n >= telemetryLimit:
		t.dropped++
		return
	case n+1 >= telemetryBatch:
		t.poke.Wake()
	case !t.waiting:
		t.waiting = true
		time.AfterFunc(telemetryDelay, t.poke.Wake)
	}
	if e != nil {
		t.events = append(t.events, *e)
	}
	if s != nil {
		t.jobs = append(t.jobs, *s)
	}
}

func (t *telemetry) take() (events []timeline.Event, jobs []surroundings, dropped int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	events, jobs, dropped = t.events, t.jobs, t.dropped
	t.events, t.jobs, t.dropped, t.waiting = nil, nil, 0, false
	return events, jobs, dropped
}

// maxFailures is how many turns in a row keep what could not be stored. Then it goes, since it may be the reason.
const maxFailures = 5

// settle keeps what could not be stored, before what has come since, unless that was tried too often.
func (t *telemetry) settle(events []timeline.Event, jobs []surroundings, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.failed = 0
		return
	}
	if t.failed++; t.failed > maxFailures {
		t.failed, t.dropped = 0, t.dropped+len(events)+len(jobs)
		return
	}
	t.events, t.jobs = append(events, t.events...), append(jobs, t.jobs...)
}

// storeTelemetry writes what has been collected, in one transaction.
func (h *Hub) storeTelemetry(ctx context.Context) error {
	events, jobs, dropped := h.telemetry.take()
	if dropped > 0 {
		h.Log.Warn("moments of runs dropped, since the store did not take them", "count", dropped)
	}
	if len(events) == 0 && len(jobs) == 0 {
		return nil
	}
	err := h.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := timeline.Append(ctx, tx, events...); err != nil {
			return err
		}
		for _, s := range jobs {
			err := timeline.Context(ctx, tx, s.runID, s.jobID, s.at, s.env)
			if errors.Is(err, timeline.ErrTooLarge) {
				h.Log.Debug("context of a job dropped", "job", s.jobID, "err", err)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	h.telemetry.settle(events, jobs, err)
	return err
}
