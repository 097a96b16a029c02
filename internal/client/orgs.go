package client

import (
	"context"
	"net/url"

	"kici/internal/core/adminwire"
)

const orgSettingsPath = "/api/v1/admin/org-settings/global-workflows"

// OrgSettings reads what an organisation has decided for itself.
func (c *Client) OrgSettings(ctx context.Context, org string) (adminwire.OrgSettings, error) {
	var out adminwire.OneOrgSettings
	return out.Settings, c.call(ctx, "GET", orgSettingsPath, url.Values{"customerId": {org}}, nil, &out)
}

// SetOrgSettings changes some of it. Fields are members of the API's body; one that is absent changes nothing, nil is the default.
func (c *Client) SetOrgSettings(ctx context.Context, org string, fields map[string]any) (adminwire.OrgSettings, error) {
	body := map[string]any{"customerId": org}
	for k, v := range fields {
		body[k] = v
	}
	var out adminwire.OneOrgSettings
	return out.Settings, c.call(ctx, "PATCH", orgSettingsPath, nil, body, &out)
}
