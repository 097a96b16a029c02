// Package fleet knows the agents: every one that ever registered, what it says of itself, and on which connection of
// which node it is now. It alone writes the table agents.
package fleet

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"kici/internal/server/store"
)

// ErrUnknown says that no agent with that id ever registered.
var ErrUnknown = errors.New("unknown agent")

// The life cycles of agents.
const (
	Static    = "static"    // comes back after a lost connection, with its jobs
	Ephemeral = "ephemeral" // made for one piece of work and destroyed when it disconnects
)

// Agent is an agent as it last registered. Times are epoch milliseconds.
type Agent struct {
	ID              string
	Labels          []string // with the automatic ones
	MandatoryLabels []string // what a job must name to run on it
	Features        []string // extensions in force on its connection
	Platform        string   // linux, darwin, win32
	Arch            string   // x64, arm64
	Hostname        string
	Version         string // "" when it did not say
	Lifecycle       string // Static or Ephemeral
	MaxConcurrency  int
	Properties      map[string]any // string, float64 or bool
	Inventory       Inventory
	TokenID         string // "" without authentication
	NodeID          string // the node that it is or was connected to
	ConnectionID    string
	FirstSeenAt     int64
	LastSeenAt      int64
	DisconnectedAt  int64 // 0 while connected
	RebootUntil     int64 // when its host is to be back from a reboot, 0 when it does not reboot; see RebootsAt
}

// Inventory is what an agent says about its machine. Zero values were not said.
type Inventory struct {
	OSRelease     string `json:"osRelease,omitempty"`
	OSVersion     string `json:"osVersion,omitempty"`
	NodeVersion   string `json:"nodeVersion,omitempty"`
	RunningAsUser string `json:"runningAsUser,omitempty"`
	RunningAsUID  *int64 `json:"runningAsUid,omitempty"`
	TotalMemoryMb int64  `json:"totalMemoryMb,omitempty"`
	CPUCount      int64  `json:"cpuCount,omitempty"`
}

// Connected tells whether the agent is connected, to whichever node. A node that died without a word leaves its agents
// connected until Abandon is called for it.
func (a Agent) Connected() bool { return a.DisconnectedAt == 0 }

// SingleUse tells whether the agent never comes back once its connection has ended.
func (a Agent) SingleUse() bool { return a.Lifecycle == Ephemeral }

// Seen stores an agent that has registered on a connection, which becomes its current one. LastSeenAt is the time of the
// registration; FirstSeenAt, DisconnectedAt and RebootUntil are kept by the table.
func Seen(ctx context.Context, tx *store.Tx, a Agent) error {
	docs, err := encode(a.Labels, a.MandatoryLabels, a.Features, a.Properties, a.Inventory)
	if err != nil {
		return fmt.Errorf("store agent %s: %w", a.ID, err)
	}
	err = tx.Do(ctx, upsertAgent, a.ID, docs[0], docs[1], docs[2], a.Platform, a.Arch, a.Hostname, a.Version,
		a.Lifecycle, a.MaxConcurrency, docs[3], docs[4], sql.NullString{String: a.TokenID, Valid: a.TokenID != ""},
		a.NodeID, a.ConnectionID, a.LastSeenAt)
	if err != nil {
		return fmt.Errorf("store agent %s: %w", a.ID, err)
	}
	return nil
}

// Touch notes when agents were last heard of. Callers collect agents and touch each about once a minute: the time is for
// people, and a write for every heartbeat of ten thousand agents would keep the only writer busy.
func Touch(ctx context.Context, tx *store.Tx, lastSeen map[string]int64) error {
	for _, id := range slices.Sorted(maps.Keys(lastSeen)) { // two nodes that have one agent meet it in the same order
		at := lastSeen[id]
		if err := tx.Do(ctx, touchAgent, id, at); err != nil {
			return fmt.Errorf("touch agent %s: %w", id, err)
		}
	}
	return nil
}

// Gone marks an agent as disconnected, and reports whether it did: only when the connection that ended is still its
// current one. Everything else that follows from a lost connection belongs to the caller that gets true.
func Gone(ctx context.Context, tx *store.Tx, agentID, connectionID string, at int64) (changed bool, err error) {
	changed, err = store.Changed(tx.ExecContext(ctx, goneAgent, agentID, connectionID, at))
	if err != nil {
		return false, fmt.Errorf("mark agent %s as disconnected: %w", agentID, err)
	}
	return changed, nil
}

// Return marks an agent as connected again whose connection was taken for ended and was not. It reports whether the
// connection is still the agent's current one.
func Return(ctx context.Context, tx *store.Tx, agentID, connectionID string) (current bool, err error) {
	current, err = store.Changed(tx.ExecContext(ctx,
		"UPDATE agents SET disconnected_at = NULL WHERE agent_id = $1 AND connection_id = $2", agentID, connectionID))
	if err != nil {
		return false, fmt.Errorf("mark agent %s as connected: %w", agentID, err)
	}
	return current, nil
}

// Abandon marks all agents of a node as disconnected: of one that died, or of this one before it starts, since no
// connection outlives its process.
func Abandon(ctx context.Context, tx *store.Tx, nodeID string, at int64) error {
	if err := tx.Do(ctx, abandonNode, nodeID, at); err != nil {
		return fmt.Errorf("mark agents of node %s as disconnected: %w", nodeID, err)
	}
	return nil
}

// Get reads one agent, or gives ErrUnknown.
func Get(ctx context.Context, q store.Querier, agentID string) (Agent, error) {
	a, err := scan(q.QueryRowContext(ctx, selectAgent+" WHERE agent_id = $1", agentID))
	if errors.Is(err, sql.ErrNoRows) {
		return Agent{}, fmt.Errorf("agent %s: %w", agentID, ErrUnknown)
	}
	if err != nil {
		return Agent{}, fmt.Errorf("read agent %s: %w", agentID, err)
	}
	return a, nil
}

// List reads all agents, connected or not, by id.
func List(ctx context.Context, q store.Querier) ([]Agent, error) {
	rows, err := q.QueryContext(ctx, selectAgent+" ORDER BY agent_id")
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	defer rows.Close()
	var out []Agent
	for rows.Next() {
		a, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("list agents: %w", err)
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

// Homes tells, for those of the agents that are connected, to which node.
func Homes(ctx context.Context, q store.Querier, agentIDs []string) (map[string]string, error) {
	homes := make(map[string]string, len(agentIDs))
	for _, id := range agentIDs {
		var node string
		err := q.QueryRowContext(ctx, "SELECT node_id FROM agents WHERE agent_id = $1 AND disconnected_at IS NULL", id).Scan(&node)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find the node of agent %s: %w", id, err)
		}
		homes[id] = node
	}
	return homes, nil
}

// Elsewhere lists the agents that are connected with a token to another node than that one.
func Elsewhere(ctx context.Context, q store.Querier, tokenID, nodeID string) ([]string, error) {
	rows, err := q.QueryContext(ctx, "SELECT agent_id FROM agents WHERE token_id = $1 AND node_id <> $2 AND disconnected_at IS NULL ORDER BY agent_id", tokenID, nodeID)
	if err != nil {
		return nil, fmt.Errorf("list agents of token %s: %w", tokenID, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("list agents of token %s: %w", tokenID, err)
		}
		out = append(out, id)
	}
	return out, rows.Err()
}

// Unreachable counts the static agents that are not connected.
func Unreachable(ctx context.Context, q store.Querier) (n int, err error) {
	err = q.QueryRowContext(ctx, "SELECT count(*) FROM agents WHERE lifecycle_class = 'static' AND disconnected_at IS NOT NULL").Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count unreachable hosts: %w", err)
	}
	return n, nil
}

// Forget removes agents that have been gone since before a time, and reports how many. Static ones are kept: an operator
// wants to see that one of his machines is missing.
func Forget(ctx context.Context, tx *store.Tx, before int64) (int64, error) {
	res, err := tx.ExecContext(ctx, forgetAgents, before)
	if err != nil {
		return 0, fmt.Errorf("forget agents: %w", err)
	}
	return res.RowsAffected()
}

func encode(lists ...any) ([]string, error) {
	out := make([]string, len(lists))
	for i, v := range lists {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		out[i] = string(raw)
	}
	return out, nil
}

func scan(row interface{ Scan(...any) error }) (Agent, error) {
	var a Agent
	var labels, mandatory, features, properties, inventory string
	var token sql.NullString
	var gone, reboot sql.NullInt64
	err := row.Scan(&a.ID, &labels, &mandatory, &features, &a.Platform, &a.Arch, &a.Hostname, &a.Version, &a.Lifecycle,
		&a.MaxConcurrency, &properties, &inventory, &token, &a.NodeID, &a.ConnectionID, &a.FirstSeenAt, &a.LastSeenAt, &gone, &reboot)
	if err != nil {
		return Agent{}, err
	}
	a.TokenID, a.DisconnectedAt, a.RebootUntil = token.String, gone.Int64, reboot.Int64
	for text, into := range map[*string]any{
		&labels: &a.Labels, &mandatory: &a.MandatoryLabels, &features: &a.Features,
		&properties: &a.Properties, &inventory: &a.Inventory,
	} {
		if err := json.Unmarshal([]byte(*text), into); err != nil {
			return Agent{}, fmt.Errorf("decode agent %s: %w", a.ID, err)
		}
	}
	return a, nil
}

const (
	selectAgent = `SELECT agent_id, labels, mandatory_labels, features, platform, arch, hostname, version, lifecycle_class,
    max_concurrency, properties, inventory, token_id, node_id, connection_id, first_seen_at, last_seen_at, disconnected_at,
    reboot_until
FROM agents`

	upsertAgent = `INSERT INTO agents (agent_id, labels, mandatory_labels, features, platform, arch, hostname, version,
    lifecycle_class, max_concurrency, properties, inventory, token_id, node_id, connection_id, first_seen_at, last_seen_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16)
ON CONFLICT (agent_id) DO UPDATE SET
    labels = excluded.labels, mandatory_labels = excluded.mandatory_labels, features = excluded.features,
    platform = excluded.platform, arch = excluded.arch, hostname = excluded.hostname, version = excluded.version,
    lifecycle_class = excluded.lifecycle_class, max_concurrency = excluded.max_concurrency,
    properties = excluded.properties, inventory = excluded.inventory, token_id = excluded.token_id,
    node_id = excluded.node_id, connection_id = excluded.connection_id, last_seen_at = excluded.last_seen_at,
    disconnected_at = NULL`

	// A touch that was collected before the agent registered anew must not turn its time back.
	touchAgent = `UPDATE agents SET last_seen_at = $2 WHERE agent_id = $1 AND last_seen_at < $2 AND disconnected_at IS NULL`

	goneAgent = `UPDATE agents SET disconnected_at = $3
WHERE agent_id = $1 AND connection_id = $2 AND disconnected_at IS NULL`

	abandonNode = `UPDATE agents SET disconnected_at = $2 WHERE node_id = $1 AND disconnected_at IS NULL`

	forgetAgents = `DELETE FROM agents WHERE disconnected_at < $1 AND lifecycle_class = 'ephemeral'`
)
