package client

import (
	"context"
	"net/url"

	"kici/internal/core/adminwire"
)

const contextsPath = "/api/v1/admin/contexts"

// PutContext makes a context, or changes the one of that name. Fields are members of the API's body; one that is absent
// changes nothing, nil clears.
func (c *Client) PutContext(ctx context.Context, org, name string, fields map[string]any) (adminwire.ContextPut, error) {
	body := map[string]any{"orgId": org, "name": name}
	for k, v := range fields {
		body[k] = v
	}
	var out adminwire.ContextPut
	return out, c.call(ctx, "POST", contextsPath, nil, body, &out)
}

// PutTemplate is PutContext together with variables, the member of that name.
func (c *Client) PutTemplate(ctx context.Context, org, name string, fields map[string]any) (adminwire.ContextPut, error) {
	body := map[string]any{"orgId": org, "templateName": name}
	for k, v := range fields {
		body[k] = v
	}
	var out adminwire.ContextPut
	return out, c.call(ctx, "POST", contextsPath+"/templates", nil, body, &out)
}

// ChangePolicy changes rules of a context that is there.
func (c *Client) ChangePolicy(ctx context.Context, org, name string, fields map[string]any) error {
	body := map[string]any{"orgId": org}
	for k, v := range fields {
		body[k] = v
	}
	return c.call(ctx, "PATCH", at(contextsPath+"/", name, "/policy"), nil, body, nil)
}

// BindContext lets a context see the secrets of the scopes that a pattern selects. created is false when it does already.
func (c *Client) BindContext(ctx context.Context, org, name, scope, host string) (created bool, err error) {
	var out adminwire.Created
	err = c.call(ctx, "POST", at(contextsPath+"/", name, "/bind"), nil,
		map[string]any{"orgId": org, "scopePattern": scope, "hostPattern": host}, &out)
	return out.Created, err
}

// Contexts lists the contexts of an organisation, with the names of the secrets that each selects.
func (c *Client) Contexts(ctx context.Context, org string) (adminwire.ContextList, error) {
	var out adminwire.ContextList
	return out, c.call(ctx, "GET", contextsPath, url.Values{"orgId": {org}, "includeSecrets": {"true"}}, nil, &out)
}

// Context shows one context with what belongs to it.
func (c *Client) Context(ctx context.Context, org, name string) (adminwire.ContextDetail, error) {
	var out adminwire.ContextDetail
	return out, c.call(ctx, "GET", at(contextsPath+"/", name), url.Values{"orgId": {org}}, nil, &out)
}

// DeleteContext removes a context with its variables and bindings. It is refused while jobs wait at its gates.
func (c *Client) DeleteContext(ctx context.Context, org, name string) error {
	return c.call(ctx, "DELETE", at(contextsPath+"/", name), url.Values{"orgId": {org}}, nil, nil)
}

// Variables lists the variables of a context by key.
func (c *Client) Variables(ctx context.Context, org, name string) (adminwire.ContextVariables, error) {
	var out adminwire.ContextVariables
	return out, c.call(ctx, "GET", at(contextsPath+"/", name, "/variables"), url.Values{"orgId": {org}}, nil, &out)
}

// DeleteVariable removes a variable, or with a routing key its value for the runs of one source. One that is not there is no error.
func (c *Client) DeleteVariable(ctx context.Context, org, name, key, routingKey string) error {
	v := url.Values{"orgId": {org}}
	if routingKey != "" {
		v.Set("routingKey", routingKey)
	}
	return c.call(ctx, "DELETE", at(contextsPath+"/", name, "/variables/", key), v, nil, nil)
}

// SetVariable sets a variable of a context.
func (c *Client) SetVariable(ctx context.Context, org, name, key string, v adminwire.SetVariable) error {
	return c.call(ctx, "PUT", at(contextsPath+"/", name, "/variables/", key), url.Values{"orgId": {org}}, v, nil)
}
