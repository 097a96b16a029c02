//go:build unix

package servertest

import "syscall"

// Pause stops the process as it stands, with all its connections, until Continue. It is what a laptop that is closed does
// to it.
func (p *Process) Pause() { must(p.t, p.cmd.Process.Signal(syscall.SIGSTOP)) }

// Continue lets a paused process go on.
func (p *Process) Continue() { must(p.t, p.cmd.Process.Signal(syscall.SIGCONT)) }
