package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/engine"
	"kici/internal/server/report"
)

// filterStatuses are the values that ?status= takes: every state of a run or a job. Those of jobs alone match no run.
var filterStatuses = func() []string {
	var out []string
	for _, s := range ci.RunStatuses {
		out = append(out, string(s))
	}
	for _, s := range ci.JobStatuses {
		if !slices.Contains(out, string(s)) {
			out = append(out, string(s))
		}
	}
	return out
}()

// runFilter reads the query. A scoped token sees the runs of its own routing key alone, without being told.
func (a *API) runFilter(r *http.Request) (report.RunFilter, error) {
	q := r.URL.Query()
	f := report.RunFilter{Statuses: list(r, "status"), Workflow: q.Get("workflowName"), Repo: q.Get("repo"), DeliveryID: q.Get("deliveryId"),
		OrgID: q.Get("orgId"), RoutingKey: caller(r).RoutingKey, Limit: limitOf(r, 20, 100), Offset: offsetOf(r)}
	for _, s := range f.Statuses {
		if !slices.Contains(filterStatuses, s) {
			return f, refuse(http.StatusBadRequest, fmt.Sprintf("Invalid status %q. Allowed: %s", s, strings.Join(filterStatuses, ", ")))
		}
	}
	var err error
	f.Since, err = moment(r, "since")
	return f, err
}

// listRuns gives a page of runs, or with ?count=true only their number, which dashboards ask for all the time.
func (a *API) listRuns(r *http.Request) (answer, error) {
	f, err := a.runFilter(r)
	if err != nil {
		return answer{}, err
	}
	total, err := report.CountRuns(r.Context(), a.DB.Read(), f)
	if err != nil {
		return answer{}, err
	}
	q := r.URL.Query()
	if truthy(r, "count") {
		return ok(map[string]any{"total": total, "since": orNull(q.Get("since")), "status": orNull(q.Get("status")),
			"workflowName": orNull(f.Workflow), "repo": orNull(f.Repo)})
	}
	runs, err := report.Runs(r.Context(), a.DB.Read(), f)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.RunList{Runs: runs, Total: total, Limit: f.Limit, Offset: f.Offset})
}

// theRun reads the run of the path. It refuses a run that is not there, and then one of another routing key.
func (a *API) theRun(r *http.Request) (adminwire.RunDetail, error) {
	id := r.PathValue("run")
	run, key, err := report.RunOf(r.Context(), a.DB.Read(), id)
	if errors.Is(err, report.ErrNotFound) {
		return run, a.noRun(r, id)
	}
	if err != nil {
		return run, err
	}
	ofOrg(r, run.OrgID)
	return run, allow(r, key)
}

// noRun refuses a run that is not there, and says so when it was there once.
func (a *API) noRun(r *http.Request, id string) error {
	key, was, err := engine.Forgotten(r.Context(), a.DB.Read(), id)
	switch {
	case err != nil:
		return err
	case !was:
		return &refusal{http.StatusNotFound, adminwire.Error{Error: "Run " + id + " not found", ErrorCode: adminwire.CodeRunUnknown}}
	}
	if err := allow(r, key); err != nil {
		return err
	}
	return &refusal{http.StatusNotFound, adminwire.Error{Error: "Run " + id + " not found: it ended too long ago and was removed",
		ErrorCode: adminwire.CodeRunForgotten}}
}

// showRun is the run without its jobs, which may be a thousand.
func (a *API) showRun(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.OneRun{Run: run})
}

// listJobs gives all jobs of a run at once: a plan is bounded, and a part of a graph is of no use.
func (a *API) listJobs(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	jobs, err := report.Jobs(r.Context(), a.DB.Read(), run.RunID, truthy(r, "includeSteps"))
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.JobList{Jobs: jobs})
}

// showResult is for programs that pass a run on; see adminwire.RunResult.
func (a *API) showResult(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	result, err := report.Result(r.Context(), a.DB.Read(), run.RunID)
	if err != nil {
		return answer{}, err
	}
	return ok(result)
}

// explainRun judges the queue and the agents at this moment; nothing of it is stored.
func (a *API) explainRun(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	why, err := report.Explain(r.Context(), a.DB.Read(), run.RunID, caller(r).RoutingKey, a.Clock.Millis())
	if err != nil {
		return answer{}, err
	}
	return ok(why)
}

// cancelRun is noted at every attempt, also the ones that come too late.
func (a *API) cancelRun(r *http.Request) (answer, error) {
	var in struct {
		Force bool `json:"force"`
	}
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	id := r.PathValue("run")
	result, err := a.cancel(r.Context(), r, id, in.Force)
	if err != nil {
		return answer{}, err
	}
	e := entry(r, "run.cancel", "run", id)
	e.Meta = map[string]any{"force": in.Force}
	a.noteEntry(r, e)
	return ok(adminwire.CancelResult{Status: result.Status, CancelledJobs: result.Cancelled})
}

// cancel looks at the routing key first: a run of somebody else's is refused whatever its state.
func (a *API) cancel(ctx context.Context, r *http.Request, id string, force bool) (engine.CancelResult, error) {
	if run, key, err := report.RunOf(ctx, a.DB.Read(), id); err == nil {
		ofOrg(r, run.OrgID)
		if err := allow(r, key); err != nil {
			return engine.CancelResult{}, err
		}
	} else if !errors.Is(err, report.ErrNotFound) {
		return engine.CancelResult{}, err
	}
	result, err := a.Engine.Cancel(ctx, id, "api_key:"+caller(r).TokenID, "", force)
	switch {
	case errors.Is(err, engine.ErrRunNotFound):
		return result, gone("Run not found")
	case errors.Is(err, engine.ErrRunTerminal):
		return result, &refusal{http.StatusConflict, adminwire.Error{Error: "Run already in terminal state", Status: string(result.Status)}}
	}
	return result, err
}
