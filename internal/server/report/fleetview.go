package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"kici/internal/core/adminwire"
	"kici/internal/core/label"
	"kici/internal/server/cluster"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

// fleetView is the agents and what fills them, at one moment.
type fleetView struct {
	clock
	known     []fleet.Agent
	agents    map[string]fleet.Agent // the same by id
	connected int
	draining  map[string]bool // nodes whose agents get no jobs now
	labels    map[string]bool // of connected agents
	busy      map[string][]adminwire.Occupant
	judged    map[string][]adminwire.Candidate // by canonical selector, since many jobs ask for the same
}

// newFleetView looks at the agents for somebody who may see the jobs of one routing key, or of all where scope is "".
func newFleetView(ctx context.Context, q store.Querier, scope string, now int64) (fleetView, error) {
	agents, err := fleet.List(ctx, q)
	if err != nil {
		return fleetView{}, err
	}
	nodes, err := cluster.Nodes(ctx, q)
	if err != nil {
		return fleetView{}, err
	}
	v := fleetView{clock: clock(now), known: agents, agents: map[string]fleet.Agent{}, draining: map[string]bool{}, labels: map[string]bool{}, judged: map[string][]adminwire.Candidate{}}
	for _, n := range nodes {
		v.draining[n.ID] = n.Draining
	}
	for _, a := range agents {
		v.agents[a.ID] = a
		if !a.Connected() {
			continue
		}
		v.connected++
		for _, l := range a.Labels {
			v.labels[l] = true
		}
	}
	v.busy, err = readOccupants(ctx, q, scope)
	return v, err
}

// foreign stands for a job that somebody who asks may not see.
const foreign = "a job of another source"

// readOccupants lists the jobs of every agent, the longest there first. Of those beyond the scope it tells since when only.
func readOccupants(ctx context.Context, q store.Querier, scope string) (map[string][]adminwire.Occupant, error) {
	rows, err := q.QueryContext(ctx, selectOccupants)
	if err != nil {
		return nil, fmt.Errorf("list running jobs: %w", err)
	}
	defer rows.Close()
	out := map[string][]adminwire.Occupant{}
	for rows.Next() {
		var agent, routingKey string
		var since int64
		var o adminwire.Occupant
		if err := rows.Scan(&agent, &o.JobID, &o.JobName, &o.RunID, &o.WorkflowName, &routingKey, &since); err != nil {
			return nil, err
		}
		if scope != "" && routingKey != scope {
			o = adminwire.Occupant{JobName: foreign}
		}
		o.Since = adminwire.At(since)
		out[agent] = append(out[agent], o)
	}
	return out, rows.Err()
}

// nearest are the agents that come nearest to a selector, those that fit first.
func (v fleetView) nearest(s label.Selector, limit int) []adminwire.Candidate {
	all := v.candidates(s)
	return all[:min(len(all), limit)]
}

// candidates judges every connected agent, and of those that are away the ones that would fit. The nearest come first,
// those that are away last. For a pinned job there is one at most.
func (v fleetView) candidates(s label.Selector) []adminwire.Candidate {
	key := s.Canonical()
	if known, ok := v.judged[key]; ok {
		return known
	}
	out := []adminwire.Candidate{}
	for _, a := range v.known {
		if s.Pin != "" && s.Pin != a.ID {
			continue // nothing would make it fit
		}
		missing := s.Explain(label.Agent{ID: a.ID, Labels: a.Labels, Mandatory: a.MandatoryLabels})
		if a.Connected() || len(missing) == 0 && !a.SingleUse() {
			out = append(out, v.candidate(a, missing))
		}
	}
	slices.SortStableFunc(out, func(a, b adminwire.Candidate) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.AgentID, b.AgentID))
	})
	v.judged[key] = out
	return out
}

func (v fleetView) candidate(a fleet.Agent, missing []string) adminwire.Candidate {
	c := adminwire.Candidate{AgentID: a.ID, Fits: len(missing) == 0, Missing: append([]string{}, missing...), Running: []string{},
		Busy: append([]adminwire.Occupant{}, v.busy[a.ID]...), Slots: max(a.MaxConcurrency, 1), AwaySince: adminwire.At(a.DisconnectedAt),
		RebootUntil: adminwire.At(a.RebootUntil)}
	if a.Connected() && v.draining[a.NodeID] {
		c.Draining, c.Node = true, a.NodeID
	}
	for _, o := range c.Busy {
		if o.JobID != "" {
			c.Running = append(c.Running, o.JobID)
		}
	}
	return c
}

// away ranks behind every connected agent.
const away = 1 << 20

func rank(c adminwire.Candidate) int {
	if !c.AwaySince.IsZero() {
		return away
	}
	return len(c.Missing)
}

// nobodyHas are the labels of a selector that no connected agent has.
func (v fleetView) nobodyHas(s label.Selector) []string {
	var out []string
	for _, l := range s.Labels {
		if !v.labels[l] {
			out = append(out, l)
		}
	}
	return out
}

const selectOccupants = `SELECT q.agent_id, q.id, j.job_name, q.run_id, r.workflow_name, r.routing_key, q.claimed_at
FROM dispatch_queue q JOIN execution_jobs j ON j.job_id = q.id JOIN execution_runs r ON r.run_id = q.run_id
WHERE q.status IN ('dispatched', 'recovering') ORDER BY q.claimed_at, q.id`
