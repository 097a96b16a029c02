package hub

import (
	"context"
	"encoding/json"
	"fmt"

	"kici/internal/core/wire"
)

// methodBringUp is the call of an agent that reaches other hosts by SSH: it asks for what it needs to start an agent on one.
const methodBringUp = "kici.ensureInitRunner"

// Caller is an agent that asks for something that not every agent may have.
type Caller struct {
	AgentID string
	Granted []string // labels that its token names; nil for a token that admits any
}

// BringUps hands out what is needed to start an agent on a declared host.
type BringUps interface {
	// Begin answers a call for the host of an agent. An error made by Refuse is for the job to read.
	Begin(ctx context.Context, caller Caller, targetAgentID string) (BringUp, error)
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

func (c *conn) bringUp(m wire.APIRequest) {
	caller := Caller{AgentID: c.name(), Granted: c.token.Labels}
	begin := func(h *Hub, ctx context.Context, raw json.RawMessage) (any, error) {
		var q struct {
			TargetAgentID string `json:"targetAgentId"`
		}
		if err := decodeParams(raw, &q); err != nil || q.TargetAgentID == "" {
			return nil, Refuse("%s: targetAgentId must be the id of an agent", methodBringUp)
		}
		return h.BringUps.Begin(ctx, caller, q.TargetAgentID)
	}
	c.aside("", func(ctx context.Context) { c.answer(c.hub.callAPI(ctx, begin, m)) })
}
