package agent

import (
	"kici/internal/agent/host"
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
