//go:build unix

package agent

import (
	"flag"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kici/internal/agent/job"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// benchRunner is the program whose __runner the benchmark starts, as the real binary starts slower than this one.
var benchRunner = flag.String("runner", os.Args[0], "program to run steps with, for benchmarks")

// BenchmarkTrivialJob measures a job of one step with one command, from its dispatch to its terminal status, and prints
// when each part of it was done: right after another job, which has left a spare runner, and after a while.
func BenchmarkTrivialJob(b *testing.B) {
	b.Run("spare", func(b *testing.B) { benchTrivialJob(b, spareLife) })
	b.Run("cold", func(b *testing.B) { benchTrivialJob(b, 0) })
}

func benchTrivialJob(b *testing.B, spareLife time.Duration) {
	repo, sha := newGitRepository(b, map[string]string{".kici/workflows/ci.ts": steps("echo hello"), "README.md": "# Small\n"})
	s := newFakeServer(b)
	a := startAgent(b, s.url, "", func(c *Config) { c.RunnerCommand = []string{*benchRunner, "__runner"} })
	a.mu.Lock()
	a.spareLife = spareLife
	a.mu.Unlock()
	p := s.accept()
	p.register(allFeatures...)
	parts := map[string][]time.Duration{}
	var names []string
	run := func(id string) {
		begin := time.Now()
		p.send(dispatch(id, map[string]any{"checkout": true}, func(d *wire.JobDispatch) {
			d.RepoURL, d.SHA = repo, sha
		}))
		p.ack(expect[wire.JobAck](p).MessageID)
		j := a.latest()
		m, _ := terminal(p)
		took := time.Since(begin)
		if m.State != ci.JobSuccess {
			b.Fatalf("state %s: %s\n%s", m.State, m.Data, p.transcript())
		}
		<-j.Done()
		for _, f := range p.drain() {
			if f, ok := f.(wire.JobStatus); ok {
				p.ack(f.MessageID)
			}
		}
		for name, done := range timeline(b, a.log.String()) {
			if parts[name] == nil {
				names = append(names, name)
			}
			parts[name] = append(parts[name], done)
		}
		parts["whole"] = append(parts["whole"], took)
	}
	run("first")
	first := map[string]time.Duration{}
	for name, list := range parts {
		first[name] = list[0]
	}
	clear(parts)
	names = nil
	before := cpuTime(b)
	i := 0
	for b.Loop() {
		run("job-" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))
		i++
	}
	b.ReportMetric(ms(cpuTime(b)-before)/float64(b.N), "cpu-ms/job")
	b.Logf("%-12s %9s %9s %9s", "done after", "first", "median", "best")
	for _, name := range append(names, "whole") {
		list := parts[name]
		if len(list) == 0 {
			continue
		}
		slices.Sort(list)
		b.Logf("%-12s %7.1fms %7.1fms %7.1fms", name, ms(first[name]), ms(list[len(list)/2]), ms(list[0]))
	}
}

// timeline gives the parts of the job that ended last, in the order in which they were done, from the agent's log.
func timeline(b *testing.B, log string) iter.Seq2[string, time.Duration] {
	_, line, found := strings.Cut(log[max(0, strings.LastIndex(log, `msg="job timeline"`)):], "job=")
	if !found {
		b.Fatal("the log has no timeline of the job")
	}
	line, _, _ = strings.Cut(line, "\n")
	return func(yield func(string, time.Duration) bool) {
		for _, part := range strings.Fields(line)[1:] {
			name, value, _ := strings.Cut(part, "=")
			done, err := time.ParseDuration(value)
			if err != nil {
				b.Fatal(err)
			}
			if !yield(name, done) {
				return
			}
		}
	}
}

// cpuTime is what this process and its ended children have used. Unlike the time on the wall it says something on a
// busy machine, too.
func cpuTime(b *testing.B) (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// latest is the job that the agent took last.
func (a *Agent) latest() *job.Job {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// spareSettled is closed when the spare runner has been taken or has ended.
func (a *Agent) spareSettled() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spare == nil {
		settled := make(chan struct{})
		close(settled)
		return settled
	}
	return a.spare.left
}

// drain gives and forgets all frames so far, so that a long benchmark does not keep them.
func (p *peer) drain() []wire.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.frames
	p.frames, p.raws, p.taken = nil, nil, 0
	return list
}

// newGitRepository makes a repository of these files and gives its URL and commit.
func newGitRepository(t testing.TB, files map[string]string) (url, sha string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-q", "-m", "all")
	git("branch", "other")
	return "file://" + dir, git("rev-parse", "HEAD")[:40]
}
