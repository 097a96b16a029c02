package cli

import "syscall"

// bound makes a child end with this process, even when this one is killed.
func bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
