package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/server/fleet"
)

// local names, to jobs, what belongs to this node.
const local = "local"

// apiMethod answers a call of the agent API. An error made by Refuse is for the job to read.
type apiMethod func(ctx context.Context, params json.RawMessage) (any, error)

// apiMethod finds the method of a name: a question about the fleet, or something that depends on which agent asks.
func (c *conn) apiMethod(name string) (apiMethod, bool) {
	switch name {
	case "infrastructure.list":
		return c.hub.infrastructure, true
	case "inventory.query":
		return c.hub.inventoryQuery, true
	case "inventory.get":
		return c.hub.inventoryGet, true
	case methodRequestReboot:
		return c.requestReboot, true
	case methodCancelReboot:
		return c.cancelReboot, true
	case methodBringUp:
		return c.bringUp(), c.hub.BringUps != nil
	case methodPreBoot:
		return c.preBoot(), c.hub.BringUps != nil
	}
	return nil, false
}

// apiRequest answers a call of the agent API. One that names a job is answered only to the job's agent. The fleet is read
// beside the reader: it may be large.
func (c *conn) apiRequest(ctx context.Context, m wire.APIRequest) error {
	var params struct {
		JobID string `json:"jobId"`
	}
	if json.Unmarshal(m.Params, &params) == nil && params.JobID != "" {
		refused := wire.APIResponse{RequestID: m.RequestID, Error: errNotOwner}
		if _, ok, err := c.owns(ctx, params.JobID, refused); err != nil || !ok {
			return err
		}
	}
	if m.Method == methodToken && c.hub.Identities != nil {
		return c.identity(ctx, m)
	}
	method, ok := c.apiMethod(m.Method)
	if !ok {
		c.answer(wire.APIResponse{RequestID: m.RequestID, Error: fmt.Sprintf("Unknown API method '%s'", m.Method)})
		return nil
	}
	c.aside("", func(ctx context.Context) { c.answer(c.hub.callAPI(ctx, method, m)) })
	return nil
}

// badParams is an error that the caller of a method made.
type badParams struct{ text string }

func (e *badParams) Error() string { return e.text }

// apiTrouble is all that a job learns of an error that is not its own.
const apiTrouble = "internal error"

func (h *Hub) callAPI(ctx context.Context, method apiMethod, m wire.APIRequest) wire.APIResponse {
	answer := wire.APIResponse{RequestID: m.RequestID}
	result, err := method(ctx, m.Params)
	if err == nil {
		answer.Result, err = json.Marshal(result)
	}
	if wrong, ok := errors.AsType[*badParams](err); ok {
		answer.Error = wrong.text
	} else if err != nil {
		h.Log.Warn("agent API call failed", "method", m.Method, "err", err)
		answer.Error = apiTrouble
	}
	return answer
}

// apiAgent is an agent as infrastructure.list shows it.
type apiAgent struct {
	AgentID       string   `json:"agentId"`
	Labels        []string `json:"labels"`
	ScalerManaged bool     `json:"scalerManaged"`
	Source        string   `json:"source"`
}

// infrastructure lists what is there to run jobs: scalers, and the connected agents of every node.
func (h *Hub) infrastructure(ctx context.Context, _ json.RawMessage) (any, error) {
	agents, err := fleet.List(ctx, h.DB.Read())
	if err != nil {
		return nil, err
	}
	out := struct {
		Scalers []Pool     `json:"scalers"`
		Agents  []apiAgent `json:"agents"`
	}{[]Pool{}, []apiAgent{}}
	if h.Pools != nil {
		out.Scalers = append(out.Scalers, h.Pools()...)
	}
	for _, a := range agents {
		if a.Connected() {
			out.Agents = append(out.Agents, apiAgent{a.ID, a.Labels, a.SingleUse(), h.source(a.NodeID)})
		}
	}
	return out, nil
}

func (h *Hub) source(nodeID string) string {
	if nodeID == h.Settings.NodeID {
		return local
	}
	return nodeID
}

// apiHost is an entry of the inventory.
type apiHost struct {
	AgentID    string         `json:"agentId"`
	Labels     []string       `json:"labels"`
	Properties map[string]any `json:"properties"`
	Hostname   *string        `json:"hostname"`
	Platform   *string        `json:"platform"`
	Arch       *string        `json:"arch"`
	Lifecycle  string         `json:"lifecycleClass"`
	Status     string         `json:"status"` // ready, unreachable or stale
	LastSeen   string         `json:"lastSeen"`
	// RebootUntil is when a host that is asked to reboot is to be back.
	RebootUntil string `json:"rebootUntil,omitempty"`
}

// inventoryQuery lists the known hosts that some group of include fits and no matcher of exclude does. Without a group it
// lists all of them.
func (h *Hub) inventoryQuery(ctx context.Context, raw json.RawMessage) (any, error) {
	var q struct {
		Include [][]label.Matcher `json:"include"`
		Exclude []label.Matcher   `json:"exclude"`
	}
	if err := decodeParams(raw, &q); err != nil {
		return nil, &badParams{"inventory.query: include must be a list of lists of matchers and exclude a list of matchers, each " + label.MatcherShapes}
	}
	if len(q.Include) == 0 {
		q.Include = [][]label.Matcher{{}}
	}
	agents, err := fleet.List(ctx, h.DB.Read())
	if err != nil {
		return nil, err
	}
	hosts := []apiHost{}
	for _, a := range agents {
		fits, err := label.Hosts(q.Include, q.Exclude, a.Labels)
		if err != nil {
			return nil, &badParams{"inventory.query: " + err.Error()}
		}
		if fits {
			hosts = append(hosts, h.hostEntry(a))
		}
	}
	return hosts, nil
}

// inventoryGet is the entry of one host, or null.
func (h *Hub) inventoryGet(ctx context.Context, raw json.RawMessage) (any, error) {
	var q struct {
		AgentID string `json:"agentId"`
	}
	if err := decodeParams(raw, &q); err != nil || q.AgentID == "" {
		return nil, &badParams{"inventory.get: agentId must be the id of an agent"}
	}
	a, err := fleet.Get(ctx, h.DB.Read(), q.AgentID)
	if errors.Is(err, fleet.ErrUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return h.hostEntry(a), nil
}

func decodeParams(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// apiTime is how times are written for workflows.
const apiTime = "2006-01-02T15:04:05.000Z"

// hostEntry shows a host. One that has been gone for longer than ephemeral agents are remembered is stale. One that is asked to
// reboot is not there until it has, though its agent may still be connected: who waits for it would take it for back.
func (h *Hub) hostEntry(a fleet.Agent) apiHost {
	e := apiHost{AgentID: a.ID, Labels: a.Labels, Properties: a.Properties, Hostname: known(a.Hostname), Platform: known(a.Platform),
		Arch: known(a.Arch), Lifecycle: a.Lifecycle, Status: "ready", LastSeen: time.UnixMilli(a.LastSeenAt).UTC().Format(apiTime)}
	if e.Properties == nil {
		e.Properties = map[string]any{}
	}
	if a.RebootsAt(h.Clock.Millis()) {
		e.Status, e.RebootUntil = "unreachable", time.UnixMilli(a.RebootUntil).UTC().Format(apiTime)
	}
	if !a.Connected() {
		e.Status = "unreachable"
		if h.Clock.Millis()-a.DisconnectedAt > h.Settings.RosterTTL.Milliseconds() {
			e.Status = "stale"
		}
	}
	return e
}

// known is nil for what an agent did not say.
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
