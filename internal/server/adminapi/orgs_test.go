package adminapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/auth"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestAnOrganisationDecidesForItself(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		const path = "/api/v1/admin/org-settings/global-workflows"
		call(t, s, s.Admin, "GET", path, nil).want(t, 400, "customerId required")
		call(t, s, s.Admin, "GET", path+"?customerId=default", nil).want(t, 200, `{"settings":{"customerId":"default","allowHttpNpmRegistries":false,`+
			`"allowSelfApproval":true,"approvalExpirySeconds":86400,"userCacheQuotaBytes":null,"userCacheTtlMs":null,"createdAt":null,"updatedAt":null}}`)
		for body, want := range map[string]string{
			`{}`:                       "customerId required",
			`{"customerId":"default"}`: "at least one setting is required",
			`{"customerId":"default","allowSelfApproval":"no"}`:    `"path":"allowSelfApproval"`,
			`{"customerId":"default","allowSelfAproval":false}`:    `"path":"allowSelfAproval"`,
			`{"customerId":"default","approvalExpirySeconds":0}`:   "approvalExpirySeconds must be",
			`{"customerId":"default","approvalExpirySeconds":1.5}`: `"path":"approvalExpirySeconds"`,
			`{"customerId":"default","userCacheQuotaBytes":1e300}`: `"path":"userCacheQuotaBytes"`,
			`{"customerId":"default","userCacheTtlMs":-1}`:         "userCacheTtlMs must be",
			`{"customerId":["default"],"allowSelfApproval":false}`: `"path":"customerId"`,
		} {
			call(t, s, s.Admin, "PATCH", path, body).want(t, 400, want)
		}
		call(t, s, s.Auditor, "GET", path+"?customerId=default", nil).want(t, 403, "secret.read")
		call(t, s, s.Admin, "PATCH", path, `{"customerId":"default","allowSelfApproval":false,"userCacheQuotaBytes":7}`).
			want(t, 200, `"allowSelfApproval":false,"approvalExpirySeconds":86400,"userCacheQuotaBytes":7,"userCacheTtlMs":null,"createdAt":"2026-01-01T00:00:00.000Z"`)
		call(t, s, s.Admin, "PATCH", path, `{"customerId":"default","allowSelfApproval":null,"userCacheQuotaBytes":null}`).
			want(t, 200, `"allowSelfApproval":true,"approvalExpirySeconds":86400,"userCacheQuotaBytes":null`)
		entries, _, err := s.Tokens.AccessLog(t.Context(), auth.AccessFilter{Action: "org_settings.update", Outcome: auth.OutcomeAllowed})
		check(t, err)
		want := map[string]any{"prior": map[string]any{"allowSelfApproval": true, "userCacheQuotaBytes": nil},
			"new": map[string]any{"allowSelfApproval": false, "userCacheQuotaBytes": 7.0}}
		if len(entries) != 2 {
			t.Fatalf("noted %+v", entries)
		}
		if diff := cmp.Diff(want, entries[1].Meta); diff != "" || entries[1].TargetID != "default" {
			t.Errorf("noted about %q: %s", entries[1].TargetID, diff)
		}
	})
}
