package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/decide/plan"
	"kici/internal/server/cache"
	"kici/internal/server/fleet"
)

// rosterGrace is the silence after which a connected host counts as lost.
const rosterGrace = 5 * time.Minute

// addFleet tells a plan what it has to know of agents, when the workflow has jobs that depend on it, or packages that
// agents have to install.
func (p *Pipeline) addFleet(ctx context.Context, in *plan.Input) error {
	packs := p.deps.Builds != nil && in.LockfileHash != "" && in.Workflow.ContentHash != "" && !in.ContentHashOmitted
	if !packs && !plan.NeedsFleet(in.Workflow) {
		return nil
	}
	members, err := fleet.Members(ctx, p.deps.DB.Read())
	if err != nil {
		return err
	}
	var agents []fleet.Agent
	for _, m := range members {
		if m.Agent != nil {
			agents = append(agents, *m.Agent)
		}
	}
	in.Now, in.RosterGrace, in.MaxHosts = p.deps.Clock.Millis(), cmp.Or(p.deps.Hosts.Grace, rosterGrace), cmp.Or(p.deps.Hosts.Max, ci.MaxFanoutHosts)
	in.Platform, in.Arch = platform(plan.FirstSelector(in.Workflow), agents)
	in.Roster = fleet.Roster(members)
	if packs && slices.ContainsFunc(agents, builds) {
		return p.addPacking(ctx, in)
	}
	return nil
}

// builds tells that an agent is there to pack. Without one, agents install what they need by themselves.
func builds(a fleet.Agent) bool { return a.Connected() && label.Has(a.Labels, plan.BuilderRole) }

// addPacking plans a build where the packages of the workflow's repository have not been packed yet. Source alone is no
// reason for one: it comes with the clone, which agents keep.
func (p *Pipeline) addPacking(ctx context.Context, in *plan.Input) error {
	id := cache.Identity{OrgID: in.Org, RepoID: in.Source.Repo, Shared: in.CacheShared}
	built, err := p.deps.Builds.Built(ctx, id, cache.Build{ContentHash: in.Workflow.ContentHash, LockfileHash: in.LockfileHash,
		Platform: in.Platform, Arch: in.Arch})
	if err != nil {
		return fmt.Errorf("look for packed dependencies: %w", err)
	}
	if built.DepsURL == "" {
		in.Packing = &plan.Packing{SourceNeeded: built.SourceURL == "", DepsNeeded: true}
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
