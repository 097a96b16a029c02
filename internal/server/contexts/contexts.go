// Package contexts keeps the named contexts of organisations with their variables and bindings, finds what the names of a
// job mean, and gives a job what its contexts bring. What a context means for a job is decided elsewhere, purely.
package contexts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	decide "kici/internal/decide/contexts"
	"kici/internal/kit/service"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// maxContexts bounds the contexts of an organisation: every job that names one looks at all of them.
const maxContexts = 1000

// Errors. ErrInvalid is followed by what is wrong with which field.
var (
	ErrNotFound = errors.New("context not found")
	ErrInvalid  = errors.New("invalid context")
)

// HeldError says that a context cannot be deleted while jobs wait at its gates.
type HeldError struct{ Pending int }

func (e *HeldError) Error() string {
	return fmt.Sprintf("Context has %d pending held run(s) — approve or reject them first", e.Pending)
}

// Context is a stored context. Times are epoch milliseconds.
type Context struct {
	decide.Context
	OrgID     string
	CreatedAt int64
	UpdatedAt int64
	CreatedBy string // id of the admin token
}

// Store owns the tables of contexts.
type Store struct {
	db      *store.DB
	clock   service.Clock
	secrets *secrets.Store
	pending Pending
}

// Pending lists, for each pending hold of an organisation that the rules of contexts ask for, the names of all contexts that
// what it holds will be put to when it lets go.
type Pending func(ctx context.Context, tx *store.Tx, orgID string) ([][]string, error)

// New makes the store, whose bindings follow the scopes of the vault from then on.
func New(db *store.DB, clock service.Clock, vault *secrets.Store, pending Pending) *Store {
	s := &Store{db: db, clock: clock, secrets: vault, pending: pending}
	vault.Follow(s)
	return s
}

// Change changes a context that is stored, or one that is about to be; isNew tells which.
type Change func(c *decide.Context, isNew bool) error

// Put changes a context, or makes it when there is none of that name: enabled, fixed, without rules. by is who asks. Variables, which may be nil, are set with it, unlocked.
func (s *Store) Put(ctx context.Context, by, org, name string, change Change, variables map[string]string) (c Context, created bool, err error) {
	if org == "" || org != ci.CutName(org) {
		return c, false, fmt.Errorf("%w: orgId must be a text of 1 to %d characters", ErrInvalid, ci.MaxName)
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if c, err = byName(ctx, tx, org, name, tx.ForUpdate()); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		created = err != nil
		if created {
			c, err = s.fresh(ctx, tx, by, org, name)
			if err != nil {
				return err
			}
		}
		return s.save(ctx, tx, &c, created, change, variables)
	})
	if err != nil {
		return c, false, fmt.Errorf("put context %q: %w", name, err)
	}
	return c, created, nil
}

// Update changes a context that is there.
func (s *Store) Update(ctx context.Context, org, name string, change Change) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		c, err := byName(ctx, tx, org, name, tx.ForUpdate())
		if err != nil {
			return err
		}
		return s.save(ctx, tx, &c, false, change, nil)
	})
	if err != nil {
		return fmt.Errorf("update context %q: %w", name, err)
	}
	return nil
}

// fresh is a context that is not stored yet.
func (s *Store) fresh(ctx context.Context, tx *store.Tx, by, org, name string) (c Context, err error) {
	var n int
	if err := tx.QueryRowContext(ctx, countContexts, org).Scan(&n); err != nil {
		return c, err
	}
	if n >= maxContexts {
		return c, fmt.Errorf("%w: an organisation has at most %d contexts; delete one first", ErrInvalid, maxContexts)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return c, err
	}
	return Context{OrgID: org, CreatedAt: s.clock.Millis(), CreatedBy: by, Context: decide.Context{
		ID: id.String(), Name: name, Type: decide.Fixed, Enabled: true, ConcurrencyStrategy: decide.Queue,
		ConcurrencyTimeoutMs: decide.DefaultConcurrencyTimeoutMs, HoldExpirySeconds: decide.DefaultHoldExpirySeconds,
	}}, nil
}

func (s *Store) save(ctx context.Context, tx *store.Tx, c *Context, isNew bool, change Change, variables map[string]string) error {
	if err := change(&c.Context, isNew); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if c.Name != ci.CleanText(c.Name) {
		return fmt.Errorf("%w: name must be clean text", ErrInvalid)
	}
	c.UpdatedAt = s.clock.Millis()
	err := tx.Do(ctx, upsertContext, c.ID, c.OrgID, c.Name, string(c.Type), c.GlobPattern, c.Enabled,
		list(c.BranchRestrictions), list(c.TriggerTypeFilters), list(c.RepoPatterns), c.ConcurrencyLimit, string(c.ConcurrencyStrategy),
		c.ConcurrencyTimeoutMs, reviewers(c), c.WaitTimerSeconds, c.HoldExpirySeconds, string(c.MinimumTrust),
		c.AllowLocalExecution, c.CreatedAt, c.UpdatedAt, c.CreatedBy)
	if err != nil {
		return err
	}
	for key, value := range variables {
		if err := s.setVariable(ctx, tx, c.ID, key, value, false); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes a context with its variables and bindings. While jobs wait at its gates it is a *HeldError, and nothing
// happens: a hold that is being opened has the context locked.
func (s *Store) Delete(ctx context.Context, org, name string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		c, err := byName(ctx, tx, org, name, tx.ForUpdate())
		if err != nil {
			return err
		}
		held, err := s.heldBy(ctx, tx, c)
		if err != nil {
			return err
		}
		if held > 0 {
			return &HeldError{Pending: held}
		}
		err = tx.Do(ctx, deleteContext, c.ID) // with what refers to it
		return err
	})
	if err != nil {
		return fmt.Errorf("delete context %q: %w", name, err)
	}
	return nil
}

// heldBy counts the pending holds of which a context is this one: of a pattern they have the names that jobs use.
func (s *Store) heldBy(ctx context.Context, tx *store.Tx, c Context) (held int, err error) {
	holds, err := s.pending(ctx, tx, c.OrgID)
	if err != nil || len(holds) == 0 {
		return 0, err
	}
	bound, err := s.Bound(ctx, tx, c.OrgID, slices.Concat(holds...))
	if err != nil {
		return 0, err
	}
	for _, names := range holds {
		if slices.ContainsFunc(bound[:len(names)], func(b decide.Bound) bool { return b.Context != nil && b.Context.ID == c.ID }) {
			held++
		}
		bound = bound[len(names):]
	}
	return held, nil
}

// Bound finds the context of each name of a job, nil where there is none: nothing is ever open because nobody has said
// so. Until the transaction ends no context that was found is deleted.
func (s *Store) Bound(ctx context.Context, tx *store.Tx, orgID string, names []string) ([]decide.Bound, error) {
	lock := ""
	if tx.Dialect == store.Postgres {
		lock = " FOR KEY SHARE"
	}
	return s.bound(ctx, tx, orgID, names, lock)
}

func (s *Store) bound(ctx context.Context, q store.Querier, orgID string, names []string, lock string) ([]decide.Bound, error) {
	all, err := query(ctx, q, selectContexts+lock, orgID)
	if err != nil {
		return nil, fmt.Errorf("find contexts: %w", err)
	}
	plain := make([]decide.Context, len(all))
	for i, c := range all {
		plain[i] = c.Context
	}
	return decide.Bind(plain, names)
}

// List lists the contexts of an organisation by name.
func (s *Store) List(ctx context.Context, org string) ([]Context, error) {
	all, err := query(ctx, s.db.Read(), selectContexts, org)
	if err != nil {
		return nil, fmt.Errorf("list contexts: %w", err)
	}
	return all, nil
}

// Find gives the context of exactly that name.
func (s *Store) Find(ctx context.Context, org, name string) (Context, error) {
	c, err := byName(ctx, s.db.Read(), org, name, "")
	if err != nil {
		return c, fmt.Errorf("find context %q: %w", name, err)
	}
	return c, nil
}

func byName(ctx context.Context, q store.Querier, org, name, lock string) (Context, error) {
	found, err := query(ctx, q, selectContext+lock, org, name)
	if err != nil {
		return Context{}, err
	}
	if len(found) == 0 {
		return Context{}, ErrNotFound
	}
	return found[0], nil
}

func query(ctx context.Context, q store.Querier, text string, args ...any) ([]Context, error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []Context{}
	for rows.Next() {
		c, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Context) int { return strings.Compare(a.Name, b.Name) }) // the engines order texts differently
	return all, rows.Err()
}

func scan(rows store.Row) (c Context, err error) {
	var branches, triggers, repos, reviewers string
	err = rows.Scan(&c.ID, &c.OrgID, &c.Name, &c.Type, &c.GlobPattern, &c.Enabled, &branches, &triggers, &repos, &c.ConcurrencyLimit,
		&c.ConcurrencyStrategy, &c.ConcurrencyTimeoutMs, &reviewers, &c.WaitTimerSeconds, &c.HoldExpirySeconds, &c.MinimumTrust,
		&c.AllowLocalExecution, &c.CreatedAt, &c.UpdatedAt, &c.CreatedBy)
	c.BranchRestrictions, c.TriggerTypeFilters, c.RepoPatterns = decide.ReadList(branches), decide.ReadList(triggers), decide.ReadList(repos)
	c.RequiredReviewers, c.ReviewersUnreadable = decide.ReadReviewers(reviewers)
	return c, err
}

// unreadable stands for reviewers of whom nobody can tell who they were. It stays until somebody names others.
const unreadable = "unreadable"

func reviewers(c *Context) string {
	if c.ReviewersUnreadable {
		return unreadable
	}
	return list(c.RequiredReviewers)
}

// list is the stored form of a list of texts.
func list(texts []string) string {
	raw, err := json.Marshal(append([]string{}, texts...))
	if err != nil {
		panic(err) // texts can always be encoded
	}
	return string(raw)
}

const (
	columns = `id, org_id, name, type, glob_pattern, enabled, branch_restrictions, trigger_type_filters, repo_patterns,
		concurrency_limit, concurrency_strategy, concurrency_timeout_ms, required_reviewers, wait_timer_seconds,
		hold_expiry_seconds, minimum_trust, allow_local_execution, created_at, updated_at, created_by`
	selectContext  = `SELECT ` + columns + ` FROM contexts WHERE org_id = $1 AND name = $2`
	selectContexts = `SELECT ` + columns + ` FROM contexts WHERE org_id = $1`
	countContexts  = `SELECT count(*) FROM contexts WHERE org_id = $1`
	upsertContext  = `INSERT INTO contexts (` + columns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
		ON CONFLICT (id) DO UPDATE SET type = $4, glob_pattern = $5, enabled = $6, branch_restrictions = $7,
			trigger_type_filters = $8, repo_patterns = $9, concurrency_limit = $10, concurrency_strategy = $11,
			concurrency_timeout_ms = $12, required_reviewers = $13, wait_timer_seconds = $14, hold_expiry_seconds = $15,
			minimum_trust = $16, allow_local_execution = $17, updated_at = $19`
	deleteContext = `DELETE FROM contexts WHERE id = $1`
)
