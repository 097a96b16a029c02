package pipeline

import (
	"cmp"
	"context"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/decide/plan"
	"kici/internal/server/fleet"
)

// rosterGrace is the silence after which a connected host counts as lost.
const rosterGrace = 5 * time.Minute

// addFleet tells a plan what it has to know of agents, when the workflow has jobs that depend on it.
func (p *Pipeline) addFleet(ctx context.Context, in *plan.Input) error {
	if !plan.NeedsFleet(in.Workflow) {
		return nil
	}
	agents, err := fleet.List(ctx, p.deps.DB.Read())
	if err != nil {
		return err
	}
	in.Now, in.RosterGrace, in.MaxHosts = p.deps.Clock.Millis(), cmp.Or(p.deps.Hosts.Grace, rosterGrace), cmp.Or(p.deps.Hosts.Max, ci.MaxFanoutHosts)
	in.Platform, in.Arch = platform(plan.FirstSelector(in.Workflow), agents)
	for _, a := range agents {
		in.Roster = append(in.Roster, label.RosterHost{AgentID: a.ID, Name: a.Hostname, Labels: a.Labels, Platform: a.Platform, Arch: a.Arch,
			Ephemeral: a.SingleUse(), Connected: a.Connected(), LastSeenAt: a.LastSeenAt})
	}
	return nil
}

// platform is that of the first connected agent that could run the workflow's first job, since what works for its jobs
// has to run on the same kind of machine.
func platform(s label.Selector, agents []fleet.Agent) (platform, arch string) {
	for _, a := range agents {
		if a.Connected() && s.Matches(label.Agent{ID: a.ID, Labels: a.Labels, Mandatory: a.MandatoryLabels}) {
			return a.Platform, a.Arch
		}
	}
	return "linux", "x64"
}
