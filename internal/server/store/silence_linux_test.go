package store

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Machines that are gone without a word are noticed by the kernel.
func TestConnectionsAreGuarded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]int{}
	err = raw.Control(func(fd uintptr) {
		for _, option := range []int{unix.TCP_USER_TIMEOUT, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT} {
			got[option], _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option)
		}
	})
	if err != nil || got[unix.TCP_USER_TIMEOUT] != 20_000 || got[unix.TCP_KEEPIDLE] != 10 || got[unix.TCP_KEEPINTVL] != 5 || got[unix.TCP_KEEPCNT] != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
