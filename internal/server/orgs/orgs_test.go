package orgs

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func at(millis int64) func() time.Time { return func() time.Time { return time.UnixMilli(millis) } }

func TestAnOrganisationHasTheDefaultsUntilItDecides(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		want := Defaults()
		if got, err := Read(ctx, db.Read(), "o"); err != nil || !cmp.Equal(want, got) {
			t.Errorf("at first: %+v, %v", got, err)
		}
		quota := int64(7)
		before, after, err := Change(ctx, db, at(5), "o", func(s *Settings) error {
			s.AllowSelfApproval, s.AllowHTTPRegistries, s.UserCacheQuota, s.ApprovalExpirySeconds = false, true, &quota, 60
			return nil
		})
		want.CreatedAt, want.UpdatedAt = 5, 5
		if err != nil || !cmp.Equal(want, before) {
			t.Errorf("before: %+v, %v", before, err)
		}
		want.AllowSelfApproval, want.AllowHTTPRegistries, want.UserCacheQuota, want.ApprovalExpirySeconds = false, true, &quota, 60
		got, err := Read(ctx, db.Read(), "o")
		if diff := cmp.Diff(want, got); err != nil || diff != "" || !cmp.Equal(after, got) {
			t.Errorf("%v %s, after %+v", err, diff, after)
		}
		_, after, err = Change(ctx, db, at(9), "o", func(s *Settings) error { s.UserCacheQuota = nil; return nil })
		if err != nil || after.UserCacheQuota != nil || after.UpdatedAt != 9 || after.CreatedAt != 5 {
			t.Errorf("cleared: %+v, %v", after, err)
		}
		if got, err := Read(ctx, db.Read(), "other"); err != nil || !cmp.Equal(Defaults(), got) {
			t.Errorf("another organisation: %+v, %v", got, err)
		}
	})
}

func TestWhatIsOutOfBoundsIsNotStored(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		zero, large := int64(0), int64(1)<<62
		for name, change := range map[string]func(*Settings){
			"approvalExpirySeconds must be": func(s *Settings) { s.ApprovalExpirySeconds = 0 },
			"approvalExpirySeconds":         func(s *Settings) { s.ApprovalExpirySeconds = 1 << 62 },
			"userCacheQuotaBytes must be":   func(s *Settings) { s.UserCacheQuota = &zero },
			"userCacheQuotaBytes":           func(s *Settings) { s.UserCacheQuota = &large },
			"userCacheTtlMs must be":        func(s *Settings) { s.UserCacheTTLMs = &zero },
			"userCacheTtlMs":                func(s *Settings) { s.UserCacheTTLMs = &large },
		} {
			_, _, err := Change(t.Context(), db, at(1), "o", func(s *Settings) error { change(s); return nil })
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, org := range []string{"", strings.Repeat("o", maxName+1), "a\x00b", "a\xff"} {
			if _, _, err := Change(t.Context(), db, at(1), org, func(*Settings) error { return nil }); !errors.Is(err, ErrInvalid) {
				t.Errorf("organisation %.10q: %v", org, err)
			}
		}
		if got, err := Read(t.Context(), db.Read(), "o"); err != nil || !cmp.Equal(Defaults(), got) {
			t.Errorf("stored: %+v, %v", got, err)
		}
	})
}

func TestChangesOfTwoDoNotUndoEachOther(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		var both sync.WaitGroup
		for _, change := range []func(*Settings){func(s *Settings) { s.AllowSelfApproval = false }, func(s *Settings) { s.AllowHTTPRegistries = true }} {
			both.Go(func() {
				if _, _, err := Change(context.Background(), db, at(1), "o", func(s *Settings) error { change(s); return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if got, err := Read(t.Context(), db.Read(), "o"); err != nil || got.AllowSelfApproval || !got.AllowHTTPRegistries {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
