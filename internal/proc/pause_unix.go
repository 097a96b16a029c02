//go:build unix

package proc

import "syscall"

// Pause stops the program where it is, without its knowledge, as a machine does that is out of memory or put to sleep.
// Programs that it started go on.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused program go on.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
