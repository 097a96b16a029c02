package fleet

import (
	"cmp"
	"context"
	"slices"

	"kici/internal/core/label"
	"kici/internal/server/store"
)

// Member is one host of the roster: declared, or with an agent that registered, or both.
type Member struct {
	Agent    *Agent // nil: none ever registered
	Declared *Host  // nil: nobody declared it
}

// ID is the id under which the host's agent registers.
func (m Member) ID() string {
	if m.Agent != nil {
		return m.Agent.ID
	}
	return m.Declared.AgentID
}

// Labels are those that the host was declared with, and those that its agent has.
func (m Member) Labels() []string {
	var out []string
	if m.Declared != nil {
		out = append(out, m.Declared.Labels...)
	}
	if m.Agent != nil {
		for _, l := range m.Agent.Labels {
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// Uninitialized tells that the host was declared and has no agent. One that was started there for a while, and is gone,
// does not count.
func (m Member) Uninitialized() bool {
	return m.Declared != nil && (m.Agent == nil || m.Agent.SingleUse() && !m.Agent.Connected())
}

// Hostname is what the agent says, else what was declared.
func (m Member) Hostname() string {
	var said, declared string
	if m.Agent != nil {
		said = m.Agent.Hostname
	}
	if m.Declared != nil {
		declared = m.Declared.Hostname
	}
	return cmp.Or(said, declared)
}

func (m Member) rosterHost() label.RosterHost {
	h := label.RosterHost{AgentID: m.ID(), Name: m.Hostname(), Labels: m.Labels(), Uninitialized: m.Uninitialized()}
	if a := m.Agent; a != nil {
		h.Platform, h.Arch, h.Ephemeral, h.Connected, h.LastSeenAt = a.Platform, a.Arch, a.SingleUse(), a.Connected(), a.LastSeenAt
	}
	return h
}

// Members lists the whole roster, by id.
func Members(ctx context.Context, q store.Querier) ([]Member, error) {
	agents, err := List(ctx, q)
	if err != nil {
		return nil, err
	}
	hosts, err := DeclaredHosts(ctx, q)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*Host, len(hosts))
	for i := range hosts {
		byID[hosts[i].AgentID] = &hosts[i]
	}
	members := make([]Member, 0, len(agents)+len(hosts))
	for i := range agents {
		members = append(members, Member{Agent: &agents[i], Declared: byID[agents[i].ID]})
		delete(byID, agents[i].ID)
	}
	for i := range hosts {
		if byID[hosts[i].AgentID] != nil {
			members = append(members, Member{Declared: &hosts[i]})
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ID(), b.ID()) })
	return members, nil
}

// Roster is what fan-outs over hosts choose from.
func Roster(members []Member) []label.RosterHost {
	out := make([]label.RosterHost, len(members))
	for i, m := range members {
		out[i] = m.rosterHost()
	}
	return out
}
