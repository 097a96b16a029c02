package proc

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startBound ties the program's life to this process. The kernel watches the thread that forked, so that thread must
// live as long as the process.
func startBound(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	return <-started
}
