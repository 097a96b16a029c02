package plan

import (
	"encoding/json"
	"fmt"

	"kici/internal/core/lockfile"
)

// config is the jobConfig of a dispatch frame, in the order in which servers write it. The event is not among its
// members: it is the same for every job of a run, may be large, and is kept once with the run. Secrets and variables of
// contexts join at the dispatch.
type config struct {
	Source            *lockfile.Source      `json:"source,omitempty"`
	WorkflowName      string                `json:"workflowName"`
	Name              string                `json:"name"`
	BaseJobName       string                `json:"baseJobName"`
	MatrixValues      *lockfile.Pairs       `json:"matrixValues,omitempty"`
	DispatchInputs    json.RawMessage       `json:"dispatchInputs,omitempty"`
	Host              string                `json:"host,omitempty"`
	Agent             *agentFacts           `json:"agent,omitempty"`
	FanoutIndex       *int                  `json:"fanoutIndex,omitempty"`
	FanoutTotal       int                   `json:"fanoutTotal,omitempty"`
	RunsOnPick        string                `json:"runsOnPick"`
	Steps             json.RawMessage       `json:"steps"`
	Needs             []lockfile.NeedsEntry `json:"needs"`
	Rules             []lockfile.Rule       `json:"rules,omitempty"`
	ContentHash       string                `json:"contentHash,omitempty"`
	LockfileHash      string                `json:"lockfileHash,omitempty"`
	ResolvedHashFiles []string              `json:"resolvedHashFiles,omitempty"`
	Environment       string                `json:"environment,omitempty"`
	JobEnv            *lockfile.Pairs       `json:"jobEnv,omitempty"`
	Resources         json.RawMessage       `json:"resources,omitempty"`
	TimeoutMs         int64                 `json:"timeout,omitempty"`
	Checkout          *bool                 `json:"checkout,omitempty"`
	Container         *lockfile.Container   `json:"container,omitempty"`
	CacheOrgID        string                `json:"cacheOrgId,omitempty"`
	CacheRepoID       string                `json:"cacheRepoId,omitempty"`
	CacheRefScope     string                `json:"cacheRefScope"`
	Provider          string                `json:"provider,omitempty"`
	CheckMode         string                `json:"checkMode,omitempty"`
}

func (in Input) cacheScope() string {
	if in.CacheShared {
		return "shared"
	}
	return "isolated"
}

// agentFacts is what steps read of the host that a fan-out gave them.
type agentFacts struct {
	Host     string   `json:"host"`
	Labels   []string `json:"labels"`
	Platform string   `json:"platform,omitempty"`
	Arch     string   `json:"arch,omitempty"`
}

// newConfig is what all children of a job share.
func newConfig(in Input, j lockfile.Job, contexts []string, env lockfile.Pairs) (config, error) {
	w := in.Workflow
	steps, err := json.Marshal(append([]lockfile.Step{}, j.Steps...)) // once, for all children
	if err != nil {
		return config{}, fmt.Errorf("marshal steps of job %s: %w", j.Name, err)
	}
	c := config{
		Source: w.Source, WorkflowName: w.Name, BaseJobName: j.Name, DispatchInputs: in.DispatchInputs, RunsOnPick: pick(j),
		Steps: steps, Needs: append([]lockfile.NeedsEntry{}, j.Needs...), Rules: j.Rules,
		ContentHash: w.ContentHash, LockfileHash: in.LockfileHash, ResolvedHashFiles: w.ResolvedHashFiles, Resources: j.Resources, TimeoutMs: j.TimeoutMs,
		Checkout: j.Checkout, Container: j.Container, CacheOrgID: in.Org, CacheRepoID: in.Source.Repo, CacheRefScope: in.cacheScope(),
		Provider: in.Source.Provider, CheckMode: in.CheckMode,
	}
	if in.ContentHashOmitted {
		c.ContentHash = ""
	}
	if len(contexts) > 0 {
		c.Environment = contexts[0]
	}
	if len(env) > 0 {
		c.JobEnv = &env
	}
	return c, nil
}

// child completes the configuration of one job. Agents look the job up by its base name.
func (c config) child(j Job) (json.RawMessage, error) {
	c.Name = j.Name
	if j.VariantKind == VariantMatrix {
		c.MatrixValues = &j.MatrixValues
	}
	if h := j.Host; h != nil {
		c.Host, c.Agent = h.Name, &agentFacts{Host: h.Name, Labels: append([]string{}, h.Labels...), Platform: h.Platform, Arch: h.Arch}
	}
	if j.FanoutTotal > 0 {
		c.FanoutIndex, c.FanoutTotal = &j.FanoutIndex, j.FanoutTotal
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("marshal configuration of job %s: %w", j.Name, err)
	}
	return raw, nil
}
