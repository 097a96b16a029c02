package report

import (
	"context"
	"maps"

	"kici/internal/core/adminwire"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

// The states of an agent, as lists show them.
const (
	hostReady       = "ready"
	hostUnreachable = "unreachable"
)

// Hosts lists the whole roster by id, each with the jobs that its agent holds.
func Hosts(ctx context.Context, q store.Querier) ([]adminwire.Host, error) {
	members, err := fleet.Members(ctx, q)
	if err != nil {
		return nil, err
	}
	busy, err := readOccupants(ctx, q, "")
	if err != nil {
		return nil, err
	}
	out := make([]adminwire.Host, len(members))
	for i, m := range members {
		out[i] = host(m, busy[m.ID()])
	}
	return out, nil
}

// HostOf shows one host of the roster; ErrNotFound says that there is none of that id.
func HostOf(ctx context.Context, q store.Querier, agentID string) (adminwire.Host, error) {
	all, err := Hosts(ctx, q)
	if err != nil {
		return adminwire.Host{}, err
	}
	for _, h := range all {
		if h.AgentID == agentID {
			return h, nil
		}
	}
	return adminwire.Host{}, ErrNotFound
}

func host(m fleet.Member, busy []adminwire.Occupant) adminwire.Host {
	h := adminwire.Host{AgentID: m.ID(), LifecycleClass: fleet.Static, Status: hostUnreachable, Hostname: m.Hostname(), Labels: m.Labels(),
		Properties: map[string]any{}, MandatoryLabels: []string{}, Running: []string{}, Uninitialized: m.Uninitialized()}
	if d := m.Declared; d != nil {
		maps.Copy(h.Properties, d.Properties)
		h.Declared = &adminwire.Declaration{Labels: d.Labels, Properties: d.Properties, Hostname: d.Hostname, Address: d.Reach.Address,
			SSHUser: d.Reach.User, SSHPort: d.Reach.Port, SSHKeySecret: d.Reach.KeySecret, SSHHostKey: d.Reach.HostKey,
			DeclaredAt: adminwire.At(d.DeclaredAt), UpdatedAt: adminwire.At(d.UpdatedAt)}
	}
	if a := m.Agent; a != nil {
		h.LifecycleClass, h.LastSeen, h.Platform, h.Arch, h.Version = a.Lifecycle, adminwire.At(a.LastSeenAt), a.Platform, a.Arch, a.Version
		h.MaxConcurrency, h.MandatoryLabels = a.MaxConcurrency, a.MandatoryLabels
		h.RebootUntil = adminwire.At(a.RebootUntil)
		maps.Copy(h.Properties, a.Properties)
		if a.Connected() {
			h.Status, h.ConnectedInstanceID = hostReady, &a.NodeID
		}
	}
	for _, o := range busy {
		h.Running = append(h.Running, o.JobID)
	}
	return h
}
