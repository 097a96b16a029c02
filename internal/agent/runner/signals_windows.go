package runner

import (
	"os"
	"os/exec"
	"syscall"
)

// This system has no signals. A command can be ended, and it alone: what it has started ends with the job, whose job object
// holds it.
func signalNamed(name string) (syscall.Signal, bool) {
	sig, ok := map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGKILL": syscall.SIGKILL}[name]
	return sig, ok
}

func signalName(sig syscall.Signal) string { return sig.String() }

func signalGroup(p *os.Process, _ syscall.Signal) { _ = p.Kill() }

// leader has nothing to do: nothing here is signalled as a group.
func leader(*exec.Cmd) {}

// waitExit cannot wait without reaping here.
func waitExit(int) bool { return false }
