package client

import (
	"context"
	"net/url"

	"kici/internal/core/adminwire"
)

// Audit reads the audit log of secrets, newest first. The query is the API's.
func (c *Client) Audit(ctx context.Context, query url.Values) (adminwire.AuditList, error) {
	var out adminwire.AuditList
	return out, c.call(ctx, "GET", "/api/v1/admin/audit", query, nil, &out)
}

const accessPath = "/api/v1/admin/access-log"

// AccessLog reads a page of the access log, newest first. The query is the API's.
func (c *Client) AccessLog(ctx context.Context, query url.Values) (adminwire.AccessList, error) {
	var out adminwire.AccessList
	return out, c.call(ctx, "GET", accessPath, query, nil, &out)
}

// Access reads one entry of the access log. An organisation of "" is any.
func (c *Client) Access(ctx context.Context, org, id string) (adminwire.AccessEntry, error) {
	v := url.Values{}
	if org != "" {
		v.Set("orgId", org)
	}
	var out adminwire.AccessEntry
	return out, c.call(ctx, "GET", at(accessPath+"/", id), v, nil, &out)
}
