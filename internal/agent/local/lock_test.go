//go:build unix

package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// holdLock is what a process of the test does that holds a lock: it says so, and ends at the end of its input, or by a
// signal unless it ignores that.
func holdLock(dir string) int {
	if os.Getenv("KICI_TEST_STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	l, err := Acquire(context.Background(), LockOptions{Dir: dir, Root: "/repo", Workflow: "ci", Waiting: func(int) {}})
	if err != nil {
		return 1
	}
	defer l.Release()
	os.Stdout.WriteString("held\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// holder starts a process that holds the lock.
func holder(t *testing.T, dir string, env ...string) (*exec.Cmd, io.Closer) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), "KICI_TEST_HOLD="+dir), env...)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, in
}

func TestRunsOfOneWorkflowWaitForEachOther(t *testing.T) {
	dir := t.TempDir()
	cmd, end := holder(t, dir)
	told := 0
	l, err := Acquire(t.Context(), LockOptions{Dir: dir, Root: "/repo", Workflow: "ci", Waiting: func(pid int) {
		told = pid
		end.Close()
	}})
	must(t, err)
	defer l.Release()
	if told != cmd.Process.Pid {
		t.Errorf("waited for %d, want %d", told, cmd.Process.Pid)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the run before was ended: %v", err)
	}
}

func TestOtherWorkflowsAndRepositoriesDoNotWait(t *testing.T) {
	dir := t.TempDir()
	holder(t, dir)
	for _, o := range []LockOptions{{Dir: dir, Root: "/repo", Workflow: "other"}, {Dir: dir, Root: "/other", Workflow: "ci"}} {
		o.Waiting = func(pid int) { t.Errorf("waits for %d", pid) }
		l, err := Acquire(t.Context(), o)
		must(t, err)
		l.Release()
	}
}

func TestWaitingForALockEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := holder(t, dir)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := Acquire(ctx, LockOptions{Dir: dir, Root: "/repo", Workflow: "ci", Waiting: func(int) { cancel(enough) }})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	if cmd.ProcessState != nil {
		t.Error("the run before was ended")
	}
}

// A workflow that cancels what is in progress ends the run before: politely first, by force when that takes too long.
func TestARunTakesThePlaceOfTheOneBefore(t *testing.T) {
	for _, tt := range []struct {
		name, env string
		grace     time.Duration
		want      syscall.Signal
	}{
		{"politely", "KICI_TEST_STUBBORN=", time.Hour, syscall.SIGTERM},
		{"by force", "KICI_TEST_STUBBORN=1", time.Millisecond, syscall.SIGKILL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd, _ := holder(t, dir, tt.env)
			l, err := Acquire(t.Context(), LockOptions{Dir: dir, Root: "/repo", Workflow: "ci", Replace: true, Grace: tt.grace, Waiting: func(int) {}})
			must(t, err)
			l.Release()
			_ = cmd.Wait()
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != tt.want {
				t.Errorf("it ended by %v", status.Signal())
			}
		})
	}
}
