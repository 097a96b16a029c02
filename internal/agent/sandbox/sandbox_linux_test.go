package sandbox

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kici/internal/testenv"
)

// eachTracker runs a test with every way of finding members that this machine offers.
func eachTracker(t *testing.T, test func(t *testing.T, start func(*exec.Cmd) *Group)) {
	run := func(name string, tracker func(t *testing.T) tracker) {
		t.Run(name, func(t *testing.T) {
			test(t, func(cmd *exec.Cmd) *Group {
				g, err := start(cmd, tracker(t))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _ = g.Kill(), g.Wait() })
				return g
			})
		})
	}
	run("cgroup", func(t *testing.T) tracker {
		if cgroupParent() == "" {
			testenv.Missing(t, "cgroup", "no control group can be made here")
		}
		return &cgroupTracker{parent: cgroupParent()}
	})
	run("proc", func(*testing.T) tracker { return &procTracker{} })
}

// family starts a shell script whose processes all hold one pipe open. It returns the script's output lines and a
// function that returns once the last holder of the pipe is gone.
func family(t *testing.T, start func(*exec.Cmd) *Group, script string) (*Group, *bufio.Scanner, func()) {
	t.Helper()
	held, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.ExtraFiles = []*os.File{hold}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g := start(cmd)
	hold.Close()
	t.Cleanup(func() { held.Close() })
	return g, bufio.NewScanner(out), func() {
		if _, err := io.Copy(io.Discard, held); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKillLeavesNoSurvivor(t *testing.T) {
	tests := []struct{ name, script string }{
		{"a leader that ignores SIGTERM", `trap '' TERM; echo up; sleep 1000`},
		{"a grandchild in its own session", `trap '' TERM; (setsid bash -c 'trap "" TERM; echo up; sleep 1000') & wait`},
		{"a daemon whose parents are gone", `(setsid bash -c '(trap "" TERM HUP; echo up; exec sleep 1000) &') & wait; sleep 1000`},
		{"a daemon after the leader has ended", `(setsid bash -c '(trap "" HUP; echo up; exec sleep 1000 >/dev/null) &') & exit 0`},
		{"a process with a cleared environment", `trap '' TERM; setsid env -i bash -c 'echo up; sleep 1000'; wait`},
	}
	eachTracker(t, func(t *testing.T, start func(*exec.Cmd) *Group) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				g, out, gone := family(t, start, tt.script)
				if !out.Scan() {
					t.Fatal("the family did not start")
				}
				if err := g.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = g.Wait()
				gone() // hangs when somebody survived
			})
		}
	})
}

func TestSignalReachesTheWholeProcessGroup(t *testing.T) {
	eachTracker(t, func(t *testing.T, start func(*exec.Cmd) *Group) {
		g, out, gone := family(t, start, `sleep 1000 & echo up; wait`)
		out.Scan()
		if err := g.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		gone()
		var exit *exec.ExitError
		if err := g.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Fatalf("wait = %v, want ended by SIGTERM", err)
		}
		if err := g.Signal(syscall.SIGTERM); err != nil {
			t.Fatalf("signal to an ended group: %v", err)
		}
	})
}

func TestWaitGivesTheExitOfTheLeader(t *testing.T) {
	eachTracker(t, func(t *testing.T, start func(*exec.Cmd) *Group) {
		g := start(exec.Command("bash", "-c", "exit 3"))
		var exit *exec.ExitError
		if err := g.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Fatalf("wait = %v, want exit 3", err)
		}
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStartReportsAMissingProgramAndLeavesNothing(t *testing.T) {
	if _, err := Start(exec.Command("/nonexistent/program")); err == nil || !strings.Contains(err.Error(), "/nonexistent/program") {
		t.Fatalf("err = %v, want it to name the program", err)
	}
	if left := groupsOfThisProcess(t); len(left) > 0 {
		t.Fatalf("control groups left: %v", left)
	}
}

func TestControlGroupsAreRemoved(t *testing.T) {
	g, err := Start(exec.Command("true"))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if left := groupsOfThisProcess(t); len(left) > 0 {
		t.Fatalf("control groups left: %v", left)
	}
}

func TestGroupsOfADeadPredecessorAreEnded(t *testing.T) {
	parent := cgroupParent()
	if parent == "" {
		testenv.Missing(t, "cgroup", "no control group can be made here")
	}
	// A pid with another start time stands for a process that is no more.
	dir := filepath.Join(parent, groupPrefix+"1-1-1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	fd, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	err = cmd.Start()
	fd.Close()
	if err != nil {
		t.Fatal(err)
	}
	endOrphanedGroups(parent)
	if err := cmd.Wait(); err == nil {
		t.Fatal("the orphan ended by itself")
	}
	os.Remove(dir) // a zombie may have kept it for a moment
}

func groupsOfThisProcess(t *testing.T) []string {
	t.Helper()
	if cgroupParent() == "" {
		return nil
	}
	entries, err := os.ReadDir(cgroupParent())
	if err != nil {
		t.Fatal(err)
	}
	mine := groupName()
	mine = mine[:strings.LastIndexByte(mine, '-')+1]
	var left []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), mine) {
			left = append(left, e.Name())
		}
	}
	return slices.Clip(left)
}

func BenchmarkStartWaitKill(b *testing.B) {
	for b.Loop() {
		g, err := Start(exec.Command("true"))
		if err != nil {
			b.Fatal(err)
		}
		_ = g.Wait()
		if err := g.Kill(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlainStartWait(b *testing.B) {
	for b.Loop() {
		_ = exec.Command("true").Run()
	}
}
