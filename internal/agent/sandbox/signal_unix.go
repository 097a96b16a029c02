//go:build unix

package sandbox

import (
	"errors"
	"syscall"
)

// signalGroup sends the signal to every process of the group. One that has ended is no error.
func signalGroup(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(-pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
