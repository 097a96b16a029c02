package engine

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/contexts"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// Register makes a run with all its jobs, needs and queue rows in one transaction. A run that exists is left alone, so a
// delivery that is worked on twice makes one run. A plan with an init failure, or a queue that is full, makes a failed
// run with the reason. What is to be done also is done in the same transaction, and undoes it where it fails. Errors: ErrRunNotFound
// when the run to repeat is gone, ErrRepeated when it was repeated a moment ago.
func (e *Engine) Register(ctx context.Context, r Registration, also ...func(ctx context.Context, tx *store.Tx) error) error {
	var key runKey
	if r.Plan.InitFailure == nil {
		var err error
		if key, err = e.newRunKey(); err != nil { // before the transaction, which keeps others waiting
			return err
		}
	}
	secrets, err := e.vet(ctx, r)
	if err != nil {
		return err
	}
	err = e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := e.register(ctx, tx, r, secrets, key); err != nil {
			return err
		}
		return alongside(ctx, tx, also)
	})
	if errors.Is(err, errRegistered) {
		err = e.write(ctx, func(ctx context.Context, tx *store.Tx) error { return alongside(ctx, tx, also) })
	}
	return err
}

func alongside(ctx context.Context, tx *store.Tx, also []func(ctx context.Context, tx *store.Tx) error) error {
	for _, do := range also {
		if err := do(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// errRegistered says that a run exists already.
var errRegistered = errors.New("the run is registered already")

func (e *Engine) register(ctx context.Context, tx *store.Tx, r Registration, secrets vetted, key runKey) error {
	now := e.clock.Millis()
	if r.ParentRunID != "" {
		if err := admitRepetition(ctx, tx, r, now); err != nil {
			return fmt.Errorf("repeat run %s: %w", r.ParentRunID, err)
		}
	}
	if err := insertRun(ctx, tx, r, key, now); err != nil {
		return err
	}
	if err := e.announceRepetition(ctx, tx, r); err != nil {
		return err
	}
	run := lifecycle.Run{ID: r.RunID, Status: ci.RunPending, CreatedAt: now, TimeoutMs: r.Plan.TimeoutMs}
	hold, failure, err := e.admission(ctx, tx, r, secrets)
	if err != nil {
		return err
	}
	if failure != nil {
		return e.stillborn(ctx, tx, r, run, *failure, now)
	}
	if hold != nil {
		if err := e.holdRun(ctx, tx, &run, installerOf(r, secrets.install), *hold, now); err != nil {
			return err
		}
	}
	return e.registerJobs(ctx, tx, run, r, hold, now)
}

// registerJobs writes the jobs of a new run with their first states. Gates read the rows of the jobs that they are asked
// about, so where there are any, the states follow.
func (e *Engine) registerJobs(ctx context.Context, tx *store.Tx, run lifecycle.Run, r Registration, hold *contexts.Hold, now int64) error {
	in := e.newInsertion(r.RunID, checkout{r.CloneURL, r.CheckoutRef, r.SHA}, now)
	planned := plannedJobs(r.Plan, now)
	open := hold == nil && r.Plan.Approval == nil && !slices.ContainsFunc(planned, func(p lifecycle.Planned) bool { return p.Job.Guarded })
	var first lifecycle.Outcome
	if open {
		var err error
		if first, err = in.bear(lifecycle.Register(planned, now), e.expiry(now)); err != nil {
			return err
		}
		tx.After(e.dispatch.Wake)
	}
	if err := in.jobs(ctx, tx, r.Plan.Jobs, 0, positionStep); err != nil {
		return err
	}
	if err := in.edges(ctx, tx, r.Plan.Edges, 0); err != nil {
		return err
	}
	if !open {
		if err := e.guardPlan(ctx, tx, r, hold, planned, now); err != nil {
			return err
		}
		first = lifecycle.Register(planned, now)
	}
	return e.apply(ctx, tx, run, first)
}

// guardPlan asks the gates of the jobs of a new run, and holds all of them where the run is held, or the whole workflow asks
// for an approval. People are asked for that only once nothing else holds the run.
func (e *Engine) guardPlan(ctx context.Context, tx *store.Tx, r Registration, held *contexts.Hold, planned []lifecycle.Planned, now int64) (err error) {
	var all *ci.Reason
	switch {
	case held != nil:
		all = &held.Reason
	case r.Plan.Approval != nil:
		if all, err = e.openApproval(ctx, tx, r.RunID, r.OrgID, r.Plan.Approval, now); err != nil {
			return err
		}
	}
	for i := range planned {
		p := &planned[i]
		if p.InitFailure != nil {
			continue
		}
		if p.Job.Guarded && !p.Job.Deferred {
			why, failure, err := e.early(ctx, tx, p.Job.ID, now)
			if err != nil {
				return err
			}
			if p.InitFailure = failure; why != nil {
				p.Job.Holds, p.Job.HoldReason = 1, why
			}
		}
		if all != nil { // those that need others, too: what they need may have failed at its birth
			p.Job.Holds, p.Job.HoldReason = p.Job.Holds+1, all
		}
	}
	return nil
}

// openApproval asks people about a whole workflow, and gives what its jobs wait for then.
func (e *Engine) openApproval(ctx context.Context, tx *store.Tx, runID, orgID string, a *lockfile.Approval, now int64) (*ci.Reason, error) {
	expiry, err := expiryOf(ctx, tx, orgID, a)
	if err != nil {
		return nil, err
	}
	hold := contexts.Protect(contexts.Request{Approval: a, Expiry: expiry}).Holds[0]
	err = e.open(ctx, tx, newHold{runID: runID, orgID: orgID, scope: ci.HoldWorkflow, hold: hold}, now)
	return &hold.Reason, err
}

// holdRun makes a new run one that is held as a whole.
func (e *Engine) holdRun(ctx context.Context, tx *store.Tx, run *lifecycle.Run, i installer, hold contexts.Hold, now int64) error {
	if err := storeRun(ctx, tx, run, lifecycle.RunChange{Status: ci.RunHeld}); err != nil {
		return err
	}
	return e.openInstall(ctx, tx, i, hold, now)
}

// admission tells why no job of the plan may be made at all, or what holds them all.
func (e *Engine) admission(ctx context.Context, tx *store.Tx, r Registration, secrets vetted) (*contexts.Hold, *ci.InitFailure, error) {
	failure, err := e.crowded(ctx, tx, r.Plan)
	if err != nil || failure != nil {
		return nil, failure, err
	}
	if secrets.failure != nil {
		e.judgeInstall(tx, r.Plan.Secrets, secrets.refused(r.TrustTier))
		return nil, secrets.failure, nil
	}
	hold, failure, err := e.askInstall(ctx, tx, installerOf(r, secrets.install), nil)
	if err != nil {
		return nil, nil, err
	}
	judgement := judgementOf(secrets, r.TrustTier, hold, failure)
	if hold == nil && failure == nil && secrets.missing != nil {
		failure = runFailure(ci.InitInstallSecrets, secrets.missing.Error())
	}
	e.judgeInstall(tx, r.Plan.Secrets, judgement)
	return hold, failure, nil
}

// crowded tells why a plan makes no jobs, or there is no room for them.
func (e *Engine) crowded(ctx context.Context, tx *store.Tx, p plan.Plan) (*ci.InitFailure, error) {
	if p.InitFailure != nil {
		return p.InitFailure, nil
	}
	if len(p.Jobs) == 0 {
		return &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitEnvironmentRules, Message: "the workflow has no jobs to run"}, nil
	}
	waiting, err := e.depth(ctx, tx, len(p.Jobs))
	if err != nil {
		return nil, fmt.Errorf("read queue depth: %w", err)
	}
	if waiting >= e.settings.QueueMaxDepth {
		return &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitEnvironmentRules,
			Message: fmt.Sprintf("queue full: %d jobs are waiting already", waiting)}, nil
	}
	return nil, nil
}

// depth is how many jobs waited in the queue at the last look. It looks once in a hundredth of the bound, and every time
// while the bound is reached: a question for each run would cost more than the few that may wait beyond the bound.
func (e *Engine) depth(ctx context.Context, tx *store.Tx, more int) (int, error) {
	period := int64(max(1, e.settings.QueueMaxDepth/100))
	now := e.registered.Add(int64(more))
	waiting := e.waiting.Load()
	if now/period == (now-int64(more))/period && waiting < int64(e.settings.QueueMaxDepth) {
		return int(waiting), nil
	}
	var n int
	if err := tx.All(ctx, queue.AskDepth(e.settings.QueueMaxDepth, &n)); err != nil {
		return 0, err
	}
	e.waiting.Store(int64(n))
	return n, nil
}

func plannedJobs(p plan.Plan, now int64) []lifecycle.Planned {
	needs := map[string][]string{}
	for _, edge := range p.Edges {
		needs[edge.Job] = append(needs[edge.Job], edge.Upstream)
	}
	out := make([]lifecycle.Planned, len(p.Jobs))
	for i, j := range p.Jobs {
		out[i] = lifecycle.Planned{
			Job:         plannedJob(j, now),
			Needs:       needs[j.Name],
			InitFailure: j.InitFailure,
		}
	}
	return out
}

func plannedJob(j plan.Job, now int64) lifecycle.Job {
	return lifecycle.Job{
		ID: j.ID, Name: j.Name, Kind: kindOf(j), Status: ci.JobPending, CreatedAt: now, GraceMs: j.GraceMs, Deferred: j.Deferred,
		Guarded: len(j.Contexts) > 0 || j.Approval != nil,
		Wave:    lifecycle.Wave{Gated: j.WaveGated, MaxParallel: j.MaxParallel, FailFast: j.FailFast, Label: j.VariantLabel},
	}
}

// firstContext is the group whose slots the jobs of a run take.
func firstContext(p plan.Plan) string {
	for _, j := range p.Jobs {
		if len(j.Contexts) > 0 {
			return ci.CutName(j.Contexts[0])
		}
	}
	return ""
}

func kindOf(j plan.Job) ci.JobKind { return cmp.Or(j.Kind, ci.KindStandard) }

// insertRun writes the row of a run. Where it is there already the transaction fails with errRegistered.
func insertRun(ctx context.Context, tx *store.Tx, r Registration, key runKey, now int64) error {
	var concurrency sql.NullString
	if r.Plan.Concurrency != nil {
		raw, err := json.Marshal(r.Plan.Concurrency)
		if err != nil {
			return fmt.Errorf("encode concurrency of run %s: %w", r.RunID, err)
		}
		concurrency = nullText(string(raw))
	}
	secrets, err := encodeSecrets(r.Plan)
	if err != nil {
		return err
	}
	row := []any{r.RunID, r.OrgID, r.RoutingKey, ci.CutName(r.Plan.Workflow), string(ci.RunPending), r.Provider, r.Repo, ci.CutName(r.Ref), ci.CutName(r.SHA),
		nullText(r.DeliveryID), r.RequestID, nullText(ci.CutText(r.TriggerEvent)), nullText(string(r.Decision)), nullText(ci.CutText(r.CommitMessage)),
		nullText(ci.CutName(r.Sender)), nullText(r.LockFileSource), now, nullText(string(r.Event)), nullText(string(r.TrustTier)),
		nullText(key.public), nullText(key.private),
		nullText(ci.CutName(r.TriggeredBy)), nullMillis(r.Plan.TimeoutMs), nullText(string(r.Plan.Document)), concurrency, nullText(r.ParentRunID),
		nullText(r.OriginalRunID), nullText(r.CheckMode), nullText(firstContext(r.Plan)), r.ChainDepth, secrets}
	statement := insertRuns.of(row)
	err = tx.DoOne(ctx, errRegistered, store.Insertion(statement.head, 1, statement.columns, "ON CONFLICT (run_id) DO NOTHING"), row[:statement.columns]...)
	if err != nil {
		return fmt.Errorf("insert run %s: %w", r.RunID, err)
	}
	return nil
}

// insertRuns takes the values of insertRun.
var insertRuns = mostlyInto("execution_runs", `run_id, org_id, routing_key, workflow_name, status, provider, repo_identifier, ref, sha, delivery_id,
    request_id, trigger_event, trigger_decision, commit_message, sender, lock_file_source, created_at, event, trust_tier,
    public_key, sealed_private_key`,
	`triggered_by, workflow_timeout_ms, plan_input, concurrency, parent_run_id, original_run_id, check_mode, context, chain_depth, workflow_secrets`,
	unsetText, sql.NullInt64{}, unsetText, unsetText, unsetText, unsetText, unsetText, unsetText, 0, unsetText)
