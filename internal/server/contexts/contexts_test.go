package contexts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	decide "kici/internal/decide/contexts"
	"kici/internal/kit/seal"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// rig is a store of contexts with secrets behind it. Its clock moves on with every look.
type rig struct {
	*Store
	secrets *secrets.Store
	t       *testing.T
	held    [][]string // names of the contexts of pending holds
}

func newRig(t *testing.T, db *store.DB) *rig {
	t.Helper()
	keys, err := seal.NewKeyring(strings.Repeat("0f", 32), "")
	must(t, err)
	now := int64(1000)
	clock := func() time.Time { now++; return time.UnixMilli(now) }
	r := &rig{t: t, secrets: secrets.New(db, keys, clock)}
	r.Store = New(db, clock, r.secrets, func(context.Context, *store.Tx, string) ([][]string, error) { return r.held, nil })
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put makes a context with bindings to scopes.
func (r *rig) put(name string, change func(*decide.Context), variables map[string]string, scopes ...string) {
	r.t.Helper()
	_, _, err := r.Put(r.t.Context(), "tok", "o", name, func(c *decide.Context, _ bool) error {
		if change != nil {
			change(c)
		}
		return nil
	}, variables)
	must(r.t, err)
	for _, scope := range scopes {
		_, err := r.Bind(r.t.Context(), "o", name, decide.Binding{ScopePattern: scope})
		must(r.t, err)
	}
}

func (r *rig) secret(scope, key, value string) {
	r.t.Helper()
	must(r.t, r.secrets.Set(r.t.Context(), secrets.Actor{UserID: "tok"}, "o", scope, key, value))
}

func (r *rig) bound(names ...string) (ids []string) {
	r.t.Helper()
	must(r.t, r.db.Write(r.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		bound, err := r.Bound(ctx, tx, "o", names)
		for _, b := range bound {
			id := b.Name + "="
			if b.Context != nil {
				id += b.Context.Name
			}
			ids = append(ids, id)
		}
		return err
	}))
	return ids
}

func TestEveryFieldOfAContextIsKept(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r, ctx := newRig(t, db), t.Context()
		two, zero := int64(2), int64(0)
		want := decide.Context{Name: "prod", Type: decide.Glob, GlobPattern: "prod/*", BranchRestrictions: []string{"main", "release/*"},
			TriggerTypeFilters: []string{"push"}, RepoPatterns: []string{"org/*"}, ConcurrencyLimit: &two, ConcurrencyStrategy: decide.CancelPending,
			ConcurrencyTimeoutMs: 5, RequiredReviewers: []string{"u1", "u2"}, WaitTimerSeconds: &zero, HoldExpirySeconds: 7,
			MinimumTrust: ci.TierTrusted, AllowLocalExecution: true}
		made, created, err := r.Put(ctx, "tok", "o", "prod", func(c *decide.Context, isNew bool) error {
			if !isNew || !c.Enabled || c.HoldExpirySeconds != decide.DefaultHoldExpirySeconds {
				t.Errorf("a new context starts as %+v, new %v", c, isNew)
			}
			id := c.ID
			*c = want
			c.ID = id
			return nil
		}, nil)
		if err != nil || !created {
			t.Fatalf("created %v, %v", created, err)
		}
		want.ID = made.ID
		got, err := r.Find(ctx, "o", "prod")
		if diff := cmp.Diff(want, got.Context); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		if got.CreatedBy != "tok" || got.CreatedAt == 0 || got.UpdatedAt <= got.CreatedAt {
			t.Errorf("created by %q at %d, updated at %d", got.CreatedBy, got.CreatedAt, got.UpdatedAt)
		}
		if _, err := r.Find(ctx, "other", "prod"); !errors.Is(err, ErrNotFound) {
			t.Errorf("another organisation finds it: %v", err)
		}
	})
}

func TestReviewersThatCannotBeReadStayAHold(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r := newRig(t, db)
		r.put("prod", nil, nil)
		must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE contexts SET required_reviewers = '{broken', branch_restrictions = '{broken'")
			return err
		}))
		unrelated := func(c *decide.Context, _ bool) error { c.Enabled = false; return nil }
		must(t, r.Update(t.Context(), "o", "prod", unrelated))
		c, err := r.Find(t.Context(), "o", "prod")
		if err != nil || !c.ReviewersUnreadable || len(c.BranchRestrictions) != 0 {
			t.Errorf("unreadable %v, branches %q, %v", c.ReviewersUnreadable, c.BranchRestrictions, err)
		}
	})
}

func TestNamesMeanTheMostSpecificContext(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r := newRig(t, db)
		pattern := func(p string) func(*decide.Context) {
			return func(c *decide.Context) { c.Type, c.GlobPattern = decide.Glob, p }
		}
		r.put("all", pattern("**"), nil)
		r.put("reviews", pattern("review/*"), nil)
		r.put("pulls", pattern("review/PR-*"), nil)
		r.put("prod", func(c *decide.Context) { c.Enabled = false }, nil)
		want := []string{"review/PR-7=pulls", "review/x=reviews", "prod=prod", "other=all"}
		if diff := cmp.Diff(want, r.bound("review/PR-7", "review/x", "prod", "other")); diff != "" {
			t.Error(diff)
		}
		must(t, r.Delete(t.Context(), "o", "all"))
		r.secret("other", "TOKEN", "v") // a scope of that name is no context: nothing is open because nobody has said so
		if diff := cmp.Diff([]string{"other="}, r.bound("other")); diff != "" {
			t.Error(diff)
		}
	})
}

func TestDeletingTakesWhatBelongsToTheContext(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r, ctx := newRig(t, db), t.Context()
		r.put("reviews", func(c *decide.Context) { c.Type, c.GlobPattern = decide.Glob, "review/*" }, map[string]string{"A": "1"}, "aws")
		must(t, r.Override(ctx, "o", "reviews", decide.Override{RoutingKey: "k", Key: "A", Value: "2"}))
		r.held = [][]string{{"prod"}, {"prod", "review/1"}, {"review/2", "review/3"}}
		err := r.Delete(ctx, "o", "reviews")
		if held, ok := errors.AsType[*HeldError](err); !ok || held.Pending != 2 {
			t.Errorf("delete with pending holds: %v", err)
		}
		r.held = nil
		must(t, r.Delete(ctx, "o", "reviews"))
		for _, table := range []string{"contexts", "context_bindings", "context_variables", "context_source_overrides"} {
			var n int
			must(t, db.Read().QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n))
			if n != 0 {
				t.Errorf("%d rows are left in %s", n, table)
			}
		}
		if err := r.Delete(ctx, "o", "reviews"); !errors.Is(err, ErrNotFound) {
			t.Errorf("second delete: %v", err)
		}
	})
}

func TestWhatIsWrongIsNotStored(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r, ctx := newRig(t, db), t.Context()
		r.put("prod", nil, nil)
		keep := func(*decide.Context, bool) error { return nil }
		for name, err := range map[string]error{
			"no organisation": second(r.Put(ctx, "tok", "", "x", keep, nil)),
			"no name":         second(r.Put(ctx, "tok", "o", "", keep, nil)),
			"reserved":        second(r.Put(ctx, "tok", "o", "x", keep, map[string]string{"KICI_X": "v"})),
			"variable":        r.SetVariable(ctx, "o", "prod", decide.Variable{Key: "KICI_X", Value: "v"}),
			"override":        r.Override(ctx, "o", "prod", decide.Override{RoutingKey: "k", Key: "KICI_X", Value: "v"}),
			"binding":         bindError(r.Bind(ctx, "o", "prod", decide.Binding{ScopePattern: ""})),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		all, err := r.List(ctx, "o")
		if err != nil || len(all) != 1 {
			t.Errorf("%d contexts, %v", len(all), err)
		}
	})
}

func second(_ Context, _ bool, err error) error { return err }
func bindError(_ bool, err error) error         { return err }

func TestAJobGetsWhatItsContextsBringInTheirOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r := newRig(t, db)
		r.put("shared", nil, map[string]string{"LEVEL": "shared", "ONLY": "shared"}, "shared/**")
		r.put("reviews", func(c *decide.Context) { c.Type, c.GlobPattern = decide.Glob, "review/*" }, map[string]string{"LEVEL": "review"}, "review")
		r.put("hosts", nil, nil, "hosts/${host}")
		must(t, r.SetVariable(t.Context(), "o", "shared", decide.Variable{Key: "LOCKED", Value: "base", Locked: true}))
		for _, key := range []string{"ONLY", "LOCKED", "MORE"} {
			must(t, r.Override(t.Context(), "o", "shared", decide.Override{RoutingKey: "src", Key: key, Value: "override"}))
		}
		r.secret("shared", "TOKEN", "a")
		r.secret("shared/deep", "TOKEN", "b")
		r.secret("shared/deep", "ONLY", "s")
		r.secret("review", "TOKEN", "c")
		r.secret("hosts/web-1", "HOST", "h")
		r.secret("elsewhere", "TOKEN", "never")
		all := Request{OrgID: "o", Names: []string{"shared", "review/PR-7", "hosts"}, RoutingKey: "src", Tier: ci.TierKnown,
			Host: &decide.Host{AgentID: "agent", Name: "web-1"}}
		tests := []struct {
			name   string
			change func(*Request)
			want   decide.Merged
		}{
			{"all", nil, decide.Merged{
				Variables: map[string]string{"LEVEL": "review", "ONLY": "override", "LOCKED": "base", "MORE": "override"},
				Secrets:   map[string]string{"TOKEN": "c", "ONLY": "s", "HOST": "h"},
				Namespaced: ci.NamespacedSecrets{{Context: "shared", Secrets: map[string]string{"TOKEN": "b", "ONLY": "s"}},
					{Context: "review/PR-7", Secrets: map[string]string{"TOKEN": "c"}}, {Context: "hosts", Secrets: map[string]string{"HOST": "h"}}},
			}},
			{"another source and no host", func(r *Request) { r.RoutingKey, r.Host, r.Names = "", nil, []string{"hosts", "shared"} }, decide.Merged{
				Variables:  map[string]string{"LEVEL": "shared", "ONLY": "shared", "LOCKED": "base"},
				Secrets:    map[string]string{"TOKEN": "b", "ONLY": "s"},
				Namespaced: ci.NamespacedSecrets{{Context: "shared", Secrets: map[string]string{"TOKEN": "b", "ONLY": "s"}}},
			}},
			{"a stranger", func(r *Request) { r.Tier, r.Names = ci.TierUnknown, []string{"review/PR-7"} }, decide.Merged{
				Variables: map[string]string{"LEVEL": "review"},
			}},
			{"no context", func(r *Request) { r.Names = nil }, decide.Merged{}},
		}
		for _, tt := range tests {
			request := all
			if tt.change != nil {
				tt.change(&request)
			}
			got, err := r.Resolve(t.Context(), request)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%s: %v %s", tt.name, err, diff)
			}
		}
		for _, name := range []string{"shared", "hosts"} {
			c, err := r.Find(t.Context(), "o", name)
			must(t, err)
			keys, err := r.SecretKeys(t.Context(), c)
			if want := map[string][]string{"shared": {"ONLY", "TOKEN"}, "hosts": {}}[name]; err != nil || !cmp.Equal(want, keys) {
				t.Errorf("secret keys of %s: %q, %v", name, keys, err)
			}
		}
	})
}

func TestAContextThatIsGoneOrDisabledEndsTheJob(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r := newRig(t, db)
		r.put("off", func(c *decide.Context) { c.Enabled = false }, nil)
		for _, name := range []string{"off", "gone"} {
			_, err := r.Resolve(t.Context(), Request{OrgID: "o", Names: []string{name}})
			if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "'"+name+"'") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestKeysTellWhichSecretsAContextGives(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r := newRig(t, db)
		r.put("prod", nil, nil, "prod/**", "hosts/${host}")
		r.secret("prod/app", "TOKEN", "v")
		r.secret("hosts/web-1", "HOST", "v")
		r.secret("elsewhere", "OTHER", "v")
		keys, refusal, err := r.Keys(t.Context(), "o", []string{"prod", "gone"})
		if diff := cmp.Diff(map[string][]string{"prod": {"TOKEN"}}, keys); err != nil || refusal != "" || diff != "" {
			t.Errorf("%v %q %s", err, refusal, diff)
		}
		keyless := New(db, time.Now, secrets.New(db, nil, time.Now), nil)
		if _, refusal, err := keyless.Keys(t.Context(), "o", []string{"prod"}); err != nil || !strings.Contains(refusal, "KICI_SECRET_KEY missing") {
			t.Errorf("without a master key: %q, %v", refusal, err)
		}
	})
}

func TestBindingsFollowTheirScopes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r, ctx, by := newRig(t, db), t.Context(), secrets.Actor{UserID: "tok"}
		r.put("plain", nil, nil, "aws/prod", "aws/prod/**")
		r.put("headed", nil, nil, "pg:aws/prod")
		r.put("twice", nil, nil, "aws/prod", "aws/live")
		_, _, err := r.Put(ctx, "tok", "other", "plain", func(*decide.Context, bool) error { return nil }, nil)
		must(t, err)
		_, err = r.Bind(ctx, "other", "plain", decide.Binding{ScopePattern: "aws/prod"})
		must(t, err)
		r.secret("aws/prod", "TOKEN", "v")
		bindings := func(org, name string) (patterns []string) {
			t.Helper()
			c, err := r.Find(ctx, org, name)
			must(t, err)
			all, err := r.Bindings(ctx, c.ID)
			must(t, err)
			for _, b := range all {
				patterns = append(patterns, b.ScopePattern)
			}
			return patterns
		}
		must(t, r.secrets.RenameScope(ctx, by, "o", "aws/prod", "aws/live"))
		for name, want := range map[string][]string{"plain": {"aws/live", "aws/prod/**"}, "headed": {"pg:aws/live"}, "twice": {"aws/live"}} {
			if diff := cmp.Diff(want, bindings("o", name)); diff != "" {
				t.Errorf("after the renaming, %s: %s", name, diff)
			}
		}
		got, err := r.Resolve(ctx, Request{OrgID: "o", Names: []string{"plain"}})
		if err != nil || got.Secrets["TOKEN"] != "v" {
			t.Errorf("a job gets %v, %v", got.Secrets, err)
		}
		must(t, r.secrets.DeleteScope(ctx, by, "o", "aws/live"))
		for name, want := range map[string][]string{"plain": {"aws/prod/**"}, "headed": nil, "twice": nil} {
			if diff := cmp.Diff(want, bindings("o", name)); diff != "" {
				t.Errorf("after the deletion, %s: %s", name, diff)
			}
		}
		if diff := cmp.Diff([]string{"aws/prod"}, bindings("other", "plain")); diff != "" {
			t.Errorf("of another organisation: %s", diff)
		}
		if err := r.secrets.RenameScope(ctx, by, "o", "none", "x"); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("a scope that is not there: %v", err)
		}
	})
}

func TestAContextHasABoundedNumberOfParts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		r, ctx := newRig(t, db), t.Context()
		r.put("prod", nil, nil)
		c, err := r.Find(ctx, "o", "prod")
		must(t, err)
		must(t, db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			for i := range maxVariables {
				key := fmt.Sprintf("K%d", i)
				if _, err := tx.ExecContext(ctx, upsertVariable, c.ID, key, "v", false, 1); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, insertBinding, "b"+key, c.ID, key, "**", 1); err != nil {
					return err
				}
			}
			return nil
		}))
		must(t, r.SetVariable(ctx, "o", "prod", decide.Variable{Key: "K1", Value: "changed"}))
		if err := r.SetVariable(ctx, "o", "prod", decide.Variable{Key: "MORE", Value: "v"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("one variable more: %v", err)
		}
		if created, err := r.Bind(ctx, "o", "prod", decide.Binding{ScopePattern: "K1"}); created || err != nil {
			t.Errorf("a binding that exists: %v, %v", created, err)
		}
		if _, err := r.Bind(ctx, "o", "prod", decide.Binding{ScopePattern: "more"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("one binding more: %v", err)
		}
	})
}
