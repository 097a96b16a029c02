package agent

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// realRunner makes the agent run steps with the real runner.
func realRunner(c *Config) { c.RunnerCommand = []string{os.Args[0], "__runner"} }

// runJob runs a job of the repository to its end and gives its log.
func runJob(t *testing.T, p *peer, id, repo, sha string, change ...func(*wire.JobDispatch)) []string {
	t.Helper()
	change = append([]func(*wire.JobDispatch){func(d *wire.JobDispatch) { d.RepoURL, d.SHA = repo, sha }}, change...)
	p.send(dispatch(id, map[string]any{"checkout": true}, change...))
	p.ack(expect[wire.JobAck](p).MessageID)
	end, _ := terminal(p)
	if end.State != ci.JobSuccess || end.JobID != id {
		t.Fatalf("end = %+v %s\n%s", end, end.Data, p.transcript())
	}
	var log []string
	for _, c := range all[wire.LogChunk](p) {
		if c.JobID == id && c.StepIndex >= 0 {
			log = append(log, c.Lines...)
		}
	}
	for _, s := range all[wire.JobStatus](p) {
		p.ack(s.MessageID)
	}
	return log
}

func TestJobsOfOneCommitShareARunnerAndNoOthers(t *testing.T) {
	repo, sha := newGitRepository(t, map[string]string{".kici/workflows/ci.ts": steps("echo $PPID \\${WHO:-}; pwd")})
	s := newFakeServer(t)
	startAgent(t, s.url, "", realRunner)
	p := s.accept()
	p.register(allFeatures...)
	secret := func(d *wire.JobDispatch) { d.Secrets = map[string]string{"A": "hunter2"} }
	env := func(d *wire.JobDispatch) {
		d.JobConfig = dispatch("", map[string]any{"env": map[string]any{"WHO": "me"}}).JobConfig
		d.JobConfig = []byte(strings.Replace(string(d.JobConfig), `"checkout":false`, `"checkout":true`, 1))
	}
	tests := []struct {
		name   string
		change []func(*wire.JobDispatch)
		same   bool // as the one before
	}{
		{"first", nil, false},
		{"same commit", nil, true},
		{"with a secret", []func(*wire.JobDispatch){secret}, false},
		{"after one with a secret", nil, false},
		{"again", nil, true},
		{"other environment", []func(*wire.JobDispatch){env}, false},
		{"other ref", []func(*wire.JobDispatch){func(d *wire.JobDispatch) { d.Ref = "other" }}, false},
	}
	last := []string{"", ""}
	for i, tt := range tests {
		log := runJob(t, p, fmt.Sprintf("job-%d", i), repo, sha, tt.change...)
		if len(log) != 2 || (log[0] == last[0]) != tt.same || log[1] == last[1] {
			t.Errorf("%s: log = %q after %q", tt.name, log, last)
		}
		last = log
	}
}

func TestNothingOfAJobOutlivesItInASharedRunner(t *testing.T) {
	repo, sha := newGitRepository(t, map[string]string{".kici/workflows/ci.ts": steps(
		"echo $PPID; (sleep 1000; echo late) & echo $!; setsid sleep 1000 > /dev/null 2>&1 & echo $!; env -i setsid sleep 1000 > /dev/null 2>&1 & echo $!")})
	s := newFakeServer(t)
	startAgent(t, s.url, "", realRunner)
	p := s.accept()
	p.register(allFeatures...)
	var runners []string
	for i := range 2 {
		log := runJob(t, p, fmt.Sprintf("job-%d", i), repo, sha)
		runners = append(runners, log[0])
		for _, line := range log[1:] {
			var pid int
			if _, err := fmt.Sscan(line, &pid); err != nil {
				t.Fatalf("log = %q", log)
			}
			if lives(pid) {
				t.Errorf("process %d of job %d lives on", pid, i)
			}
		}
	}
	if runners[0] != runners[1] {
		t.Errorf("runners = %q", runners)
	}
}

// lives tells whether the process runs; one that has ended may wait to be reaped.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

func TestASpareRunnerThatDiedIsReplaced(t *testing.T) {
	repo, sha := newGitRepository(t, map[string]string{".kici/workflows/ci.ts": steps("echo $PPID")})
	s := newFakeServer(t)
	a := startAgent(t, s.url, "", realRunner)
	p := s.accept()
	p.register(allFeatures...)
	first := runJob(t, p, "job-1", repo, sha)
	<-a.latest().done
	var pid int
	if _, err := fmt.Sscan(first[0], &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	messages := a.spare.proc.Messages()
	a.mu.Unlock()
	<-messages // it has ended for sure
	if again := runJob(t, p, "job-2", repo, sha); cmp.Equal(first, again) {
		t.Errorf("log = %q, as before", again)
	}
}

func TestASpareRunnerDoesNotStayForLong(t *testing.T) {
	repo, sha := newGitRepository(t, map[string]string{".kici/workflows/ci.ts": steps("echo $PPID")})
	s := newFakeServer(t)
	a := startAgent(t, s.url, "", realRunner)
	a.spareLife = time.Millisecond
	p := s.accept()
	p.register(allFeatures...)
	log := runJob(t, p, "job-1", repo, sha)
	begin := time.Now()
	var pid int
	if _, err := fmt.Sscan(log[0], &pid); err != nil {
		t.Fatal(err)
	}
	for lives(pid) {
		if time.Since(begin) > patience {
			t.Fatal("the runner is still there")
		}
		runtime.Gosched()
	}
}
