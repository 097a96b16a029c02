package secrets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/seal"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const (
	keyA = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	keyB = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

var (
	start = time.UnixMilli(1767225600000)
	ann   = Actor{UserID: "tok-1", Role: "owner", RoutingKey: "github:1"}
)

func keyring(t *testing.T, current, previous string) *seal.Keyring {
	t.Helper()
	k, err := seal.NewKeyring(current, previous)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newStore(t *testing.T, db *store.DB) *Store {
	return New(db, keyring(t, keyA, ""), func() time.Time { return start })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, db *store.DB, query string, args ...any) {
	t.Helper()
	must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}))
}

func TestSetAndResolve(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		ctx := t.Context()
		must(t, s.Set(ctx, ann, "o", DefaultScope, "TOKEN", "old"))
		must(t, s.Set(ctx, ann, "o", DefaultScope, "TOKEN", "new"))
		must(t, s.Set(ctx, ann, "o", "pg:default", "EMPTY", ""))
		must(t, s.Set(ctx, ann, "o", DefaultScope, "a.b-c_1", "é\nü"))
		must(t, s.Set(ctx, ann, "other", DefaultScope, "TOKEN", "theirs"))
		must(t, s.Set(ctx, ann, "o", "default/deeper", "DEEP", "x"))
		got, err := s.Resolve(ctx, "o", []string{DefaultScope})
		if diff := cmp.Diff(map[string]string{"TOKEN": "new", "EMPTY": "", "a.b-c_1": "é\nü"}, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		must(t, s.Delete(ctx, ann, "o", DefaultScope, "TOKEN"))
		must(t, s.Delete(ctx, ann, "o", DefaultScope, "TOKEN"))
		if got, err := s.Resolve(ctx, "o", []string{DefaultScope}); err != nil || len(got) != 2 {
			t.Errorf("after delete: %d values, %v", len(got), err)
		}
		if got, err := s.Resolve(ctx, "o", []string{"none"}); err != nil || got == nil || len(got) != 0 {
			t.Errorf("absent scope: %v, %v", got, err)
		}
	})
}

func TestDeeperScopeWinsThenTheFirst(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		for scope, value := range map[string]string{"aws": "a", "aws/prod": "b", "gcp/prod": "c"} {
			must(t, s.Set(t.Context(), ann, "o", scope, "K", value))
		}
		for scopes, want := range map[string]string{"aws,aws/prod,gcp/prod": "b", "aws,gcp/prod,aws/prod": "c", "aws": "a"} {
			got, err := s.Resolve(t.Context(), "o", strings.Split(scopes, ","))
			if err != nil || got["K"] != want {
				t.Errorf("%s: %q, %v", scopes, got["K"], err)
			}
		}
	})
}

func TestInputRules(t *testing.T) {
	s := newStore(t, storetest.SQLite(t))
	tests := []struct {
		name                   string
		org, scope, key, value string
		want                   error
	}{
		{"dots and dashes", "o", "a.b/c-d/_e", "K.1-2_3", "v", nil},
		{"longest value", "o", "s", "K", strings.Repeat("x", MaxValue), nil},
		{"value too long", "o", "s", "K", strings.Repeat("x", MaxValue+1), ErrInvalid},
		{"value no text", "o", "s", "K", "\xff", ErrInvalid},
		{"no key", "o", "s", "", "v", ErrInvalid},
		{"colon in key", "o", "s", "a:b", "v", ErrInvalid},
		{"slash in key", "o", "s", "a/b", "v", ErrInvalid},
		{"sentinel", "o", "s", "__empty__", "v", ErrReserved},
		{"no scope", "o", "", "K", "v", ErrInvalid},
		{"unknown backend", "o", "vault:s", "K", "v", ErrInvalid},
		{"empty segment", "o", "a//b", "K", "v", ErrInvalid},
		{"climbing", "o", "a/../b", "K", "v", ErrInvalid},
		{"reserved scope", "o", "__source__/1", "K", "v", ErrReserved},
		{"reserved behind the backend", "o", "pg:__source__/1", "K", "v", ErrReserved},
		{"reserved inside", "o", "a/__x__", "K", "v", ErrReserved},
		{"long scope", "o", strings.Repeat("s", 256), "K", "v", ErrInvalid},
		{"colon in organisation", "o:p", "s", "K", "v", ErrInvalid},
		{"no organisation", "", "s", "K", "v", ErrInvalid},
	}
	for _, tt := range tests {
		err := s.Set(t.Context(), ann, tt.org, tt.scope, tt.key, tt.value)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && len(tt.value) > 3 && strings.Contains(err.Error(), tt.value) {
			t.Errorf("%s: the error shows the value", tt.name)
		}
	}
}

func TestScopes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		ctx := t.Context()
		must(t, s.CreateScope(ctx, ann, "o", "b"))
		must(t, s.Set(ctx, ann, "o", "b", "K", "v"))
		must(t, s.CreateScope(ctx, ann, "o", "b")) // changes nothing
		must(t, s.Set(ctx, ann, "o", "B/a", "Z", "v"))
		must(t, s.Set(ctx, ann, "o", "B/a", "A", "v"))
		must(t, s.SetInternal(ctx, ann, "o", "__source__/1", "K", "v"))
		scopes, err := s.Scopes(ctx, "o")
		if diff := cmp.Diff([]string{"B/a", "b"}, scopes); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		keys, err := s.Keys(ctx, "o", "B/a")
		if diff := cmp.Diff([]string{"A", "Z"}, keys); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		if keys, err := s.Keys(ctx, "o", "b"); err != nil || len(keys) != 1 {
			t.Errorf("keys beside a sentinel: %v, %v", keys, err)
		}
		if got, err := s.Resolve(ctx, "o", []string{"b"}); err != nil || len(got) != 1 {
			t.Errorf("resolved beside a sentinel: %d, %v", len(got), err)
		}
		if _, err := s.Keys(ctx, "o", "__source__/1"); !errors.Is(err, ErrReserved) {
			t.Errorf("keys of an internal scope: %v", err)
		}
		must(t, s.DeleteScope(ctx, ann, "o", "b"))
		if scopes, _ := s.Scopes(ctx, "o"); len(scopes) != 1 {
			t.Errorf("after delete: %v", scopes)
		}
	})
}

func TestRenameScope(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		ctx := t.Context()
		must(t, s.CreateScope(ctx, ann, "o", "old"))
		must(t, s.Set(ctx, ann, "o", "old", "K", "v"))
		must(t, s.CreateScope(ctx, ann, "o", "taken"))
		if err := s.RenameScope(ctx, ann, "o", "old", "taken"); !errors.Is(err, ErrExists) {
			t.Errorf("taken: %v", err)
		}
		if err := s.RenameScope(ctx, ann, "o", "none", "new"); !errors.Is(err, ErrNotFound) {
			t.Errorf("absent: %v", err)
		}
		must(t, s.RenameScope(ctx, ann, "o", "old", "new"))
		got, err := s.Resolve(ctx, "o", []string{"new", "old"})
		if diff := cmp.Diff(map[string]string{"K": "v"}, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	})
}

func TestChangesAreAuditedWithoutValues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		ctx := t.Context()
		must(t, s.CreateScope(ctx, ann, "o", "s"))
		must(t, s.Set(ctx, ann, "o", "s", "K", "planted-value"))
		must(t, s.Delete(ctx, ann, "o", "s", "K"))
		must(t, s.RenameScope(ctx, ann, "o", "s", "t"))
		must(t, s.DeleteScope(ctx, ann, "o", "t"))
		if err := s.RenameScope(ctx, ann, "o", "none", "new"); err == nil {
			t.Error("renamed nothing")
		}
		entries, err := s.Audit(ctx, AuditFilter{})
		if err != nil {
			t.Fatal(err)
		}
		var actions []string
		for _, e := range entries {
			actions = append(actions, e.Action)
		}
		if diff := cmp.Diff([]string{"deleteScope", "renameScope", "deleteSecret", "setSecret", "createScope"}, actions); diff != "" {
			t.Error(diff)
		}
		set, err := s.Audit(ctx, AuditFilter{Action: "setSecret", Context: "s", RoutingKey: "github:1", From: start.UnixMilli(), To: start.UnixMilli() + 1})
		want := []AuditEntry{{At: start.UnixMilli(), Action: "setSecret", Context: "s", RoutingKey: "github:1", Keys: []string{"K"}, Outcome: "allowed", UserID: "tok-1", Role: "owner"}}
		if err == nil && len(set) == 1 {
			want[0].ID = set[0].ID
		}
		if diff := cmp.Diff(want, set); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		var dump string
		db.Read().QueryRowContext(ctx, `SELECT secret_keys FROM secret_audit_log WHERE action = 'setSecret'`).Scan(&dump)
		if strings.Contains(dump, "planted") {
			t.Errorf("audit shows a value: %s", dump)
		}
	})
}

func TestChangeThatCannotBeAuditedDoesNotHappen(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		exec(t, db, `DROP TABLE secret_audit_log`)
		if err := s.Set(t.Context(), ann, "o", "s", "K", "v"); err == nil {
			t.Error("no error")
		}
		if keys, err := s.Keys(t.Context(), "o", "s"); err != nil || len(keys) != 0 {
			t.Errorf("%v, %v", keys, err)
		}
	})
}

func TestRowMovedToAnotherPlaceDoesNotDecrypt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		must(t, s.Set(t.Context(), ann, "o", "prod", "K", "planted-value"))
		var stored string
		db.Read().QueryRowContext(t.Context(), `SELECT encrypted_value FROM scoped_secrets`).Scan(&stored)
		if stored == "" || strings.Contains(stored, "planted") {
			t.Errorf("stored %q", stored)
		}
		exec(t, db, `UPDATE scoped_secrets SET scope = 'dev'`)
		got, err := s.Resolve(t.Context(), "o", []string{"dev"})
		if err == nil || got != nil || !strings.Contains(err.Error(), "o:dev:K") || strings.Contains(err.Error(), "planted") {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestKeysOfTheServer(t *testing.T) {
	db := storetest.SQLite(t)
	must(t, newStore(t, db).Set(t.Context(), ann, "o", "s", "K", "v"))
	clock := func() time.Time { return start }
	rotating := New(db, keyring(t, keyB, keyA), clock)
	if got, err := rotating.Resolve(t.Context(), "o", []string{"s"}); err != nil || got["K"] != "v" {
		t.Errorf("with the previous key: %v, %v", got, err)
	}
	if _, err := New(db, keyring(t, keyB, ""), clock).Resolve(t.Context(), "o", []string{"s"}); err == nil {
		t.Error("another key reads it")
	}
	none := New(db, nil, clock)
	if _, err := none.Resolve(t.Context(), "o", []string{"s"}); !errors.Is(err, ErrNotConfigured) {
		t.Errorf("no key: %v", err)
	}
	if err := none.Set(t.Context(), ann, "o", "s", "K", "v"); !errors.Is(err, ErrNotConfigured) {
		t.Errorf("no key: %v", err)
	}
	if _, err := none.Scopes(t.Context(), "o"); !errors.Is(err, ErrNotConfigured) {
		t.Errorf("no key: %v", err)
	}
}

func TestJobsGetNothingReserved(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStore(t, db)
		must(t, s.SetInternal(t.Context(), ann, "o", "__source__/x", "K", "v"))
		must(t, s.SetInternal(t.Context(), ann, SystemOrg, "s", "K", "v"))
		for _, r := range []struct{ org, scope string }{
			{"o", "__source__/x"}, {"o", "pg:__source__/x"}, {"o", "a/__x__"}, {SystemOrg, "s"},
		} {
			got, err := s.ResolveFor(t.Context(), Job{RunID: "run-1"}, r.org, []string{"default", r.scope})
			if !errors.Is(err, ErrReserved) || got != nil || strings.Contains(err.Error(), "source") {
				t.Errorf("%v: %v, %v", r, got, err)
			}
		}
		denied, err := s.Audit(t.Context(), AuditFilter{Action: "resolve"})
		if err != nil || len(denied) != 4 || denied[0].Outcome != "denied" || denied[0].RunID != "run-1" {
			t.Errorf("%+v, %v", denied, err)
		}
		if value, ok, err := s.Named(t.Context(), "o", "__source__/x", "K"); value != "v" || !ok || err != nil {
			t.Errorf("the server itself: %q %v %v", value, ok, err)
		}
		if _, ok, err := s.Named(t.Context(), "o", "__source__/x", "none"); ok || err != nil {
			t.Errorf("absent: %v %v", ok, err)
		}
	})
}

func TestResolutionsAreSampledByRun(t *testing.T) {
	for trace, want := range map[string]uint32{"run-1": 0x9aab20d1, "unknown": 0x01ee3490} {
		if got := traceHash(trace) * (1 << 32); uint32(got) != want {
			t.Errorf("%s: %08x, want %08x", trace, uint32(got), want)
		}
	}
	s := newStore(t, storetest.SQLite(t))
	must(t, s.Set(t.Context(), ann, "o", "s", "K", "v"))
	for _, job := range []Job{{RunID: "run-1"}, {}} {
		if _, err := s.ResolveFor(t.Context(), job, "o", []string{"s"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Resolve(t.Context(), "o", []string{"none"}); err != nil { // nothing resolved, nothing written
		t.Fatal(err)
	}
	got, err := s.Audit(t.Context(), AuditFilter{Action: "resolve"})
	if err != nil || len(got) != 1 || cmp.Diff([]string{"K"}, got[0].Keys) != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPurgingLeavesTheServersOwn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, ctx, by := newStore(t, db), t.Context(), Actor{UserID: "tok", Role: "admin"}
		fill := func() {
			t.Helper()
			for _, org := range []string{"a", "b"} {
				must(t, s.Set(ctx, by, org, "x/y", "K", "v"))
				must(t, s.Set(ctx, by, org, "x/y", "L", "v"))
				must(t, s.CreateScope(ctx, by, org, "empty"))
				must(t, s.SetInternal(ctx, by, org, "__source__/1", "K", "v"))
			}
			must(t, s.SetInternal(ctx, by, SystemOrg, "plain", "K", "v"))
		}
		left := func() []string {
			t.Helper()
			names, err := s.texts(ctx, `SELECT org_id || '/' || scope || '/' || key FROM scoped_secrets`)
			must(t, err)
			return names
		}
		own := []string{SystemOrg + "/plain/K", "a/__source__/1/K", "b/__source__/1/K"}
		ofB := []string{"b/empty/__empty__", "b/x/y/K", "b/x/y/L"}
		for _, tt := range []struct {
			org     string
			deleted int64
			left    []string
		}{{"a", 2, append(slices.Clone(own), ofB...)}, {"", 4, own}, {SystemOrg, 1, append([]string{"a/__source__/1/K", "b/__source__/1/K"}, append([]string{"a/empty/__empty__", "a/x/y/K", "a/x/y/L"}, ofB...)...)}} {
			fill()
			n, err := s.Purge(ctx, by, tt.org)
			must(t, err)
			want := slices.Sorted(slices.Values(tt.left))
			if diff := cmp.Diff(want, left()); n != tt.deleted || diff != "" {
				t.Errorf("of %q: %d deleted, left (- want, + got):\n%s", tt.org, n, diff)
			}
		}
		entries, err := s.Audit(ctx, AuditFilter{Action: "purgeSecrets"})
		if err != nil || len(entries) != 3 || entries[2].Context != "a" || entries[1].Context != "*" {
			t.Errorf("audited %+v, %v", entries, err)
		}
		if _, err := s.Purge(ctx, by, "a:b"); !errors.Is(err, ErrInvalid) {
			t.Errorf("of no organisation: %v", err)
		}
	})
}

func TestAnOrganisationHasABoundedNumberOfSecrets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, ctx, by := newStore(t, db), t.Context(), Actor{UserID: "tok"}
		must(t, db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO scoped_secrets (org_id, scope, key, encrypted_value, key_version, created_at, updated_at)
				WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
				SELECT 'o', 's', 'K' || CAST(i AS TEXT), 'x', 1, 1, 1 FROM n`, maxSecrets)
			return err
		}))
		must(t, s.Set(ctx, by, "o", "s", "K1", "changed"))
		if err := s.Set(ctx, by, "o", "s", "MORE", "v"); !errors.Is(err, ErrInvalid) {
			t.Errorf("one secret more: %v", err)
		}
		must(t, s.Set(ctx, by, "other", "s", "MORE", "v"))
	})
}
