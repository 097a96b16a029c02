package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// newTracker prefers a control group, which no process can leave, and falls back to reading /proc.
func newTracker() tracker {
	if parent := cgroupParent(); parent != "" {
		return &cgroupTracker{parent: parent}
	}
	return &procTracker{}
}

// awaitExit returns when the process has ended and leaves it to be waited for.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}

func ownSession(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// cgroupParent is the folder of this process' own group in the unified hierarchy when groups can be made below it and
// processes can be started in them, else "". It is found out once, and then also ends what a crashed predecessor left.
var cgroupParent = sync.OnceValue(func() string {
	parent := ownCgroup()
	if parent == "" || unix.Access(filepath.Join(parent, "cgroup.procs"), unix.W_OK) != nil {
		return ""
	}
	// Some system call filters deny clone3, by which a process is born inside a group. A call without arguments
	// tells: EINVAL comes from the kernel, anything else from the filter.
	if _, _, e := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); e != unix.EINVAL {
		return ""
	}
	probe := filepath.Join(parent, groupName())
	if os.Mkdir(probe, 0o755) != nil {
		return ""
	}
	defer os.Remove(probe)
	if unix.Access(filepath.Join(probe, "cgroup.kill"), unix.W_OK) != nil {
		return ""
	}
	endOrphanedGroups(parent)
	return parent
})

// ownCgroup is the folder of this process in the unified hierarchy, or "".
func ownCgroup() string {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	var path string
	for line := range strings.Lines(string(self)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSpace(rest)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || path == "" {
		return ""
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		// Field 4 is the part of the hierarchy that is mounted, field 5 where.
		if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(fields[3], "/")); ok {
			return filepath.Join(fields[4], rel)
		}
	}
	return ""
}

const groupPrefix = "kici-group-"

var groupCount atomic.Int64

// groupName names this process by pid and start time, so that a later process can tell whose group it finds.
func groupName() string {
	return fmt.Sprintf("%s%d-%d-%d", groupPrefix, os.Getpid(), startTime(os.Getpid()), groupCount.Add(1))
}

// endOrphanedGroups ends the groups of processes that are no more: a killed agent cannot end its own job.
func endOrphanedGroups(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), groupPrefix)
		if !ok {
			continue
		}
		var pid int
		var start, n int64
		if _, err := fmt.Sscanf(rest, "%d-%d-%d", &pid, &start, &n); err != nil || startTime(pid) == start {
			continue
		}
		t := &cgroupTracker{dir: filepath.Join(parent, e.Name())}
		_ = t.kill(100*time.Millisecond, 0) // what does not go now is tried again at the next start
	}
}

// cgroupTracker holds the group in a control group of its own. The kernel adds every descendant and no process without
// privileges of its own can leave.
type cgroupTracker struct {
	parent string

	mu  sync.Mutex
	dir string // "" once removed
	fd  *os.File
}

func (t *cgroupTracker) prepare(cmd *exec.Cmd) error {
	dir := filepath.Join(t.parent, groupName())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make control group: %w", err)
	}
	fd, err := os.Open(dir)
	if err != nil {
		os.Remove(dir)
		return fmt.Errorf("open control group: %w", err)
	}
	t.dir, t.fd = dir, fd
	ownSession(cmd)
	cmd.SysProcAttr.UseCgroupFD = true
	cmd.SysProcAttr.CgroupFD = int(fd.Fd())
	return nil
}

func (t *cgroupTracker) started(pid int) {
	t.fd.Close()
	if pid == 0 {
		t.remove()
	}
}

// exited removes the control group when nothing is left in it; otherwise that is for kill to do.
func (t *cgroupTracker) exited() { t.remove() }

// path is the folder of the control group, or "" when it is gone.
func (t *cgroupTracker) path() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dir
}

// remove reports whether the control group is gone; the kernel refuses while a process is in it.
func (t *cgroupTracker) remove() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dir == "" {
		return true
	}
	err := os.Remove(t.dir)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		t.dir = ""
	}
	return t.dir == ""
}

func (t *cgroupTracker) kill(bound time.Duration, spare int) error {
	if spare != 0 {
		return t.killOthers(bound, spare)
	}
	if t.remove() {
		return nil
	}
	pids := t.members()
	if err := t.killAll(); err != nil {
		return err
	}
	gone := poll(bound, func() bool {
		reap(pids)
		return t.remove()
	})
	if !gone {
		return fmt.Errorf("still there after %v: %v", bound, t.members())
	}
	return nil
}

// killOthers ends the members one by one, round after round: a member may fork while the list is read.
func (t *cgroupTracker) killOthers(bound time.Duration, spare int) error {
	var left []int
	gone := poll(bound, func() bool {
		left = slices.DeleteFunc(t.members(), func(pid int) bool { return pid == spare })
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it went by itself
		}
		reap(left)
		return len(left) == 0
	})
	if !gone {
		return fmt.Errorf("still there after %v: %v", bound, left)
	}
	return nil
}

func (t *cgroupTracker) killAll() error {
	dir := t.path()
	if dir == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed meanwhile, so nothing is left
	}
	if err != nil {
		return fmt.Errorf("open cgroup.kill: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteString("1"); err != nil {
		return fmt.Errorf("write cgroup.kill: %w", err)
	}
	return nil
}

func (t *cgroupTracker) members() []int {
	raw, err := os.ReadFile(filepath.Join(t.path(), "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for f := range strings.FieldsSeq(string(raw)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// poll asks until the answer is yes or the bound has passed. A killed process is gone within a fraction of a
// millisecond as a rule, so it begins quickly.
func poll(bound time.Duration, done func() bool) bool {
	deadline := time.Now().Add(bound)
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if done() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(wait)
	}
}

// reap collects killed orphans where this process is the init of its container and they have become its children;
// nobody else would. Elsewhere they are not ours and the call does nothing.
func reap(pids []int) {
	if os.Getpid() != 1 {
		return
	}
	for _, pid := range pids {
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}
