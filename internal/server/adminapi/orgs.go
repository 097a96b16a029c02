package adminapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/server/auth"
	"kici/internal/server/orgs"
)

// orgRoutes are about what organisations decide for themselves. The path has its name of one of the things that may be decided
// there.
func (a *API) orgRoutes() []route {
	const path = base + "/org-settings/global-workflows"
	return []route{
		{"GET " + path, auth.SecretRead, true, a.showOrgSettings},
		{"PATCH " + path, auth.SecretWrite, true, a.changeOrgSettings},
	}
}

func (a *API) showOrgSettings(r *http.Request) (answer, error) {
	if err := required(r, "customerId"); err != nil {
		return answer{}, err
	}
	org := r.URL.Query().Get("customerId")
	s, err := orgs.Read(r.Context(), a.DB.Read(), org)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.OneOrgSettings{Settings: orgRow(org, s)})
}

// changeOrgSettings leaves what is not named as it is; null is the default. A member that is no setting is refused, since
// whoever sends it believes that it holds from now on.
func (a *API) changeOrgSettings(r *http.Request) (answer, error) {
	var m members
	if err := read(r, &m); err != nil {
		return answer{}, err
	}
	org, err := m.text("customerId")
	switch {
	case err != nil:
		return answer{}, err
	case org == "":
		return answer{}, refuse(http.StatusBadRequest, "customerId required")
	case len(m) == 0:
		return answer{}, refuse(http.StatusBadRequest, "at least one setting is required")
	}
	ofOrg(r, org)
	before, after, err := orgs.Change(r.Context(), a.DB, a.Clock, org, m.applyOrg)
	e := entry(r, "org_settings.update", "org_settings", org)
	if err == nil {
		e.Meta = changedSettings(orgRow(org, before), orgRow(org, after))
	}
	a.noteEntry(r, a.judged(e, err))
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.OneOrgSettings{Settings: orgRow(org, after)})
}

// applyOrg puts the members of a body into settings.
func (m members) applyOrg(s *orgs.Settings) error {
	f, normal := fields{members: m}, orgs.Defaults()
	set(&f, "allowHttpNpmRegistries", &s.AllowHTTPRegistries, normal.AllowHTTPRegistries)
	set(&f, "allowSelfApproval", &s.AllowSelfApproval, normal.AllowSelfApproval)
	set(&f, "approvalExpirySeconds", &s.ApprovalExpirySeconds, normal.ApprovalExpirySeconds)
	set(&f, "userCacheQuotaBytes", &s.UserCacheQuota, nil)
	set(&f, "userCacheTtlMs", &s.UserCacheTTLMs, nil)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(orgMembers, name) {
			f.problems = append(f.problems, problem(name, "unrecognized_keys", "must be one of "+strings.Join(orgMembers, ", ")))
		}
	}
	if len(f.problems) > 0 {
		return invalid(f.problems...)
	}
	return nil
}

var orgMembers = []string{"allowHttpNpmRegistries", "allowSelfApproval", "approvalExpirySeconds", "userCacheQuotaBytes", "userCacheTtlMs"}

// changedSettings is what a change changed, for the access log.
func changedSettings(before, after adminwire.OrgSettings) map[string]any {
	prior, next := map[string]any{}, map[string]any{}
	old, now := membersOf(before), membersOf(after)
	for _, name := range orgMembers {
		if old[name] != now[name] {
			prior[name], next[name] = old[name], now[name]
		}
	}
	return map[string]any{"prior": prior, "new": next}
}

// membersOf are the members of a document, numbers and truths.
func membersOf(s adminwire.OrgSettings) (m map[string]any) {
	raw, err := json.Marshal(s)
	if err != nil || json.Unmarshal(raw, &m) != nil {
		panic("settings are no document") // plain values can always be encoded
	}
	return m
}

func orgRow(org string, s orgs.Settings) adminwire.OrgSettings {
	return adminwire.OrgSettings{CustomerID: org, AllowHTTPNpmRegistries: s.AllowHTTPRegistries, AllowSelfApproval: s.AllowSelfApproval,
		ApprovalExpirySeconds: s.ApprovalExpirySeconds, UserCacheQuotaBytes: s.UserCacheQuota, UserCacheTTLMs: s.UserCacheTTLMs,
		CreatedAt: adminwire.At(s.CreatedAt), UpdatedAt: adminwire.At(s.UpdatedAt)}
}
