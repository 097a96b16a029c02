package sandbox

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// markName is the variable by which a process that has left session and family is known again.
const markName = "_KICI_GROUP"

// procTracker finds members by reading /proc: the leader's session and process group, its family tree, and a mark in
// the environment that a daemon inherits. Only a process that both detaches itself and clears its environment before
// the tree is read escapes it; where control groups can be made they are used instead.
type procTracker struct {
	mark []byte // NAME=value as it stands in /proc/<pid>/environ

	mu    sync.Mutex
	pid   int
	start int64 // start time of the leader, in clock ticks since boot
	known map[int]int64
}

func (t *procTracker) prepare(cmd *exec.Cmd) error {
	t.mark = []byte(markName + "=" + rand.Text())
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, string(t.mark))
	ownSession(cmd)
	return nil
}

func (t *procTracker) started(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pid, t.known = pid, map[int]int64{}
	if pid != 0 {
		t.start = startTime(pid)
	}
}

func (t *procTracker) exited() {}

func (t *procTracker) kill(bound time.Duration, spare int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
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

// process is what /proc/<pid>/stat says of one.
type process struct {
	pid, parent, group, session int
	state                       byte
	start                       int64
}

// members reads /proc once. A process once seen as a member stays one (told by pid and start time), so that killing a
// parent does not hide its children from the next round.
func (t *procTracker) members() []int {
	all := processes()
	byPid := make(map[int]process, len(all))
	for _, p := range all {
		byPid[p.pid] = p
	}
	// The number of an ended session is not given away while a member lives; if the leader's pid belongs to another
	// process now, the session is empty and the number means nothing any more.
	leader, ok := byPid[t.pid]
	reused := ok && leader.start != t.start
	for changed := true; changed; {
		changed = false
		for _, p := range all {
			if start, ok := t.known[p.pid]; ok && start == p.start {
				continue
			}
			if t.belongs(p, byPid, reused) {
				t.known[p.pid] = p.start
				changed = true
			}
		}
	}
	var pids []int
	for _, p := range all {
		if start, ok := t.known[p.pid]; ok && start == p.start && p.state != 'Z' && p.state != 'X' {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

func (t *procTracker) belongs(p process, byPid map[int]process, reused bool) bool {
	if !reused && (p.pid == t.pid || p.session == t.pid || p.group == t.pid) {
		return true
	}
	if start, ok := t.known[p.parent]; ok && byPid[p.parent].start == start {
		return true
	}
	if p.start < t.start || p.state == 'Z' {
		return false
	}
	env, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
	return err == nil && bytes.Contains(env, t.mark)
}

func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

func readProcess(pid int) (process, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name in brackets may hold anything, brackets and blanks too, so fields are counted after the last one.
	text := string(raw)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 20 {
		return process{}, false
	}
	p := process{pid: pid, state: f[0][0]}
	p.parent, _ = strconv.Atoi(f[1])
	p.group, _ = strconv.Atoi(f[2])
	p.session, _ = strconv.Atoi(f[3])
	p.start, _ = strconv.ParseInt(f[19], 10, 64)
	return p, true
}

// startTime is when the process began, in clock ticks since boot, or 0 when there is none of that pid.
func startTime(pid int) int64 {
	p, _ := readProcess(pid)
	return p.start
}
