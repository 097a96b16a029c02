package report

import (
	"fmt"
	"slices"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// standing is how the agents that fit a job stand to it.
type standing struct {
	clock
	fitting   []adminwire.Candidate // connected
	open      []adminwire.Candidate // of those, the ones that are given jobs
	free      []adminwire.Candidate // of those, the ones that have room
	drained   []adminwire.Candidate // connected to nodes that give out no jobs
	rebooting []adminwire.Candidate // whose hosts reboot, connected or away for that
}

func (c clock) standingOf(candidates []adminwire.Candidate) standing {
	s := standing{clock: c}
	for _, a := range candidates {
		if !a.Fits {
			continue
		}
		connected, reboots := a.AwaySince.IsZero(), !a.RebootUntil.IsZero()
		if connected {
			s.fitting = append(s.fitting, a)
		}
		switch {
		case reboots:
			s.rebooting = append(s.rebooting, a)
		case connected && a.Draining:
			s.drained = append(s.drained, a)
		case connected:
			s.open = append(s.open, a)
			if !a.Full() {
				s.free = append(s.free, a)
			}
		}
	}
	return s
}

// describe adds to the details of a reason.
func (s standing) describe(line map[string]any) {
	line["fitting"], line["busy"] = len(s.fitting), len(s.fitting)-len(s.free)
	if len(s.drained) > 0 {
		line["drainingNodes"] = nodesOf(s.drained)
	}
	if len(s.rebooting) > 0 {
		line["rebootingHosts"], line["rebootUntil"] = idsOf(s.rebooting), lastReboot(s.rebooting)
	}
}

// others tells that agents fit which get no jobs now.
func (s standing) others() bool { return len(s.drained)+len(s.rebooting) > 0 }

// also tells of them, beside those that are busy.
func (s standing) also() (text string) {
	if len(s.drained) > 0 {
		text += "; " + alsoDrained(s.drained)
	}
	if len(s.rebooting) > 0 {
		text += "; " + s.reboots(s.rebooting)
	}
	return text
}

// closed says why none of the agents that fit gets a job.
func (s standing) closed() (code, message string) {
	switch {
	case len(s.rebooting) == 0:
		return ci.ReasonDraining, allDrained(s.drained)
	case len(s.drained) == 0:
		return ci.ReasonReboot, s.allReboot(s.rebooting)
	}
	return ci.ReasonReboot, fmt.Sprintf("all %d agents that fit get no jobs: %s; the others are connected to nodes that drain, %s",
		len(s.rebooting)+len(s.drained), s.reboots(s.rebooting), shortList(nodesOf(s.drained)))
}

// allDrained names the nodes that the agents which fit are connected to.
func allDrained(drained []adminwire.Candidate) string {
	nodes := nodesOf(drained)
	switch {
	case len(drained) == 1:
		return fmt.Sprintf("the only agent that fits, %s, is connected to node %s, which drains: it gives out no jobs", drained[0].AgentID, nodes[0])
	case len(nodes) == 1:
		return fmt.Sprintf("all %d agents that fit are connected to node %s, which drains: it gives out no jobs", len(drained), nodes[0])
	}
	return fmt.Sprintf("all %d agents that fit are connected to nodes that drain, %s: they give out no jobs", len(drained), shortList(nodes))
}

// alsoDrained tells of agents that would fit if their nodes gave out jobs.
func alsoDrained(drained []adminwire.Candidate) string {
	nodes := nodesOf(drained)
	if len(drained) == 1 {
		return fmt.Sprintf("agent %s fits, too, and its node %s drains", drained[0].AgentID, nodes[0])
	}
	return fmt.Sprintf("%d more fit, and their nodes drain: %s", len(drained), shortList(nodes))
}

// nodesOf are the nodes of agents, each once.
func nodesOf(agents []adminwire.Candidate) []string {
	var nodes []string
	for _, a := range agents {
		nodes = append(nodes, a.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// allReboot tells that every agent that fits is away for a reboot of its host, or is about to be.
func (c clock) allReboot(rebooting []adminwire.Candidate) string {
	if len(rebooting) == 1 {
		return fmt.Sprintf("the only agent that fits, %s, gets no jobs: %s", rebooting[0].AgentID, c.reboots(rebooting))
	}
	return fmt.Sprintf("all %d agents that fit get no jobs: %s", len(rebooting), c.reboots(rebooting))
}

// reboots names the hosts of agents that reboot, and when the last is to be back.
func (c clock) reboots(rebooting []adminwire.Candidate) string {
	last := lastReboot(rebooting)
	if len(rebooting) == 1 {
		return fmt.Sprintf("host %s reboots%s", rebooting[0].AgentID, c.tell(", until ", last))
	}
	return fmt.Sprintf("hosts %s reboot%s", shortList(idsOf(rebooting)), c.tell(", the last until ", last))
}

func lastReboot(rebooting []adminwire.Candidate) adminwire.Time {
	return slices.MaxFunc(rebooting, func(a, b adminwire.Candidate) int { return a.RebootUntil.Compare(b.RebootUntil.Time) }).RebootUntil
}

func idsOf(agents []adminwire.Candidate) []string {
	ids := make([]string, len(agents))
	for i, a := range agents {
		ids[i] = a.AgentID
	}
	return ids
}
