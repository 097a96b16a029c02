package runner

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// leader makes cmd lead a process group of its own and die with this process. The kernel binds that to the thread that
// starts it.
func leader(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitExit waits until the process has ended and leaves it to be reaped; it reports whether it could.
func waitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
