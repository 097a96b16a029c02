//go:build unix

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// steps is a workflow of one job with a command for each step.
func steps(commands ...string) string {
	var b strings.Builder
	b.WriteString("import { workflow, job, step } from '@kici-dev/sdk';\nexport default workflow('ci', { jobs: [job('build', { runsOn: 'linux', steps: [")
	for i, c := range commands {
		fmt.Fprintf(&b, "step('s%d', async ({ $ }) => { await $`%s`; }),", i, c)
	}
	b.WriteString("] })] });\n")
	return b.String()
}

// bench is an agent with the real runner, and a repository whose job is to print some words.
type bench struct {
	*peer
	t         *testing.T
	a         *testAgent
	repo, sha string
	jobs      int
}

func newBench(t *testing.T, commands ...string) *bench {
	t.Helper()
	b := &bench{t: t}
	b.repo, b.sha = newGitRepository(t, map[string]string{".kici/workflows/ci.ts": steps(commands...)})
	s := newFakeServer(t)
	b.a = startAgent(t, s.url, "", func(c *Config) { c.RunnerCommand = []string{os.Args[0], "__runner"} })
	b.keepSpares(spareLife)
	b.peer = s.accept()
	b.register(allFeatures...)
	return b
}

// keepSpares says how long a spare runner stays. Other tests have none, since starting one is most of what they cost.
func (b *bench) keepSpares(life time.Duration) {
	b.a.mu.Lock()
	defer b.a.mu.Unlock()
	b.a.spareLife = life
}

// run runs a job to its end, waits until nothing of it is left, and gives its log.
func (b *bench) run(env map[string]any) []string {
	b.t.Helper()
	b.jobs++
	id := fmt.Sprint("job-", b.jobs)
	b.send(dispatch(id, map[string]any{"checkout": true, "env": env}, func(d *wire.JobDispatch) { d.RepoURL, d.SHA = b.repo, b.sha }))
	b.ack(expect[wire.JobAck](b.peer).MessageID)
	end, _ := terminal(b.peer)
	if end.State != ci.JobSuccess || end.JobID != id {
		b.t.Fatalf("end = %+v %s\n%s", end, end.Data, b.transcript())
	}
	var log []string
	for _, f := range b.drain() {
		switch f := f.(type) {
		case wire.LogChunk:
			if f.StepIndex >= 0 {
				log = append(log, f.Lines...)
			}
		case wire.JobStatus:
			b.ack(f.MessageID)
		}
	}
	<-b.a.latest().Done()
	return log
}

// spare gives the pid of the spare runner.
func (b *bench) spare() int {
	b.t.Helper()
	b.a.mu.Lock()
	s := b.a.spare
	b.a.mu.Unlock()
	for begin := time.Now(); s != nil; runtime.Gosched() {
		for _, pid := range children(b.t) {
			if cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(cmd), "__runner") && lives(pid) {
				return pid
			}
		}
		if time.Since(begin) > patience {
			break
		}
	}
	b.t.Fatal("there is no spare runner")
	return 0
}

// children lists the processes that this one has started and that have not been reaped.
func children(t *testing.T) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tasks {
		raw, _ := os.ReadFile(path) // a thread may have ended
		for _, f := range strings.Fields(string(raw)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func TestEveryJobHasARunnerOfItsOwn(t *testing.T) {
	b := newBench(t, "echo $PPID \\${WHO:-nobody} \\${TZ:-local} ${new Date(0).getHours()}; pwd")
	seen := map[string]bool{}
	for i, who := range []string{"nobody", "me", "traveller", "nobody"} {
		var env map[string]any
		zone := "local"
		switch who {
		case "me":
			env = map[string]any{"WHO": who}
		case "traveller": // whose time zone a process learns when it starts
			zone = "Asia/Tokyo"
			env = map[string]any{"WHO": who, "TZ": zone}
		}
		var spare int
		if i > 0 {
			spare = b.spare()
		}
		log := b.run(env)
		if len(log) != 2 || seen[log[0]] || seen[log[1]] {
			t.Fatalf("job %d: log = %q, of %v", i, log, seen)
		}
		seen[log[0]], seen[log[1]] = true, true
		var pid int
		var got, where string
		var hour int // at the beginning of 1970
		_, err := fmt.Sscan(log[0], &pid, &got, &where, &hour)
		if err != nil || got != who || where != zone || zone != "local" && hour != 9 || i > 0 && (pid == spare) != (zone == "local") {
			t.Errorf("job %d ran in %q; the spare runner was %d", i, log[0], spare)
		}
		if lives(pid) {
			t.Errorf("runner %d lives on after job %d", pid, i)
		}
	}
}

func TestNothingOfAJobOutlivesIt(t *testing.T) {
	b := newBench(t,
		"(sleep 1000; echo late) & echo $!; setsid sleep 1000 > /dev/null 2>&1 & echo $!; env -i setsid sleep 1000 > /dev/null 2>&1 & echo $!")
	for i := range 2 {
		log := b.run(nil)
		if len(log) != 3 {
			t.Fatalf("log = %q", log)
		}
		for _, line := range log {
			var pid int
			if _, err := fmt.Sscan(line, &pid); err != nil {
				t.Fatalf("log = %q", log)
			}
			if lives(pid) {
				t.Errorf("process %d of job %d lives on", pid, i)
			}
		}
	}
}

// lives tells whether the process runs; one that has ended may wait to be reaped.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

func TestASpareRunnerThatDiedIsNotUsed(t *testing.T) {
	b := newBench(t, "echo $PPID")
	b.run(nil)
	settled := b.a.spareSettled()
	pid := b.spare()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-settled
	if log := b.run(nil); len(log) != 1 || log[0] == fmt.Sprint(pid) {
		t.Errorf("log = %q, the dead runner was %d", log, pid)
	}
}

func TestASpareRunnerDoesNotStayForLong(t *testing.T) {
	b := newBench(t, "echo $PPID")
	b.keepSpares(50 * time.Millisecond)
	b.run(nil)
	<-b.a.spareSettled()
	b.a.mu.Lock()
	defer b.a.mu.Unlock()
	if b.a.spare != nil {
		t.Error("the spare runner is still there")
	}
}
