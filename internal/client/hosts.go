package client

import (
	"context"

	"kici/internal/core/adminwire"
)

const hostsPath = "/api/v1/admin/hosts"

// Hosts lists the roster: hosts whose agents registered, and hosts that were declared.
func (c *Client) Hosts(ctx context.Context) ([]adminwire.Host, error) {
	var out adminwire.HostList
	return out.Hosts, c.call(ctx, "GET", hostsPath, nil, nil, &out)
}

// Host shows one host of the roster.
func (c *Client) Host(ctx context.Context, agentID string) (adminwire.Host, error) {
	var out adminwire.OneHost
	err := c.call(ctx, "GET", at(hostsPath+"/", agentID), nil, nil, &out)
	return out.Host, err
}

// DeclareHost writes a host down, or anew: what the declaration leaves out is not kept.
func (c *Client) DeclareHost(ctx context.Context, agentID string, d adminwire.Declaration) (adminwire.Host, error) {
	var out adminwire.OneHost
	err := c.call(ctx, "PUT", at(hostsPath+"/", agentID), nil, d, &out)
	return out.Host, err
}

// ForgetHost removes a declaration and what is known of an agent that is gone. It is refused while the agent is there.
func (c *Client) ForgetHost(ctx context.Context, agentID string) error {
	return c.call(ctx, "DELETE", at(hostsPath+"/", agentID), nil, nil, nil)
}
