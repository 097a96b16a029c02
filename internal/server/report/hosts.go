package report

import (
	"context"

	"kici/internal/core/adminwire"
	"kici/internal/server/store"
)

// The states of an agent, as lists show them.
const (
	hostReady       = "ready"
	hostUnreachable = "unreachable"
)

// Hosts lists every known agent by id, with the jobs that it holds.
func Hosts(ctx context.Context, q store.Querier) ([]adminwire.Host, error) {
	view, err := newFleetView(ctx, q, "")
	if err != nil {
		return nil, err
	}
	out := make([]adminwire.Host, 0, len(view.known))
	for _, a := range view.known {
		h := adminwire.Host{
			AgentID: a.ID, LifecycleClass: a.Lifecycle, Status: hostUnreachable, LastSeen: adminwire.At(a.LastSeenAt), Hostname: a.Hostname,
			Platform: a.Platform, Arch: a.Arch, Version: a.Version, MaxConcurrency: a.MaxConcurrency, Labels: a.Labels,
			MandatoryLabels: a.MandatoryLabels, Properties: a.Properties, Running: []string{},
		}
		for _, o := range view.busy[a.ID] {
			h.Running = append(h.Running, o.JobID)
		}
		if a.Connected() {
			h.Status, h.ConnectedInstanceID = hostReady, &a.NodeID
		}
		out = append(out, h)
	}
	return out, nil
}
