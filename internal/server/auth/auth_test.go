package auth

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/seal"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// testClock is a clock that a test moves.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newTokens(db *store.DB) (*Tokens, *testClock) {
	clock := &testClock{now: time.UnixMilli(1767225600000)}
	return New(db, clock.Now, slog.New(slog.DiscardHandler)), clock
}

func mustAdmin(t *testing.T, tokens *Tokens, n NewAdminToken) (token, id string) {
	t.Helper()
	token, id, err := tokens.CreateAdmin(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return token, id
}

func exec(t *testing.T, db *store.DB, query string, args ...any) {
	t.Helper()
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAdminTokenLives(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		until := clock.now.Add(time.Hour).UnixMilli()
		token, id := mustAdmin(t, tokens, NewAdminToken{Label: "ci", Role: RoleAdmin, RoutingKey: "github:1", Subject: "ann", ExpiresAt: &until})
		got, err := tokens.Admin(t.Context(), token)
		want := Identity{TokenID: id, Label: "ci", Role: RoleAdmin, RoutingKey: "github:1"}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("Admin: %v %s", err, diff)
		}
		if _, err := tokens.Admin(t.Context(), token+"x"); err != ErrInvalidToken {
			t.Errorf("other text: %v", err)
		}
		if _, err := tokens.Agent(t.Context(), token); err != ErrInvalidToken {
			t.Errorf("admin token as an agent's: %v", err)
		}
		list, err := tokens.AdminTokens(t.Context())
		used := clock.now.UnixMilli()
		wantRow := AdminToken{ID: id, Label: "ci", Role: RoleAdmin, RoutingKey: "github:1", Subject: "ann", CreatedAt: used, ExpiresAt: &until, LastUsedAt: &used}
		if diff := cmp.Diff([]AdminToken{wantRow}, list); err != nil || diff != "" {
			t.Errorf("AdminTokens: %v %s", err, diff)
		}
		clock.advance(time.Hour)
		if _, err := tokens.Admin(t.Context(), token); err != ErrInvalidToken {
			t.Errorf("expired: %v", err)
		}
	})
}

func TestStoredTokensAreHashes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, _ := newTokens(db)
		admin, _ := mustAdmin(t, tokens, NewAdminToken{Label: "a", Role: RoleOwner})
		agent, made, err := tokens.CreateStatic(t.Context(), NewAgentToken{})
		if err != nil {
			t.Fatal(err)
		}
		var adminHash, agentHash, prefix string
		db.Read().QueryRowContext(t.Context(), `SELECT token_hash FROM admin_tokens`).Scan(&adminHash)
		db.Read().QueryRowContext(t.Context(), `SELECT token_hash, token_prefix FROM agent_tokens`).Scan(&agentHash, &prefix)
		if adminHash != seal.HashToken(admin) || agentHash != seal.HashToken(agent) || prefix != agent[:12] || made.Prefix != prefix {
			t.Errorf("stored %q, %q, %q", adminHash, agentHash, prefix)
		}
	})
}

func TestLastUseIsWrittenOnceAMinute(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		token, _ := mustAdmin(t, tokens, NewAdminToken{Label: "a", Role: RoleOwner})
		start := clock.now.UnixMilli()
		var seen []int64
		for range 4 {
			if _, err := tokens.Admin(t.Context(), token); err != nil {
				t.Fatal(err)
			}
			list, _ := tokens.AdminTokens(t.Context())
			seen = append(seen, *list[0].LastUsedAt-start)
			clock.advance(25 * time.Second)
		}
		if diff := cmp.Diff([]int64{0, 0, 0, 75_000}, seen); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCreateAdminRefusesBadInput(t *testing.T) {
	tokens, clock := newTokens(storetest.SQLite(t))
	past := clock.now.UnixMilli()
	for name, n := range map[string]NewAdminToken{
		"no label":   {Role: RoleOwner},
		"long label": {Label: strings.Repeat("é", 256), Role: RoleOwner},
		"no role":    {Label: "a"},
		"other role": {Label: "a", Role: "root"},
		"past":       {Label: "a", Role: RoleOwner, ExpiresAt: &past},
		"no text":    {Label: "a\x00", Role: RoleOwner},
	} {
		if _, _, err := tokens.CreateAdmin(t.Context(), n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := tokens.CreateAdmin(t.Context(), NewAdminToken{Label: strings.Repeat("é", 255), Role: RoleOwner}); err != nil {
		t.Errorf("longest label: %v", err)
	}
}

func TestLastOwnerCannotBeRevoked(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		_, first := mustAdmin(t, tokens, NewAdminToken{Label: "first", Role: RoleOwner})
		_, scoped := mustAdmin(t, tokens, NewAdminToken{Label: "scoped", Role: RoleOwner, RoutingKey: "github:1"})
		soon := clock.now.Add(time.Minute).UnixMilli()
		mustAdmin(t, tokens, NewAdminToken{Label: "soon over", Role: RoleOwner, ExpiresAt: &soon})
		_, admin := mustAdmin(t, tokens, NewAdminToken{Label: "admin", Role: RoleAdmin})
		clock.advance(time.Hour)
		if err := tokens.RevokeAdmin(t.Context(), first); err != ErrLastOwner {
			t.Errorf("last owner: %v", err)
		}
		_, second := mustAdmin(t, tokens, NewAdminToken{Label: "second", Role: RoleOwner})
		for _, id := range []string{admin, scoped, first, first} { // a second revocation is no error
			if err := tokens.RevokeAdmin(t.Context(), id); err != nil {
				t.Errorf("revoke: %v", err)
			}
		}
		if err := tokens.RevokeAdmin(t.Context(), second); err != ErrLastOwner {
			t.Errorf("second, now last: %v", err)
		}
		if err := tokens.RevokeAdmin(t.Context(), "none"); err != ErrNotFound {
			t.Errorf("unknown: %v", err)
		}
	})
}

func TestTwoRevocationsAtOnceLeaveAnOwner(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, _ := newTokens(db)
		_, a := mustAdmin(t, tokens, NewAdminToken{Label: "a", Role: RoleOwner})
		_, b := mustAdmin(t, tokens, NewAdminToken{Label: "b", Role: RoleOwner})
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i, id := range []string{a, b} {
			wg.Go(func() { errs[i] = tokens.RevokeAdmin(t.Context(), id) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || errors.Join(errs...).Error() != ErrLastOwner.Error() {
			t.Errorf("revoked: %v", errs)
		}
	})
}

func TestAgentTokens(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		token, made, err := tokens.CreateStatic(t.Context(), NewAgentToken{Labels: []string{"linux"}, MandatoryLabels: []string{"gpu"}, CreatedBy: "cli:admin"})
		if err != nil {
			t.Fatal(err)
		}
		free, _, err := tokens.CreateStatic(t.Context(), NewAgentToken{})
		if err != nil {
			t.Fatal(err)
		}
		none, _, err := tokens.CreateStatic(t.Context(), NewAgentToken{Labels: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tokens.Agent(t.Context(), token)
		if diff := cmp.Diff(made, got); err != nil || diff != "" {
			t.Errorf("Agent: %v %s", err, diff)
		}
		if got, err := tokens.Agent(t.Context(), free); err != nil || got.Labels != nil {
			t.Errorf("unrestricted: labels %#v, %v", got.Labels, err)
		}
		if got, err := tokens.Agent(t.Context(), none); err != nil || got.Labels == nil || len(got.Labels) != 0 {
			t.Errorf("no labels allowed: labels %#v, %v", got.Labels, err)
		}
		if made.BoundAgent() != "" || made.SingleUse() {
			t.Error("a static token is bound")
		}
		clock.advance(time.Hour)
		got, _ = tokens.Agent(t.Context(), token)
		if list, err := tokens.AgentTokens(t.Context(), AgentStatic); err != nil || len(list) != 3 || *got.LastSeenAt != clock.now.Add(-time.Hour).UnixMilli() {
			t.Errorf("listed %d, seen %v, %v", len(list), got.LastSeenAt, err)
		}
		if err := tokens.RevokeAgent(t.Context(), made.ID); err != nil {
			t.Error(err)
		}
		if err := tokens.RevokeAgent(t.Context(), made.ID); err != ErrNotFound {
			t.Errorf("revoked twice: %v", err)
		}
		if _, err := tokens.Agent(t.Context(), token); err != ErrInvalidToken {
			t.Errorf("revoked: %v", err)
		}
		if list, err := tokens.AgentTokens(t.Context(), ""); err != nil || len(list) != 2 {
			t.Errorf("listed %d, %v", len(list), err)
		}
		if _, _, err := tokens.CreateStatic(t.Context(), NewAgentToken{Labels: []string{""}}); !errors.Is(err, ErrInvalid) {
			t.Errorf("empty label: %v", err)
		}
	})
}

func ephemeral(t *testing.T, tokens *Tokens, db *store.DB, n NewAgentToken) (token string, made AgentToken) {
	t.Helper()
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		token, made, err = tokens.CreateEphemeralTx(ctx, tx, n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return token, made
}

func TestEphemeralTokensAreBoundAndExpire(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		static, _, _ := tokens.CreateStatic(t.Context(), NewAgentToken{})
		token, made := ephemeral(t, tokens, db, NewAgentToken{Labels: []string{"l"}, Agent: "scaler-1", Life: time.Hour})
		got, err := tokens.Agent(t.Context(), token)
		if err != nil || got.BoundAgent() != "scaler-1" || got.SingleUse() || got.Type != AgentEphemeral {
			t.Errorf("got %+v, %v", got, err)
		}
		clock.advance(time.Hour)
		if _, err := tokens.Agent(t.Context(), token); err != ErrInvalidToken {
			t.Errorf("expired: %v", err)
		}
		expired, err := tokens.ExpiredAgentTokens(t.Context())
		if err != nil || len(expired) != 1 || expired[0].ID != made.ID {
			t.Errorf("expired %+v, %v", expired, err)
		}
		if err := tokens.DeleteAgent(t.Context(), made.ID); err != nil {
			t.Error(err)
		}
		if list, _ := tokens.AgentTokens(t.Context(), AgentEphemeral); len(list) != 0 {
			t.Errorf("%d left", len(list))
		}
		if _, err := tokens.Agent(t.Context(), static); err != nil {
			t.Errorf("static token: %v", err)
		}
	})
}

func TestSingleUseTokenAdmitsOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, clock := newTokens(db)
		token, made := ephemeral(t, tokens, db, NewAgentToken{Agent: "host-1", SingleUse: true, Life: 10 * time.Minute})
		if made.BoundAgent() != "host-1" || !made.SingleUse() || made.CreatedBy != "bootstrap:host-1" {
			t.Errorf("made %+v", made)
		}
		won := make([]bool, 4)
		var wg sync.WaitGroup
		for i := range won {
			wg.Go(func() {
				var err error
				if won[i], err = tokens.Consume(t.Context(), made.ID); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		count := 0
		for _, w := range won {
			if w {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%d agents admitted", count)
		}
		if _, err := tokens.Agent(t.Context(), token); err != ErrInvalidToken {
			t.Errorf("used up: %v", err)
		}
		_, late := ephemeral(t, tokens, db, NewAgentToken{Agent: "host-2", SingleUse: true, Life: time.Minute})
		clock.advance(time.Hour)
		if ok, err := tokens.Consume(t.Context(), late.ID); ok || err != nil {
			t.Errorf("expired: %v %v", ok, err)
		}
	})
}

func TestUnreadableLabels(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, _ := newTokens(db)
		token, made, _ := tokens.CreateStatic(t.Context(), NewAgentToken{Labels: []string{"a"}, MandatoryLabels: []string{"b"}})
		exec(t, db, `UPDATE agent_tokens SET mandatory_labels = '{'`)
		if got, err := tokens.Agent(t.Context(), token); err != nil || got.MandatoryLabels != nil {
			t.Errorf("mandatory labels: %+v, %v", got, err)
		}
		for _, bad := range []string{"{", "null", `{"a":1}`} {
			exec(t, db, `UPDATE agent_tokens SET labels = $1`, bad)
			if _, err := tokens.Agent(t.Context(), token); !errors.Is(err, ErrTokenState) {
				t.Errorf("labels %q: %v", bad, err)
			}
		}
		if list, err := tokens.AgentTokens(t.Context(), ""); err != nil || len(list) != 1 || list[0].ID != made.ID {
			t.Errorf("list: %+v, %v", list, err)
		}
	})
}

func TestRoles(t *testing.T) {
	for _, p := range []Permission{TokenManage, KeyRotate} {
		if !RoleOwner.May(p) || RoleAdmin.May(p) || RoleAuditor.May(p) {
			t.Errorf("%s is not the owner's alone", p)
		}
	}
	readable := map[Permission]bool{ContextRead: true, AuditRead: true, RunRead: true, EventLogRead: true, AccessLogRead: true, EventDLQRead: true, CITrustRead: true}
	for p := range grants {
		if !RoleOwner.May(p) {
			t.Errorf("owner lacks %s", p)
		}
		if RoleAuditor.May(p) != readable[p] {
			t.Errorf("auditor: %s is %v", p, RoleAuditor.May(p))
		}
	}
	if Role("root").May(RunRead) || RoleOwner.May("unknown.permission") || Role("root").Valid() {
		t.Error("unknown role or permission is granted")
	}
}
