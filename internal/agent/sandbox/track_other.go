//go:build unix && !linux

package sandbox

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

func newTracker() tracker { return &groupTracker{} }

// awaitExit returns at once: without a parent-death signal nothing depends on the thread that forked.
func awaitExit(int) {}

// groupTracker knows the process group only: these systems offer no way to find a process that has left it.
type groupTracker struct{ pid int }

func (t *groupTracker) prepare(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	return nil
}

func (t *groupTracker) started(pid int) { t.pid = pid }

func (t *groupTracker) exited() {}

func (t *groupTracker) kill(bound time.Duration, spare int) error {
	if spare != 0 {
		return errors.New("members of a group cannot be told apart on this system")
	}
	deadline := time.Now().Add(bound)
	for {
		err := syscall.Kill(-t.pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
			return nil // EPERM: only zombies are left
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("still there after %v", bound)
		}
		time.Sleep(time.Millisecond)
	}
}
