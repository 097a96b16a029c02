package plan

import (
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
)

// CapabilitySSH is the label of agents that reach other hosts by SSH.
const CapabilitySSH = "kici:capability:ssh-transport"

// bringUpTimeoutMs is the wall clock of a bring-up, milliseconds.
const bringUpTimeoutMs = 300_000

// bringUpEnds are the ends of a bring-up after which there is an agent: it started one, or it was not needed any more
// since one had connected meanwhile.
var bringUpEnds = []ci.JobStatus{ci.JobSuccess, ci.JobSkipped}

// bringUpConfig is the jobConfig of a bring-up.
type bringUpConfig struct {
	BringupOnly   bool   `json:"bringupOnly"`
	BringupTarget string `json:"bringupTarget"`
	WorkflowName  string `json:"workflowName"`
	TimeoutMs     int64  `json:"timeout"`
}

// bringUp lets a child wait for a job that starts an agent on its host. All children on that host share one.
func (b *builder) bringUp(child string, h Host) error {
	name := ci.BringupJobName(b.in.Workflow.Name, h.AgentID)
	b.bringUps = append(b.bringUps, Edge{Job: child, Upstream: name, RunOn: bringUpEnds})
	if len(b.expansion[name]) > 0 {
		return nil
	}
	config, err := json.Marshal(bringUpConfig{BringupOnly: true, BringupTarget: h.AgentID, WorkflowName: b.in.Workflow.Name, TimeoutMs: bringUpTimeoutMs})
	if err != nil {
		return fmt.Errorf("marshal configuration of %s: %w", name, err)
	}
	b.push(Job{
		Kind: ci.KindBringup, Name: name, BaseName: name, Pick: pick(lockfile.Job{}), Selector: label.Selector{Labels: []string{CapabilitySSH}},
		Config: config, TimeoutMs: bringUpTimeoutMs, BringsUp: h.AgentID, VariantLabel: h.Name,
	}, lockfile.Job{})
	return nil
}

// arriving counts the jobs that children bring with them: themselves, and those that start agents on their hosts.
func (b *builder) arriving(children []Child) int {
	n := len(children)
	for _, c := range children {
		if c.BringUp && len(b.expansion[ci.BringupJobName(b.in.Workflow.Name, c.Host.AgentID)]) == 0 {
			n++
		}
	}
	return n
}

// uproot takes from the roots what waits for an agent to be started.
func (b *builder) uproot(jobs []Job) {
	waiting := map[string]bool{}
	for _, e := range b.bringUps {
		waiting[e.Job] = true
	}
	for i := range jobs {
		jobs[i].Root = jobs[i].Root && !waiting[jobs[i].Name]
	}
}
