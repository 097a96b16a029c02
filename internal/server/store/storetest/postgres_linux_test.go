package storetest

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestAPortThatIsTakenCostsNoTests has another server take the port in the moment between, the worst of all that may: it
// answers like the one that was to start, and would take its databases with it when it ends.
func TestAPortThatIsTakenCostsNoTests(t *testing.T) {
	other, err := url.Parse(PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	taken, err := strconv.Atoi(other.Port())
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	p, err := newPrivate(func() (int, error) {
		tries++
		if tries == 1 {
			return taken, nil
		}
		return freePort()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	if data, err := dataDirectory(t.Context(), p.url); err != nil || data != p.data {
		t.Errorf("%s is served from %q, not from %s (%v)", p.url, data, p.data, err)
	}
	if tries < 2 {
		t.Errorf("%d ports were tried", tries)
	}
}

// TestAConnectionThatDoesNotEndHasADatabaseDropped has the server's process for it stand still.
func TestAConnectionThatDoesNotEndHasADatabaseDropped(t *testing.T) {
	u := newUsed(t)
	if server.private == nil {
		t.Skip("the server is not of this process")
	}
	var pid int
	if err := u.connect().QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	err := sever(u.base, u.name, newName(), 500*time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it is kept, or dropped for another reason: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
