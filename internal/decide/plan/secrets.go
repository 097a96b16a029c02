package plan

import (
	"slices"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/contexts"
)

// WorkflowSecrets are what a workflow as a whole refers to. No value is among it, so that it may be kept with the run.
type WorkflowSecrets struct {
	Contexts   []string            `json:"contexts,omitempty"` // whose secrets and variables every job gets
	Registries []lockfile.Registry `json:"registries,omitempty"`
	InstallEnv []string            `json:"installEnv,omitempty"` // what installing dependencies gets in its environment
}

func secretsOf(w lockfile.Workflow) WorkflowSecrets {
	return WorkflowSecrets{Contexts: w.Contexts, Registries: w.Registries, InstallEnv: w.InstallEnv}
}

// Empty tells that the workflow refers to nothing.
func (s WorkflowSecrets) Empty() bool {
	return len(s.Contexts)+len(s.Registries)+len(s.InstallEnv) == 0
}

// Install is what installing the dependencies of the workflow needs. It is that of contexts.PlanInstall.
func (s WorkflowSecrets) Install(tier ci.Tier, allowHTTP bool) (contexts.Install, error) {
	return contexts.PlanInstall(s.Registries, s.InstallEnv, tier, allowHTTP)
}

// bind gives a job the contexts of its workflow behind its own: its own first one decides whose slots it takes.
func (s WorkflowSecrets) bind(own []string) []string { return slices.Concat(own, s.Contexts) }

// MergeOrder are the bound contexts of a job in the order in which they are laid over each other: its own go over those
// of its workflow, and one that both name stands where the job has it.
func (s WorkflowSecrets) MergeOrder(bound []string) []string {
	own := len(bound) - len(s.Contexts)
	if own < 0 {
		return bound // the job works for others
	}
	first := slices.DeleteFunc(slices.Clone(bound[own:]), func(name string) bool { return slices.Contains(bound[:own], name) })
	return slices.Concat(first, bound[:own])
}
