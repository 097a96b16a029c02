package client

import (
	"context"
	"net/url"
	"strconv"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// CreateToken makes an admin token. Its text is in this answer only.
func (c *Client) CreateToken(ctx context.Context, n adminwire.NewAdminToken) (adminwire.CreatedAdminToken, error) {
	var out adminwire.CreatedAdminToken
	return out, c.call(ctx, "POST", "/api/v1/admin/tokens", nil, n, &out)
}

// Tokens lists the admin tokens, newest first.
func (c *Client) Tokens(ctx context.Context) ([]adminwire.AdminToken, error) {
	var out adminwire.AdminTokenList
	return out.Tokens, c.call(ctx, "GET", "/api/v1/admin/tokens", nil, nil, &out)
}

// RevokeToken ends an admin token.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.call(ctx, "DELETE", at("/api/v1/admin/tokens/", id), nil, nil, nil)
}

// CreateAgentToken makes a token for agents. Its text is in this answer only.
func (c *Client) CreateAgentToken(ctx context.Context, n adminwire.NewAgentToken) (adminwire.CreatedAgentToken, error) {
	var out adminwire.CreatedAgentToken
	return out, c.call(ctx, "POST", "/api/v1/agent-tokens", nil, n, &out)
}

// AgentTokens lists the agent tokens that are not revoked.
func (c *Client) AgentTokens(ctx context.Context) ([]adminwire.AgentToken, error) {
	var out adminwire.AgentTokenList
	return out.Tokens, c.call(ctx, "GET", "/api/v1/agent-tokens", nil, nil, &out)
}

// RevokeAgentToken ends an agent token and says how many connections that closed.
func (c *Client) RevokeAgentToken(ctx context.Context, id string) (int, error) {
	var out adminwire.Kicked
	return out.Kicked, c.call(ctx, "DELETE", at("/api/v1/agent-tokens/", id), nil, nil, &out)
}

const sourcesPath = "/api/v1/admin/generic-sources"

// CreateSource makes a generic or local source.
func (c *Client) CreateSource(ctx context.Context, s adminwire.SourceSettings) (adminwire.Source, error) {
	var out adminwire.OneSource
	return out.Source, c.call(ctx, "POST", sourcesPath, nil, s, &out)
}

// Sources lists an organisation's sources.
func (c *Client) Sources(ctx context.Context, org string) ([]adminwire.Source, error) {
	var out adminwire.SourceList
	return out.Sources, c.call(ctx, "GET", sourcesPath, url.Values{"orgId": {org}}, nil, &out)
}

// DeleteSource ends a source.
func (c *Client) DeleteSource(ctx context.Context, id string) error {
	return c.call(ctx, "DELETE", at(sourcesPath+"/", id), nil, nil, nil)
}

// EnableSource turns a source on or off.
func (c *Client) EnableSource(ctx context.Context, id string, enabled bool) error {
	verb := "/disable"
	if enabled {
		verb = "/enable"
	}
	return c.call(ctx, "POST", at(sourcesPath+"/", id, verb), nil, nil, nil)
}

// Trigger starts what a push of the ref would start.
func (c *Client) Trigger(ctx context.Context, sourceID, repo, ref string) (adminwire.Triggered, error) {
	var out adminwire.Triggered
	return out, c.call(ctx, "POST", at(sourcesPath+"/", sourceID, "/trigger"), nil, adminwire.Trigger{Repo: repo, Ref: ref}, &out)
}

const deliveriesPath = "/api/v1/admin/event-log"

// Deliveries lists what sources have sent, newest first. A status or an event of "" is any.
func (c *Client) Deliveries(ctx context.Context, org, status, event string, limit int) (adminwire.DeliveryList, error) {
	v := url.Values{"orgId": {org}}
	for name, value := range map[string]string{"status": status, "event": event} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	var out adminwire.DeliveryList
	return out, c.call(ctx, "GET", deliveriesPath, v, nil, &out)
}

// Delivery reads what became of one delivery, with what its sender sent where that is asked for.
func (c *Client) Delivery(ctx context.Context, org, id string, payload bool) (adminwire.Delivery, error) {
	v := url.Values{"orgId": {org}}
	if payload {
		v.Set("includePayload", "true")
	}
	var out adminwire.Delivery
	return out, c.call(ctx, "GET", at(deliveriesPath+"/", id), v, nil, &out)
}

const secretsPath = "/api/v1/admin/secrets"

// SetSecret stores a value. It never comes back over this API.
func (c *Client) SetSecret(ctx context.Context, org, scope, key, value string) error {
	return c.call(ctx, "PUT", at(secretsPath+"/", org, "/", scope, "/", key), nil, adminwire.Secret{Value: &value}, nil)
}

// RemoveSecret removes a value; one that is not there is no error.
func (c *Client) RemoveSecret(ctx context.Context, org, scope, key string) error {
	return c.call(ctx, "DELETE", at(secretsPath+"/", org, "/", scope, "/", key), nil, nil, nil)
}

// PurgeSecrets deletes all secrets of an organisation, or with "" of all, and tells how many there were.
func (c *Client) PurgeSecrets(ctx context.Context, org string) (int64, error) {
	var out adminwire.PurgedSecrets
	return out.Deleted, c.call(ctx, "POST", secretsPath+"/purge", nil, map[string]string{"orgId": org}, &out)
}

// SecretKeys lists the keys in a scope.
func (c *Client) SecretKeys(ctx context.Context, org, scope string) ([]string, error) {
	var out adminwire.Keys
	return out.Keys, c.call(ctx, "GET", secretsPath+"/keys", url.Values{"orgId": {org}, "scope": {scope}}, nil, &out)
}

// SecretScopes lists the scopes of an organisation.
func (c *Client) SecretScopes(ctx context.Context, org string) ([]string, error) {
	var out adminwire.Scopes
	return out.Scopes, c.call(ctx, "GET", secretsPath+"/scopes", url.Values{"orgId": {org}}, nil, &out)
}

// Org is the organisation that every server has.
const Org = ci.DefaultOrg
