// Package host is the machine that an agent runs on: what it says of itself, where it runs a job, and the few commands that
// an agent gives to it.
package host

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

	"kici/internal/core/label"
)

// Facts are what an agent says of its machine. They are read once.
type Facts struct {
	Labels         []string
	Platform, Arch string // in the names of Node
	Hostname       string
	OSRelease      string
	OSVersion      string
	MemoryMb       int64
	User           string
	UID            int64
	Node           func() string // version of the node on PATH, "" for none
}

// nodePatience bounds the question for Node's version: registering matters more than that detail.
const nodePatience = 2 * time.Second

// Read reads the facts. The operator's labels come first; roles, nil for all, become labels of the machine's own.
func Read(labels []string, roles *[]string) Facts {
	f := Facts{Platform: platformName(runtime.GOOS), Arch: archName(runtime.GOARCH), UID: int64(os.Getuid())}
	f.Hostname, _ = os.Hostname()
	f.OSRelease, f.OSVersion = kernel()
	f.MemoryMb, _ = Memory()
	if u, err := user.Current(); err == nil {
		f.User = u.Username
	}
	f.Labels = append(append([]string{}, labels...), label.Auto(f.Platform, f.Arch, f.Hostname, roles)...)
	f.Node = func() string { return "" }
	if path, err := exec.LookPath("node"); err == nil {
		f.Labels = append(f.Labels, "kici:runtime:node")
		f.Node = askNode(path)
	}
	f.Labels = unique(f.Labels)
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

// Memory reads total and available memory in MiB; zero where there is no such file.
func Memory() (total, available int64) {
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
