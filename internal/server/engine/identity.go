package engine

import (
	"context"
	"database/sql"
	"fmt"

	"kici/internal/core/ci"
)

// JobIdentity is what may be said in the name of a job: what the rows of its run and itself hold, and nothing that its
// agent says. Texts are "" where nothing is known.
type JobIdentity struct {
	RunID, JobID string
	OrgID        string
	Provider     string // local, generic, github
	Repo         string
	Ref, SHA     string
	Workflow     string
	TriggerEvent string  // "push", "pull_request:opened"
	Tier         ci.Tier // of the contributor, "" when nothing is known
	Test         bool    // the run's source may be somebody's working tree, whatever its commit is
	Over         bool    // the job has ended
}

// JobIdentity reads the identity of a job, or ok=false when there is no such job.
func (e *Engine) JobIdentity(ctx context.Context, jobID string) (id JobIdentity, ok bool, err error) {
	var trigger, tier sql.NullString
	err = e.db.Read().QueryRowContext(ctx, selectIdentity, jobID).Scan(&id.RunID, &id.JobID, &id.OrgID, &id.Provider, &id.Repo, &id.Ref, &id.SHA,
		&id.Workflow, &trigger, &tier, &id.Test, &id.Over)
	if isNoRows(err) {
		return id, false, nil
	}
	if err != nil {
		return id, false, fmt.Errorf("read identity of job %s: %w", jobID, err)
	}
	id.TriggerEvent, id.Tier = trigger.String, ci.Tier(tier.String)
	return id, true, nil
}

const selectIdentity = `SELECT r.run_id, j.job_id, r.org_id, r.provider, r.repo_identifier, r.ref, r.sha, r.workflow_name, r.trigger_event,
r.trust_tier, r.is_test_run, j.completed_at IS NOT NULL FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id WHERE j.job_id = $1`
