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
	"kici/internal/server/orgs"
	"kici/internal/server/store"
)

// Contexts finds what the names of contexts mean for an organisation. An error that is a *contexts.BackendError or the
// like is trouble; a name that means nothing is bound to nil.
type Contexts interface {
	Bound(ctx context.Context, tx *store.Tx, orgID string, names []string) ([]contexts.Bound, error)
	// Keys lists the keys of the secrets of each context. The refusal, for people, completes a sentence that says why none
	// can be told, now or at the next try.
	Keys(ctx context.Context, orgID string, names []string) (keys map[string][]string, refusal string, err error)
}

// guarded is what the gates ask about a job.
type guarded struct {
	runID, orgID, jobID, name string
	group                     string // whose slots it takes
	names                     []string
	approval                  *lockfile.Approval
	dispatch                  contexts.Dispatch
}

// atDoor asks the gates of every job that an outcome would queue, and turns back those that they hold or refuse. Every
// way into the queue leads through here.
func (e *Engine) atDoor(ctx context.Context, tx *store.Tx, o *lifecycle.Outcome, now int64) error {
	var ask []string
	for _, r := range o.Rows {
		if r.Op == lifecycle.RowEnqueue && r.Guarded {
			ask = append(ask, r.JobID)
		}
	}
	admitted := map[string]int64{} // in this outcome, by group
	for _, id := range ask {
		g, err := loadGuarded(ctx, tx, id)
		if err != nil {
			return err
		}
		v, err := e.ask(ctx, tx, g, true, admitted[g.group])
		switch {
		case err != nil:
			return err
		case len(v.Rejections) > 0:
			o.Refuse(id, *v.InitFailure(g.name), now)
		case len(v.Holds) > 0:
			if err := e.open(ctx, tx, g.hold(v.Holds[0]), now); err != nil {
				return err
			}
			o.Keep(id, v.Holds[0].Reason)
		default:
			admitted[g.group]++
		}
	}
	return nil
}

// early asks the gates of a job that is not ready yet: what can never run fails at once, and people are asked early.
// Slots and timers wait until the job is ready.
func (e *Engine) early(ctx context.Context, tx *store.Tx, jobID string, now int64) (held *ci.Reason, failure *ci.InitFailure, err error) {
	g, err := loadGuarded(ctx, tx, jobID)
	if err != nil {
		return nil, nil, err
	}
	v, err := e.ask(ctx, tx, g, false, 0)
	if err != nil {
		return nil, nil, err
	}
	if len(v.Rejections) > 0 {
		return nil, v.InitFailure(g.name), nil
	}
	for _, h := range v.Holds {
		if h.Type == ci.HoldReviewer || h.Type == ci.HoldSecurity {
			return &h.Reason, nil, e.open(ctx, tx, g.hold(h), now)
		}
	}
	return nil, nil, nil
}

// ask puts a job to its gates. ready tells that it would be queued now, so that slots count, and admitted how many were let
// into its group in the same moment.
func (e *Engine) ask(ctx context.Context, tx *store.Tx, g guarded, ready bool, admitted int64) (v contexts.Verdict, err error) {
	r := contexts.Request{Dispatch: g.dispatch, Approval: g.approval}
	if r.Expiry, err = expiryOf(ctx, tx, g.orgID, g.approval); err != nil {
		return v, err
	}
	if e.contexts != nil && len(g.names) > 0 {
		if r.Bound, err = e.contexts.Bound(ctx, tx, g.orgID, g.names); err != nil {
			return v, fmt.Errorf("find contexts of job %s: %w", g.jobID, err)
		}
	}
	if r.Satisfied, err = satisfied(ctx, tx, g.runID, g.jobID, ci.HoldJob); err != nil {
		return v, err
	}
	if ready && contexts.Aggregate(r.Bound).ConcurrencyLimit != nil {
		if r.Occupying, err = occupying(ctx, tx, g.orgID, g.group); err != nil {
			return v, err
		}
		r.Occupying += admitted
	}
	return contexts.Protect(r), nil
}

// expiryOf is how long an organisation lets an approval take that says nothing of it itself.
func expiryOf(ctx context.Context, tx *store.Tx, orgID string, a *lockfile.Approval) (contexts.Expiry, error) {
	if a == nil || a.TimeoutSeconds > 0 {
		return contexts.Expiry{}, nil
	}
	org, err := orgs.Read(ctx, tx, orgID)
	return contexts.Expiry{Approval: org.ApprovalExpiry()}, err
}

func loadGuarded(ctx context.Context, tx *store.Tx, jobID string) (guarded, error) {
	g := guarded{jobID: jobID}
	var names string
	var approval, trigger, tier, group sql.NullString
	err := tx.QueryRowContext(ctx, selectGuarded, jobID).Scan(&g.runID, &g.orgID, &g.name, &names, &approval, &g.dispatch.Branch, &trigger,
		&g.dispatch.Repository, &tier, &group)
	if err != nil {
		return g, fmt.Errorf("load what guards job %s: %w", jobID, err)
	}
	g.dispatch.EventType, _, _ = strings.Cut(trigger.String, ":")
	g.dispatch.Tier, g.group = ci.Tier(tier.String), group.String
	if err := json.Unmarshal([]byte(names), &g.names); err != nil {
		return g, fmt.Errorf("decode contexts of job %s: %w", jobID, err)
	}
	if approval.Valid {
		g.approval = &lockfile.Approval{}
		if err := json.Unmarshal([]byte(approval.String), g.approval); err != nil {
			return g, fmt.Errorf("decode approval of job %s: %w", jobID, err)
		}
	}
	return g, nil
}

func (g guarded) hold(h contexts.Hold) newHold {
	n := newHold{runID: g.runID, orgID: g.orgID, jobID: g.jobID, scope: ci.HoldJob, hold: h}
	if h.Source == ci.HoldFromContext && len(g.names) > 0 {
		n.context, n.group = g.names[0], g.group
	}
	return n
}

// satisfied lists the holds that let a job, or what stands for one, go already, oldest first.
func satisfied(ctx context.Context, tx *store.Tx, runID, jobID string, scope ci.HoldScope) ([]ci.HoldType, error) {
	types, err := store.Texts(ctx, tx, `SELECT hold_type FROM held_runs WHERE run_id = $1 AND job_id = $2 AND hold_scope = $3
AND status IN ('approved', 'released') ORDER BY resolved_at, id`, runID, jobID, string(scope))
	out := make([]ci.HoldType, len(types))
	for i, t := range types {
		out[i] = ci.HoldType(t)
	}
	return out, err
}

// PendingHolds lists, for each pending hold of an organisation that the rules of contexts ask for, the names by which what it
// holds calls its contexts. The gates of all of them are asked again when it lets go.
func PendingHolds(ctx context.Context, tx *store.Tx, orgID string) ([][]string, error) {
	rows, err := tx.QueryContext(ctx, selectPendingHolds, orgID)
	if err != nil {
		return nil, fmt.Errorf("list pending holds of contexts: %w", err)
	}
	defer rows.Close()
	var all [][]string
	for rows.Next() {
		var first string
		var job, kept sql.NullString
		if err := rows.Scan(&first, &job, &kept); err != nil {
			return nil, err
		}
		names, err := namesOfHold(job, kept)
		if err != nil {
			return nil, err
		}
		all = append(all, append(names, first))
	}
	return all, rows.Err()
}

// namesOfHold are the contexts of a held job, or those of which a held workflow needs secrets to install.
func namesOfHold(job, kept sql.NullString) (names []string, err error) {
	if job.Valid {
		err = json.Unmarshal([]byte(job.String), &names)
		return names, err
	}
	secrets, err := decodeSecrets(kept)
	if err != nil {
		return nil, err
	}
	in, err := secrets.Install("", true)
	return in.Contexts(), err
}

// occupying counts the jobs that have a slot of a group, and those that wait for one already, which nobody overtakes. Until
// the transaction ends nobody else counts, so that two who come at once do not both find the last slot free. Those that wait
// are counted first: one that is given its slot meanwhile counts twice then, and not never.
func occupying(ctx context.Context, tx *store.Tx, orgID, group string) (n int64, err error) {
	if err := lockSlots(ctx, tx, orgID); err != nil {
		return 0, err
	}
	var waiting int64
	if err := tx.QueryRowContext(ctx, countWaiting, orgID, group).Scan(&waiting); err != nil {
		return 0, fmt.Errorf("count jobs that wait for a slot of %q: %w", group, err)
	}
	busy, err := busyIn(ctx, tx, orgID, group)
	return busy + waiting, err
}

// lockSlots lets one transaction at a time count slots of an organisation: of all groups, since the jobs of a run may ask for
// several, and in any order. SQLite has one writer.
func lockSlots(ctx context.Context, tx *store.Tx, orgID string) error {
	if tx.Dialect != store.Postgres {
		return nil
	}
	err := tx.Do(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "slots of "+orgID)
	if err != nil {
		return fmt.Errorf("lock the slots of %q: %w", orgID, err)
	}
	return nil
}

// busyIn counts the jobs of a group that are queued or with an agent.
func busyIn(ctx context.Context, tx *store.Tx, orgID, group string) (busy int64, err error) {
	if err := tx.QueryRowContext(ctx, countBusy, orgID, group).Scan(&busy); err != nil {
		return 0, fmt.Errorf("count jobs that have a slot of %q: %w", group, err)
	}
	return busy, nil
}

const (
	selectGuarded = `SELECT j.run_id, r.org_id, j.job_name, j.contexts, j.approval, r.ref, r.trigger_event, r.repo_identifier, r.trust_tier,
j.slot_group FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id WHERE j.job_id = $1`

	selectPendingHolds = `SELECT h.context_name, j.contexts, r.workflow_secrets FROM held_runs h
LEFT JOIN execution_jobs j ON j.job_id = h.job_id LEFT JOIN execution_runs r ON r.run_id = h.run_id AND h.hold_scope = 'workflow'
WHERE h.org_id = $1 AND h.status = 'pending' AND h.context_name IS NOT NULL`

	countBusy = `SELECT count(*) FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id JOIN dispatch_queue q ON q.id = j.job_id
WHERE r.org_id = $1 AND j.slot_group = $2 AND j.completed_at IS NULL AND q.status IN ('pending', 'dispatched', 'recovering')`

	waitingInGroup = ` FROM held_runs h JOIN execution_jobs j ON j.job_id = h.job_id
WHERE h.org_id = $1 AND j.slot_group = $2 AND j.completed_at IS NULL AND h.status = 'pending' AND h.hold_type = 'concurrency'`

	countWaiting = `SELECT count(*)` + waitingInGroup
)
