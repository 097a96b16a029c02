package store

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// guard ends a connection on which what was sent is not received (RFC 5482).
func guard(raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
