//go:build unix && !linux

package runner

import (
	"os/exec"
	"syscall"
)

// leader makes cmd lead a process group of its own.
func leader(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// waitExit cannot wait without reaping here: a signal to a group that ends this very moment finds nobody, as a rule.
func waitExit(int) bool { return false }
