package server

import (
	"testing"
	"time"

	"kici/internal/server/orgs"
)

func TestAnOrganisationsOwnCacheLimitsHold(t *testing.T) {
	eachServer(t, func(t *testing.T, s *Server) {
		quota, ttl := int64(7), int64(60_000)
		_, _, err := orgs.Change(t.Context(), s.db, s.clock, "o", func(o *orgs.Settings) error {
			o.UserCacheQuota, o.UserCacheTTLMs = &quota, &ttl
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		own, err := s.cacheLimits(t.Context(), "o")
		if err != nil || own.UserQuota != 7 || own.UserTTL != time.Minute || own.MaxTarball != s.settings.Storage.Limits.MaxTarball {
			t.Errorf("limits %+v, %v", own, err)
		}
		if others, err := s.cacheLimits(t.Context(), "other"); err != nil || others != s.settings.Storage.Limits {
			t.Errorf("of another organisation: %+v, %v", others, err)
		}
	})
}
