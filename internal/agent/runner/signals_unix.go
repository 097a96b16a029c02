//go:build unix

package runner

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func signalNamed(name string) (syscall.Signal, bool) {
	sig := unix.SignalNum(name)
	return sig, sig != 0
}

func signalName(sig syscall.Signal) string { return unix.SignalName(sig) }

// signalGroup signals a command and what it has started, as far as that has not left its process group. One that ends this
// moment is no error.
func signalGroup(p *os.Process, sig syscall.Signal) { _ = syscall.Kill(-p.Pid, sig) }
