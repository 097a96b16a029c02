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
	"kici/internal/decide/contexts"
	"kici/internal/server/auth"
	"kici/internal/server/engine"
	"kici/internal/server/pipeline"
	"kici/internal/server/report"
)

// Holds takes answers to holds.
type Holds interface {
	Decide(ctx context.Context, holdID string, v engine.Vote) (contexts.Decision, error)
}

// Reruns makes a run like an ended one. What stands in its way is a *pipeline.RerunRefusal.
type Reruns interface {
	Rerun(ctx context.Context, runID, by string) (newRunID string, err error)
}

// listHolds shows the open holds, and with ?status= those that are decided.
func (a *API) listHolds(r *http.Request) (answer, error) {
	q := r.URL.Query()
	f := report.HoldFilter{RunID: q.Get("runId"), OrgID: q.Get("orgId"), Statuses: list(r, "status"), RoutingKey: caller(r).RoutingKey, Limit: limitOf(r, 100, 1000)}
	if len(f.Statuses) == 0 {
		f.Statuses = []string{string(ci.HoldPending)}
	}
	for _, s := range f.Statuses {
		if !slices.Contains(ci.HoldStatuses, ci.HoldStatus(s)) {
			return answer{}, refuse(http.StatusBadRequest, fmt.Sprintf("Invalid status %q. Allowed: %s", s, strings.Join(texts(ci.HoldStatuses), ", ")))
		}
	}
	holds, err := report.Holds(r.Context(), a.DB.Read(), f)
	if err != nil {
		return answer{}, err
	}
	out := adminwire.HeldRunList{HeldRuns: make([]adminwire.HeldRun, len(holds))}
	for i, h := range holds {
		out.HeldRuns[i] = h.HeldRun
	}
	return ok(out)
}

// decideHold takes an answer. It is noted under what was answered, also when it comes too late.
func (a *API) decideHold(r *http.Request) (answer, error) {
	var in adminwire.HoldAnswer
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	verb := contexts.Answer(in.Decision)
	if verb != contexts.Approve && verb != contexts.Reject {
		return answer{}, invalid(problem("decision", "invalid", "decision must be approve or reject"))
	}
	if in.HoldID == "" {
		return answer{}, invalid(problem("holdId", "required", "holdId is required"))
	}
	if a.Holds == nil {
		return answer{}, refuse(http.StatusServiceUnavailable, "Holds cannot be decided on this instance")
	}
	done, err := a.decide(r, in)
	e := entry(r, "held_run."+in.Decision, "held_run", in.HoldID)
	e.Meta = map[string]any{"as": in.As}
	a.noteEntry(r, a.judged(e, err))
	if err != nil {
		return answer{}, err
	}
	return ok(done)
}

func (a *API) decide(r *http.Request, in adminwire.HoldAnswer) (adminwire.HoldDecided, error) {
	var done adminwire.HoldDecided
	found, err := report.Holds(r.Context(), a.DB.Read(), report.HoldFilter{ID: in.HoldID, Limit: 1})
	if err != nil {
		return done, err
	}
	if len(found) == 0 {
		return done, gone("Hold " + in.HoldID + " not found")
	}
	ofOrg(r, found[0].OrgID)
	if err := allow(r, found[0].RoutingKey); err != nil {
		return done, err
	}
	d, err := a.Holds.Decide(r.Context(), in.HoldID, engine.Vote{By: actorOf(caller(r), in.As, found[0].QueueType), Through: found[0].QueueType,
		Answer: contexts.Answer(in.Decision), Comment: in.Comment})
	switch {
	case errors.Is(err, engine.ErrHoldNotFound):
		return done, gone("Hold " + in.HoldID + " not found")
	case err != nil:
		return done, err
	case d.Result == contexts.Ineligible:
		return done, refuse(http.StatusForbidden, d.Reason.Message)
	case d.Result == contexts.NotFound:
		return done, refuse(http.StatusConflict, d.Reason.Message)
	}
	done.Status = string(d.Result)
	for _, c := range d.Remaining {
		done.RemainingClauses = append(done.RemainingClauses, adminwire.Clause{Team: c.Team, User: c.User})
	}
	return done, nil
}

// teamPrefix begins the name of a team in HoldAnswer.As.
const teamPrefix = "team:"

// actorOf is who answers: the token, or whom its holder answers for. The access log has the token in either case.
func actorOf(id auth.Identity, as string, queue ci.QueueType) contexts.Actor {
	right := auth.ContextUpdate
	if queue == ci.QueueSecurity {
		right = auth.CITrustAdmin
	}
	by := contexts.Actor{ID: "api_key:" + id.TokenID, Name: id.Label, MayDecide: id.Role.May(right)}
	if team, ok := strings.CutPrefix(as, teamPrefix); ok {
		by.Teams = []string{team}
	} else if as != "" {
		by.ID, by.Name = as, as
	}
	return by
}

// rerunAnswers are the answers to what stands in the way of a rerun.
var rerunAnswers = map[pipeline.RerunKind]struct {
	status int
	code   string
}{
	pipeline.RerunUnknown:         {http.StatusNotFound, adminwire.CodeRunUnknown},
	pipeline.RerunForgotten:       {http.StatusGone, adminwire.CodeNotRerunnable},
	pipeline.RerunOpen:            {http.StatusConflict, "run_not_terminal"},
	pipeline.RerunTest:            {http.StatusBadRequest, "test_run"},
	pipeline.RerunTooSoon:         {http.StatusTooManyRequests, "rerun_too_soon"},
	pipeline.RerunLockMissing:     {http.StatusUnprocessableEntity, "lock_file_missing"},
	pipeline.RerunWorkflowMissing: {http.StatusUnprocessableEntity, "workflow_missing"},
	pipeline.RerunSourceMissing:   {http.StatusUnprocessableEntity, "source_missing"},
}

// rerunRefused is the answer to a refusal.
func rerunRefused(why *pipeline.RerunRefusal, status string) *refusal {
	to := rerunAnswers[why.Kind]
	return &refusal{to.status, adminwire.Error{Error: why.Message, ErrorCode: to.code, Status: status}}
}

// rerun starts an ended run again.
func (a *API) rerun(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if absent, ok := errors.AsType[*refusal](err); ok && absent.body.ErrorCode == adminwire.CodeRunForgotten {
		return answer{}, rerunRefused(&pipeline.RerunRefusal{Kind: pipeline.RerunForgotten, Message: absent.Error()}, "")
	}
	if err != nil {
		return answer{}, err
	}
	if a.Reruns == nil {
		return answer{}, refuse(http.StatusServiceUnavailable, "Runs cannot be started on this instance")
	}
	id, err := a.Reruns.Rerun(r.Context(), run.RunID, "api_key:"+caller(r).TokenID)
	if refused, ok := errors.AsType[*pipeline.RerunRefusal](err); ok && rerunAnswers[refused.Kind].status != 0 {
		return answer{}, rerunRefused(refused, string(run.Status))
	}
	if err != nil {
		return answer{}, err
	}
	return created(adminwire.Rerun{RunID: id, ParentRunID: run.RunID})
}
