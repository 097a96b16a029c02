package adminapi

import (
	"context"
	"errors"
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/server/engine"
	"kici/internal/server/forge"
	"kici/internal/server/report"
	"kici/internal/server/timeline"
)

// clearBatch bounds how many runs of the queue are looked up at a time.
const clearBatch = 500

// listExecutions is the list of runs by the names of the columns, as it was before there was a better one.
func (a *API) listExecutions(r *http.Request) (answer, error) {
	f, err := a.runFilter(r)
	if err != nil {
		return answer{}, err
	}
	f.Offset, f.Limit = 0, limitOf(r, 50, 200)
	if key := r.URL.Query().Get("routingKey"); key != "" {
		if err := allow(r, key); err != nil {
			return answer{}, err
		}
		f.RoutingKey = key
	}
	runs, err := report.Executions(r.Context(), a.DB.Read(), f)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.ExecutionList{Runs: runs})
}

func (a *API) showExecution(r *http.Request) (answer, error) {
	id := r.PathValue("run")
	got, err := report.ExecutionOf(r.Context(), a.DB.Read(), id)
	if errors.Is(err, report.ErrNotFound) {
		return answer{}, a.noRun(r, id)
	}
	if err != nil {
		return answer{}, err
	}
	if err := allow(r, got.Run.RoutingKey); err != nil {
		return answer{}, err
	}
	return ok(got)
}

// clearQueue ends every run of which a job waits in the queue. A job alone cannot be taken out: the others of its run
// would wait for it for ever, or go on without it.
func (a *API) clearQueue(r *http.Request) (answer, error) {
	done := adminwire.Cleared{Cleared: true}
	for {
		before := done.Jobs
		runs, err := report.RunsInQueue(r.Context(), a.DB.Read(), clearBatch)
		if err != nil {
			return answer{}, err
		}
		for _, id := range runs {
			if err := a.clearRun(r.Context(), id, "api_key:"+caller(r).TokenID, &done); err != nil {
				return answer{}, err
			}
		}
		if len(runs) < clearBatch || done.Jobs == before {
			return ok(done)
		}
	}
}

func (a *API) clearRun(ctx context.Context, id, by string, done *adminwire.Cleared) error {
	result, err := a.Engine.Cancel(ctx, id, by, "run cancelled: the queue was cleared", false)
	if errors.Is(err, engine.ErrRunTerminal) || errors.Is(err, engine.ErrRunNotFound) {
		return nil // it ended meanwhile
	}
	if err != nil {
		return err
	}
	done.Runs++
	done.Jobs += result.Cancelled
	return nil
}

// purgeStale deletes the ended runs of every routing key but one. A key that nobody knows is refused: with a mistyped one all
// history would go.
func (a *API) purgeStale(r *http.Request) (answer, error) {
	var in struct {
		RoutingKey string `json:"routingKey"`
	}
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	if in.RoutingKey == "" {
		return answer{}, invalid(problem("routingKey", "required", "routingKey is required: the one whose runs stay"))
	}
	if a.Purge == nil {
		return answer{}, refuse(http.StatusServiceUnavailable, "Runs cannot be deleted on this instance")
	}
	if err := a.knownKey(r.Context(), in.RoutingKey); err != nil {
		return answer{}, err
	}
	done, err := a.Purge(r.Context(), in.RoutingKey)
	e := entry(r, "execution.purge", "run", "")
	e.Meta = map[string]any{"kept": in.RoutingKey, "runsDeleted": done.RunsDeleted}
	a.noteEntry(r, a.judged(e, err))
	if err != nil {
		return answer{}, err
	}
	return ok(done)
}

// knownKey refuses a routing key that neither a source nor a run has.
func (a *API) knownKey(ctx context.Context, key string) error {
	if _, err := a.Sources.ByRoutingKey(ctx, key); !errors.Is(err, forge.ErrUnknownSource) {
		return err
	}
	n, err := report.CountRuns(ctx, a.DB.Read(), report.RunFilter{RoutingKey: key})
	if err == nil && n == 0 {
		return gone("No source and no run has routing key " + key)
	}
	return err
}

// listEvents gives what is kept of a run's timeline, which is bounded.
func (a *API) listEvents(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	events, err := report.Timeline(r.Context(), a.DB.Read(), run.RunID)
	if err != nil {
		return answer{}, err
	}
	out := adminwire.Timeline{RunID: run.RunID, Events: make([]adminwire.TimelineEvent, len(events))}
	for i, e := range events {
		out.Events[i] = adminwire.TimelineEvent{Timestamp: adminwire.At(e.At), EventType: e.Type, SourceService: e.Source,
			JobID: orNull(e.JobID), DurationMs: e.DurationMs, Metadata: e.Metadata}
	}
	return ok(out)
}

// showContext gives the surroundings in which a job ran.
func (a *API) showContext(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	jobID := r.PathValue("job")
	if _, err := report.StepLog(r.Context(), a.DB.Read(), run.RunID, jobID, -1); errors.Is(err, report.ErrNotFound) {
		return answer{}, gone("Job " + jobID + " not found")
	} else if err != nil {
		return answer{}, err
	}
	raw, err := timeline.ContextOf(r.Context(), a.DB.Read(), jobID)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.Surroundings{RunID: run.RunID, JobID: jobID, Context: raw})
}
