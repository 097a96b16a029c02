package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/contexts"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
	"kici/internal/server/orgs"
	"kici/internal/server/store"
)

// vetted is what is found out about the secrets of a workflow before its run is made. Reading them takes connections of
// its own, which a transaction must not ask for.
type vetted struct {
	install contexts.Install
	missing error           // for people: the first secret that is not there
	failure *ci.InitFailure // whatever the gates say
	why     string          // in a word
}

// vet looks for the secrets that a workflow refers to as a whole.
func (e *Engine) vet(ctx context.Context, r Registration) (v vetted, err error) {
	asked := r.Plan.Secrets
	if r.Plan.InitFailure != nil || asked.Empty() {
		return v, nil
	}
	if len(asked.Contexts) > 0 {
		_, refusal, err := e.keys(ctx, r.OrgID, asked.Contexts)
		if err != nil {
			return v, err
		}
		if refusal != "" {
			v.failure = runFailure(ci.InitSecretResolution, "Workflow declares secret contexts but "+refusal)
			return v, nil
		}
	}
	org, err := orgs.Read(ctx, e.db.Read(), r.OrgID)
	if err != nil {
		return v, err
	}
	if v.install, err = asked.Install(r.TrustTier, org.AllowHTTPRegistries); err != nil {
		v.failure, v.why = runFailure(ci.InitInstallSecrets, err.Error()), "reference"
		return v, nil
	}
	if v.install.Stripped {
		e.log.Info("contributor is not trusted, dependencies are installed without secrets", "run", r.RunID, "tier", r.TrustTier)
	}
	if len(v.install.Secrets) == 0 {
		return v, nil
	}
	keys, refusal, err := e.keys(ctx, r.OrgID, v.install.Contexts())
	if err != nil {
		return v, err
	}
	v.missing = v.install.Missing(keys)
	if refusal != "" {
		v.failure, v.why = runFailure(ci.InitInstallSecrets, "Workflow declares install secrets but "+refusal), "unavailable"
	}
	return v, nil
}

func (e *Engine) keys(ctx context.Context, orgID string, names []string) (map[string][]string, string, error) {
	if e.contexts == nil {
		return nil, "this server has no contexts", nil
	}
	keys, refusal, err := e.contexts.Keys(ctx, orgID, names)
	if err != nil {
		return nil, "", fmt.Errorf("look for secrets of contexts %s: %w", strings.Join(names, ", "), err)
	}
	return keys, refusal, nil
}

func runFailure(category, message string) *ci.InitFailure {
	return &ci.InitFailure{Scope: ci.ScopeRun, Category: category, Message: ci.CutText(message)}
}

// installer is a run whose workflow needs secrets to install its dependencies, as the gates see it.
type installer struct {
	runID, orgID, workflow string
	install                contexts.Install
	dispatch               contexts.Dispatch
	approval               *lockfile.Approval // that the workflow asks for beside
}

func installerOf(r Registration, in contexts.Install) installer {
	event, _, _ := strings.Cut(r.TriggerEvent, ":")
	return installer{runID: r.RunID, orgID: r.OrgID, workflow: r.Plan.Workflow, install: in,
		dispatch: contexts.Dispatch{Branch: ci.CutName(r.Ref), EventType: event, Repository: r.Repo, Tier: r.TrustTier}}
}

// askInstall puts a workflow to the gates of the contexts whose secrets it needs to install its dependencies. released are
// the holds of theirs that let it go already.
func (e *Engine) askInstall(ctx context.Context, tx *store.Tx, i installer, released []ci.HoldType) (*contexts.Hold, *ci.InitFailure, error) {
	if len(i.install.Secrets) == 0 {
		return nil, nil, nil
	}
	bound, err := e.contexts.Bound(ctx, tx, i.orgID, i.install.Contexts())
	if err != nil {
		return nil, nil, fmt.Errorf("find contexts of the install secrets of run %s: %w", i.runID, err)
	}
	v, refusal := i.install.Protect(contexts.Request{Bound: bound, Dispatch: i.dispatch, Satisfied: released})
	switch {
	case refusal != nil:
		return nil, runFailure(ci.InitInstallSecrets, refusal.Error()), nil
	case len(v.Holds) > 0:
		return &v.Holds[0], nil, nil
	}
	return nil, nil, nil
}

// openInstall stores the hold that keeps a whole run.
func (e *Engine) openInstall(ctx context.Context, tx *store.Tx, i installer, h contexts.Hold, now int64) error {
	return e.open(ctx, tx, newHold{runID: i.runID, orgID: i.orgID, jobID: ci.InstallJobName(i.workflow), scope: ci.HoldWorkflow,
		context: i.install.Contexts()[0], hold: h}, now)
}

// resolveInstall acts on the end of a hold that kept a whole run: the next gate is asked, or the run goes on, or it ends.
func (e *Engine) resolveInstall(ctx context.Context, tx *store.Tx, run lifecycle.Run, h openHold, end holdEnd, now int64) error {
	if !end.status.LetsGo() {
		open, err := loadOpen(ctx, tx, run.ID)
		if err != nil {
			return err
		}
		if end.status == ci.HoldExpired {
			return e.apply(ctx, tx, run, lifecycle.FailHeld(open, *runFailure(ci.InitInstallSecrets, end.why.Message), now))
		}
		return e.apply(ctx, tx, run, lifecycle.CancelRun(run, open, lifecycle.Cancel{By: end.by, Reason: *end.why, At: now}, now))
	}
	i, err := loadInstaller(ctx, tx, run.ID)
	if err != nil {
		return err
	}
	released, err := satisfied(ctx, tx, run.ID, h.jobID, ci.HoldWorkflow)
	if err != nil {
		return err
	}
	next, failure, err := e.askInstall(ctx, tx, i, released)
	if err != nil {
		return err
	}
	tx.After(func() { e.judged(judgementOf(vetted{install: i.install}, i.dispatch.Tier, next, failure)) })
	if failure != nil {
		open, err := loadOpen(ctx, tx, run.ID)
		if err != nil {
			return err
		}
		return e.apply(ctx, tx, run, lifecycle.FailHeld(open, *failure, now))
	}
	return e.proceed(ctx, tx, run, i, next, now)
}

// proceed lets a run go on from a hold to the next one, which is the approval that its author asks for when its contexts
// ask for nothing more.
func (e *Engine) proceed(ctx context.Context, tx *store.Tx, run lifecycle.Run, i installer, next *contexts.Hold, now int64) error {
	held, err := e.heldByWorkflow(ctx, tx, run.ID)
	if err != nil {
		return err
	}
	if next != nil {
		if err := e.openInstall(ctx, tx, i, *next, now); err != nil {
			return err
		}
		return e.apply(ctx, tx, run, lifecycle.HeldAnew(held, next.Reason))
	}
	outcomes := []lifecycle.Outcome{{Run: &lifecycle.RunChange{Status: ci.RunPending}}}
	if i.approval != nil {
		why, err := e.openApproval(ctx, tx, i.runID, i.orgID, i.approval, now)
		if err != nil {
			return err
		}
		return e.apply(ctx, tx, run, append(outcomes, lifecycle.HeldAnew(held, *why))...)
	}
	for _, job := range held {
		outcomes = append(outcomes, lifecycle.HoldReleased(job))
	}
	return e.apply(ctx, tx, run, outcomes...)
}

// heldByWorkflow loads the jobs of a run that a hold on their workflow keeps.
func (e *Engine) heldByWorkflow(ctx context.Context, tx *store.Tx, runID string) ([]lifecycle.Job, error) {
	ids, err := store.Texts(ctx, tx, selectHeldByWorkflow, runID)
	if err != nil {
		return nil, fmt.Errorf("list held jobs of run %s: %w", runID, err)
	}
	jobs := make([]lifecycle.Job, len(ids))
	for i, id := range ids {
		if jobs[i], err = loadJob(ctx, tx, id); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// keptSecrets is what is kept with a run of the secrets and the approval that its workflow asks for.
type keptSecrets struct {
	plan.WorkflowSecrets
	Approval *lockfile.Approval `json:"approval,omitempty"`
}

func encodeSecrets(p plan.Plan) (sql.NullString, error) {
	if p.Secrets.Empty() {
		return sql.NullString{}, nil
	}
	raw, err := json.Marshal(keptSecrets{p.Secrets, p.Approval})
	if err != nil {
		return sql.NullString{}, fmt.Errorf("encode references to secrets: %w", err)
	}
	return nullText(string(raw)), nil
}

func decodeSecrets(text sql.NullString) (k keptSecrets, err error) {
	if !text.Valid {
		return k, nil
	}
	if err := json.Unmarshal([]byte(text.String), &k); err != nil {
		return k, fmt.Errorf("decode references to secrets: %w", err)
	}
	return k, nil
}

func loadInstaller(ctx context.Context, tx *store.Tx, runID string) (installer, error) {
	i := installer{runID: runID}
	var trigger, tier, kept sql.NullString
	err := tx.QueryRowContext(ctx, selectInstaller, runID).Scan(&i.orgID, &i.workflow, &i.dispatch.Branch, &trigger, &i.dispatch.Repository, &tier, &kept)
	if err != nil {
		return i, fmt.Errorf("load what run %s needs to install: %w", runID, err)
	}
	i.dispatch.EventType, _, _ = strings.Cut(trigger.String, ":")
	i.dispatch.Tier = ci.Tier(tier.String)
	secrets, err := decodeSecrets(kept)
	if err != nil {
		return i, err
	}
	i.approval = secrets.Approval
	// Where its registries are was judged when the run was made, and is again when a job is given out. A hold must come to its
	// end although the organisation has changed its mind in between.
	i.install, err = secrets.Install(i.dispatch.Tier, true)
	return i, err
}

const (
	selectInstaller = `SELECT org_id, workflow_name, ref, trigger_event, repo_identifier, trust_tier, workflow_secrets FROM execution_runs WHERE run_id = $1`

	// Every hold of a job counts, and its own are known, so one more is the workflow's.
	selectHeldByWorkflow = `SELECT j.job_id FROM execution_jobs j WHERE j.run_id = $1 AND j.completed_at IS NULL AND j.holds >
    (SELECT count(*) FROM held_runs h WHERE h.run_id = j.run_id AND h.job_id = j.job_id AND h.hold_scope = 'job' AND h.status = 'pending')
ORDER BY j.position`
)
