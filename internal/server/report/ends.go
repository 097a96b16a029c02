package report

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// ended is the stored reason of a job's end, with what it is about. Success has none to store.
func (x explainer) ended(j adminwire.Job) ci.Reason {
	if j.Reason == nil {
		if j.Status == ci.JobSuccess && len(j.Steps) > 0 && !slices.ContainsFunc(j.Steps, ran) {
			return ci.NewReason(string(j.Status), "ended as success, and ran none of its steps: their rules or the job's did not let them", nil)
		}
		return noReason(string(j.Status))
	}
	why := whole(*j.Reason)
	switch {
	case why.Code == ci.ReasonUnroutable && len(j.RunsOnLabels) > 0:
		why.Message = ci.CutText(why.Message + "; it asked for " + shortList(j.RunsOnLabels))
	case why.Code == ci.ReasonHoldExpired:
		for _, h := range x.expired {
			if h.JobID == nil || *h.JobID == j.JobID {
				why.Message = ci.CutText(why.Message + ": " + h.Reason.Message)
				break
			}
		}
	}
	return why
}

func ran(s adminwire.Step) bool { return s.Status != ci.StepSkipped }

// expiredHolds are the expired holds of a run, of which only jobs that ended for one have anything to say.
func expiredHolds(ctx context.Context, q store.Querier, runID string, jobs []adminwire.Job) ([]Hold, error) {
	if !slices.ContainsFunc(jobs, func(j adminwire.Job) bool { return j.Reason != nil && j.Reason.Code == ci.ReasonHoldExpired }) {
		return nil, nil
	}
	return Holds(ctx, q, HoldFilter{RunID: runID, Statuses: []string{string(ci.HoldExpired)}, Limit: 2 * ci.MaxJobsPerRun})
}

// tokenPrefix begins the names of callers that are told by the ids of their tokens.
const tokenPrefix = "api_key:"

// tokenName is the label of the token that somebody is told by, revoked or not, "" when it is none.
func tokenName(ctx context.Context, q store.Querier, by *string) (label string, err error) {
	if by == nil {
		return "", nil
	}
	id, ok := strings.CutPrefix(*by, tokenPrefix)
	if !ok {
		return "", nil
	}
	err = q.QueryRowContext(ctx, "SELECT label FROM admin_tokens WHERE id = $1", id).Scan(&label)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("find the token of a caller: %w", err)
	}
	return label, nil
}
