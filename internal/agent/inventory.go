package agent

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"kici/internal/agent/ledger"
	"kici/internal/core/label"
	"kici/internal/core/wire"
)

// facts are what the agent says of its machine. They are read once.
type facts struct {
	labels         []string
	platform, arch string // in the names of Node
	hostname       string
	osRelease      string
	osVersion      string
	memoryMb       int64
	user           string
	uid            int64
	node           func() string // version of the node on PATH, "" for none
}

// nodePatience bounds the question for Node's version: registering matters more than that detail.
const nodePatience = 2 * time.Second

func readFacts(cfg Config) facts {
	f := facts{platform: platformName(runtime.GOOS), arch: archName(runtime.GOARCH), uid: int64(os.Getuid())}
	f.hostname, _ = os.Hostname()
	f.osRelease, f.osVersion = kernel()
	f.memoryMb, _ = memory()
	if u, err := user.Current(); err == nil {
		f.user = u.Username
	}
	f.labels = append(append([]string{}, cfg.Labels...), label.Auto(f.platform, f.arch, f.hostname, cfg.Roles)...)
	f.node = func() string { return "" }
	if path, err := exec.LookPath("node"); err == nil {
		f.labels = append(f.labels, "kici:runtime:node")
		f.node = askNode(path)
	}
	f.labels = unique(f.labels)
	return f
}

// askNode asks in the background, since Node takes longer to start than everything else here together.
func askNode(path string) func() string {
	answer := make(chan string, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), nodePatience)
		defer cancel()
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if err != nil {
			out = nil
		}
		answer <- strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
	}()
	return func() string {
		v := <-answer
		answer <- v // for the next registration
		return v
	}
}

func platformName(goos string) string {
	if goos == "windows" {
		return "win32"
	}
	return goos
}

func archName(goarch string) string {
	switch goarch {
	case "amd64":
		return "x64"
	case "386":
		return "ia32"
	}
	return goarch
}

// kernel reads what uname -r and -v print; empty where there is no such file.
func kernel() (release, version string) {
	r, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	v, _ := os.ReadFile("/proc/sys/kernel/version")
	return string(bytes.TrimSpace(r)), string(bytes.TrimSpace(v))
}

// memory reads total and available memory in MiB; zero where there is no such file.
func memory() (total, available int64) {
	raw, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			total = kib / 1024
		case "MemAvailable:":
			available = kib / 1024
		}
	}
	return total, available
}

func unique(list []string) []string {
	seen := map[string]bool{}
	out := list[:0]
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// registration is the frame with which every connection begins.
func (a *Agent) registration() wire.AgentRegister {
	f := a.facts
	uid := f.uid
	return wire.AgentRegister{
		MessageID:     "register-" + a.cfg.AgentID + "-" + strconv.FormatInt(time.Now().UnixMilli(), 10),
		AgentID:       a.cfg.AgentID,
		Labels:        f.labels,
		Platform:      f.platform,
		Arch:          f.arch,
		Version:       a.cfg.Version,
		InFlightJobs:  a.inFlight(),
		Hostname:      f.hostname,
		OSRelease:     f.osRelease,
		OSVersion:     f.osVersion,
		TotalMemoryMb: f.memoryMb,
		CPUCount:      int64(runtime.NumCPU()),
		NodeVersion:   f.node(),
		RunningAsUser: f.user,
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
	total, available := memory()
	a.ledger.Send(ledger.KeepNot, wire.AgentStatus{MessageID: uuid.NewString(), AgentID: a.cfg.AgentID, ActiveJobs: active,
		MemoryUsedMb: total - available, MemoryAvailableMb: available, UptimeSeconds: int64(time.Since(a.started).Seconds())})
}
