package agent

import (
	"runtime"
	"strconv"
	"time"

	"github.com/google/uuid"

	"kici/internal/agent/host"
	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
)

// registration is the frame with which every connection begins.
func (a *Agent) registration() wire.AgentRegister {
	f := a.facts
	uid := f.UID
	return wire.AgentRegister{
		MessageID:     "register-" + a.cfg.AgentID + "-" + strconv.FormatInt(time.Now().UnixMilli(), 10),
		AgentID:       a.cfg.AgentID,
		Labels:        f.Labels,
		Platform:      f.Platform,
		Arch:          f.Arch,
		Version:       a.cfg.Version,
		InFlightJobs:  a.inFlight(),
		Hostname:      f.Hostname,
		OSRelease:     f.OSRelease,
		OSVersion:     f.OSVersion,
		TotalMemoryMb: f.MemoryMb,
		CPUCount:      int64(runtime.NumCPU()),
		NodeVersion:   f.Node(),
		RunningAsUser: f.User,
		RunningAsUID:  &uid,
		Properties:    a.cfg.Properties,
		Features:      []string{wire.FeatureFrameAck, wire.FeatureStartFence, wire.FeatureFastBeat, wire.FeatureArtifacts},
	}
}

// postStatusLocked sends how the agent is. The caller holds the agent's mutex.
func (a *Agent) postStatusLocked() {
	active := 0
	if a.job != nil {
		active = 1
	}
	total, available := host.Memory()
	a.ledger.Send(ledger.KeepNot, wire.AgentStatus{MessageID: uuid.NewString(), AgentID: a.cfg.AgentID, ActiveJobs: active,
		MemoryUsedMb: total - available, MemoryAvailableMb: available, UptimeSeconds: int64(time.Since(a.started).Seconds())})
}

func (a *Agent) postMetricsLocked() {
	a.ledger.Send(ledger.KeepNot, wire.AgentMetrics{MessageID: uuid.NewString(), AgentID: a.cfg.AgentID, Metrics: a.metrics.Frame(),
		Timestamp: time.Now().UnixMilli()})
}

func (a *Agent) sendMetrics() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.postMetricsLocked()
}
