package auth

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestFirstStartMakesOneOwnerToken(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, _ := newTokens(db)
		file := filepath.Join(t.TempDir(), "admin-token")
		var outs [4]bytes.Buffer
		var wg sync.WaitGroup
		for i := range outs {
			wg.Go(func() {
				if err := tokens.EnsureOwner(t.Context(), Bootstrap{File: file, Out: &outs[i]}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		printed := ""
		for i := range outs {
			printed += outs[i].String()
		}
		found := regexp.MustCompile(`^KICI Admin Token: ([0-9a-f]{64})\n$`).FindStringSubmatch(printed)
		if found == nil {
			t.Fatalf("printed %q", printed)
		}
		id, err := tokens.Admin(t.Context(), found[1])
		if err != nil || id.Role != RoleOwner || id.Scoped() || id.Label != "bootstrap" {
			t.Errorf("got %+v, %v", id, err)
		}
		content, err := os.ReadFile(file)
		info, _ := os.Stat(file)
		if err != nil || string(content) != found[1]+"\n" || info.Mode().Perm() != 0o600 {
			t.Errorf("file: %v, mode %v", err, info.Mode())
		}
		if names, _ := os.ReadDir(filepath.Dir(file)); len(names) != 1 {
			t.Errorf("%d files left", len(names))
		}
	})
}

func TestNoTokenIsMadeBesideAnother(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, _ := newTokens(db)
		mustAdmin(t, tokens, NewAdminToken{Label: "mine", Role: RoleOwner})
		file := filepath.Join(t.TempDir(), "admin-token")
		var out bytes.Buffer
		if err := tokens.EnsureOwner(t.Context(), Bootstrap{File: file, Out: &out}); err != nil || out.Len() > 0 {
			t.Errorf("printed %q, %v", out.String(), err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("a file was written")
		}
	})
}

func TestTokenThatCannotBeWrittenIsNotMade(t *testing.T) {
	tokens, _ := newTokens(storetest.SQLite(t))
	var out bytes.Buffer
	if err := tokens.EnsureOwner(t.Context(), Bootstrap{File: filepath.Join(t.TempDir(), "none", "token"), Out: &out}); err == nil || out.Len() > 0 {
		t.Errorf("printed %q, %v", out.String(), err)
	}
	if list, _ := tokens.AdminTokens(t.Context()); len(list) != 0 {
		t.Errorf("%d tokens", len(list))
	}
}

func TestChosenTokenIsEnsuredAtEveryStart(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, _ := newTokens(db)
		first, second := strings.Repeat("a", 32), strings.Repeat("b", 40)
		ensure := func(token string) {
			t.Helper()
			var out bytes.Buffer
			if err := tokens.EnsureOwner(t.Context(), Bootstrap{Token: token, Out: &out}); err != nil || out.Len() > 0 {
				t.Fatalf("printed %q, %v", out.String(), err)
			}
			if id, err := tokens.Admin(t.Context(), token); err != nil || id.Role != RoleOwner || id.Label != "bootstrap" {
				t.Fatalf("got %+v, %v", id, err)
			}
		}
		ensure(first)
		ensure(first)
		ensure(second)
		if _, err := tokens.Admin(t.Context(), first); err != ErrInvalidToken {
			t.Errorf("replaced token: %v", err)
		}
		if list, _ := tokens.AdminTokens(t.Context()); len(list) != 1 {
			t.Errorf("%d tokens", len(list))
		}
		exec(t, db, `UPDATE admin_tokens SET revoked = TRUE`)
		ensure(second)
		if err := tokens.EnsureOwner(t.Context(), Bootstrap{Token: strings.Repeat("c", 31)}); err == nil || !strings.Contains(err.Error(), "32") {
			t.Errorf("short token: %v", err)
		}
	})
}

func TestChosenTokenOfAnotherIsRefused(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		tokens, _ := newTokens(db)
		token, _ := mustAdmin(t, tokens, NewAdminToken{Label: "mine", Role: RoleAuditor})
		err := tokens.EnsureOwner(t.Context(), Bootstrap{Token: token})
		if err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("got %v", err)
		}
		if id, err := tokens.Admin(t.Context(), token); err != nil || id.Role != RoleAuditor {
			t.Errorf("the other token is now %+v, %v", id, err)
		}
	})
}
