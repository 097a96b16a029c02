package hub

import (
	"context"
	"encoding/json"
	"fmt"
)

// What an agent asks for that reaches other hosts by SSH.
const (
	methodBringUp = "kici.ensureInitRunner" // to start an agent on a host
	methodPreBoot = "kici.preBootSend"      // to give a host a secret that it waits for before it boots
)

// Caller is an agent that asks for something that not every agent may have.
type Caller struct {
	AgentID string
	Granted []string // labels that its token names; nil for a token that admits any
}

// BringUps hands out what is needed to reach a declared host.
type BringUps interface {
	// Begin answers a call for the host of an agent. An error made by Refuse is for the job to read.
	Begin(ctx context.Context, caller Caller, targetAgentID string) (BringUp, error)
	// PreBoot answers a call for what a host is to be sent before it boots, but for the command and its port.
	PreBoot(ctx context.Context, caller Caller, targetAgentID, inputSecret string) (PreBoot, error)
}

// BringUp is the answer. Without BroughtUp nothing else is set: the host has an agent that is connected.
type BringUp struct {
	BroughtUp       bool     `json:"broughtUp"`
	Reach           *Reach   `json:"reach,omitempty"`
	PrivateKey      string   `json:"privateKey,omitempty"`
	BootstrapToken  string   `json:"bootstrapToken,omitempty"` // admits the agent once
	TargetAgentID   string   `json:"targetAgentId,omitempty"`
	OrchestratorURL string   `json:"orchestratorUrl,omitempty"`
	Labels          []string `json:"labels,omitempty"` // of the agent to start
}

// Reach is how SSH gets to the host.
type Reach struct {
	AgentID string `json:"agentId"`
	Address string `json:"address"`
	SSHUser string `json:"sshUser"`
	SSHPort int    `json:"sshPort"`
	HostKey string `json:"hostKey,omitempty"` // the only key that the host may show
}

// Refuse is an error that a job is told.
func Refuse(format string, args ...any) error { return &badParams{fmt.Sprintf(format, args...)} }

// caller is who asks. It is for the reader of the connection, which alone may read its token.
func (c *conn) caller() Caller { return Caller{AgentID: c.name(), Granted: c.token.Labels} }

func (c *conn) bringUp() apiMethod {
	caller := c.caller()
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var q struct {
			TargetAgentID string `json:"targetAgentId"`
		}
		if err := decodeParams(raw, &q); err != nil || q.TargetAgentID == "" {
			return nil, Refuse("%s: targetAgentId must be the id of an agent", methodBringUp)
		}
		return c.hub.BringUps.Begin(ctx, caller, q.TargetAgentID)
	}
}
