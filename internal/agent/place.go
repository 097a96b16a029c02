package agent

import (
	"slices"
	"strings"

	"kici/internal/agent/host"
	"kici/internal/agent/job"
)

// mode is what the agent runs in, as it was told, or as its starter lets suppose: scalers tell it, except microVMs.
func (c Config) mode() string {
	switch {
	case c.ExecutionMode != "":
		return c.ExecutionMode
	case c.ScalerManaged:
		return "firecracker"
	}
	return "bare-metal"
}

// sandboxed tells whether jobs run in bubblewrap. In a container or microVM of a scaler they are isolated already.
func (c Config) sandboxed() bool {
	return c.Sandbox && !c.ScalerManaged && c.mode() == "bare-metal"
}

// place is where the agent's jobs run.
func (c Config) place() host.Place {
	return host.Place{Kind: c.mode(), Sandboxed: c.sandboxed(), Isolated: c.SandboxNetwork == "isolated", Runner: c.RunnerCommand}
}

// agentSettings are the agent's own variables. Those of the server, which may share the shell, stay here: its database
// URL and keys are nobody's business.
func agentSettings(environ []string) []string {
	var list []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(agentNames, name) {
			list = append(list, kv)
		}
	}
	return list
}

// workshop is what the agent's jobs have of it.
func (a *Agent) workshop() job.Workshop {
	c := a.cfg
	return job.Workshop{
		ServerURL: c.OrchestratorURL, Token: c.Token, Settings: agentSettings(c.Environ), Environ: c.Environ, TempDir: c.TempDir,
		Place: c.place(), StepTimeout: c.StepTimeout, ConcurrencyWait: c.ConcurrencyWait, GuardMargin: a.guardMargin,
		MaxLogBytes: c.MaxLogBytes, DropLines: c.Backpressure == BackpressureDrop, OrchestratorHost: c.OrchestratorHost,
		Log: a.log, Client: a.client, Cache: a.cache, Bundles: a.bundles, Facts: a.facts,
		Ledger: a.ledger, Questions: &a.questions, Metrics: a.metrics,
		Has: a.serverHas, SpareRunner: a.spareRunner, Finished: a.finished, Reboot: a.wantReboot, KeepMachine: a.keepMachine, Go: a.closing.Go,
	}
}
