package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
)

// Origin is what a run was made from, and how it stands.
type Origin struct {
	Registration        // without its plan
	Workflow     string //
	Status       ci.RunStatus
	Test         bool
	Original     string // the first of a chain of repetitions, itself when it is that
}

// Origin reads what a run was made from. Error: ErrRunNotFound.
func (e *Engine) Origin(ctx context.Context, runID string) (Origin, error) {
	var o Origin
	var event, decision, message, sender, lockSource, check, tier, original sql.NullString
	err := e.db.Read().QueryRowContext(ctx, selectOrigin, runID).Scan(&o.RunID, &o.OrgID, &o.RoutingKey, &o.Provider, &o.Repo, &o.Ref, &o.SHA,
		&event, &decision, &message, &sender, &lockSource, &check, &tier, &original, &o.Workflow, &o.Status, &o.Test, &o.CheckoutRef)
	if isNoRows(err) {
		return o, ErrRunNotFound
	}
	if err != nil {
		return o, fmt.Errorf("read what run %s was made from: %w", runID, err)
	}
	o.Event, o.Decision = json.RawMessage(event.String), json.RawMessage(decision.String)
	o.CommitMessage, o.Sender, o.LockFileSource = message.String, sender.String, lockSource.String
	o.CheckMode, o.TrustTier = check.String, ci.Tier(tier.String)
	if o.Original = original.String; o.Original == "" {
		o.Original = o.RunID
	}
	return o, nil
}

const selectOrigin = `SELECT r.run_id, r.org_id, r.routing_key, r.provider, r.repo_identifier, r.ref, r.sha, r.event, r.trigger_decision,
r.commit_message, r.sender, r.lock_file_source, r.check_mode, r.trust_tier, r.original_run_id, r.workflow_name, r.status, r.is_test_run,
coalesce((SELECT j.ref FROM execution_jobs j WHERE j.run_id = r.run_id ORDER BY j.position LIMIT 1), r.ref)
FROM execution_runs r WHERE r.run_id = $1`
