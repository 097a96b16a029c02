//go:build unix

package local

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kici/internal/agent/runner"
	"kici/internal/author/compile"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/plan"
)

func TestMain(m *testing.M) {
	if os.Getenv("KICI_TEST_RUNNER") != "" {
		os.Exit(runner.Main(context.Background(), os.Stdin, os.Stdout, os.Stderr))
	}
	if dir := os.Getenv("KICI_TEST_HOLD"); dir != "" {
		os.Exit(holdLock(dir))
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tape is a screen that remembers.
type tape struct {
	mu    sync.Mutex
	lines []string
	wait  string // closes seen when a line has it
	seen  chan struct{}
}

func (s *tape) Show(adminwire.RunDetail, []adminwire.Job) {}

func (s *tape) Line(log adminwire.LogName, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, log.Job+" › "+log.Step+" | "+text)
	if s.wait != "" && strings.Contains(text, s.wait) {
		s.wait = ""
		close(s.seen)
	}
}

func (s *tape) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// bench is a repository with one workflow and what it is run with.
type bench struct {
	t      *testing.T
	Root   string
	Screen *tape
	Options
}

// repository makes one with a workflow whose jobs are given, everything committed.
func repository(t *testing.T, jobs string) *bench {
	t.Helper()
	root := t.TempDir()
	b := &bench{t: t, Root: root, Screen: &tape{seen: make(chan struct{})}}
	b.write(".kici/workflows/ci.ts", `import { workflow, job, step, parallel, rule, dynamicJob, dynamicGroup, checkStep } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [`+jobs+`] });`)
	b.write(".gitignore", "ignored\n")
	b.git("init", "--quiet", "--initial-branch=main")
	b.git("add", ".")
	b.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message=first")
	compiled, err := compile.Compile(t.Context(), compile.Options{Dir: root})
	must(t, err)
	lock, bad := lockfile.Load(compiled.Lock, "app", "main")
	if bad != nil {
		t.Fatal(bad)
	}
	self, err := os.Executable()
	must(t, err)
	b.Options = Options{
		Work: Work{Workflow: lock.Workflows[0], Host: "here", Source: plan.Source{Repo: "acme/app", Ref: "main", SHA: strings.Repeat("1", 40), Provider: "local"},
			Event: ci.Event{Type: "push", TargetBranch: "main", Payload: json.RawMessage(`{"n": 1}`)}},
		Root: root, Jobs: 2, Scratch: t.TempDir(), Environ: os.Environ(), Runner: []string{self}, Screen: b.Screen,
		Env: map[string]string{"KICI_TEST_RUNNER": "1"},
	}
	return b
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.Root, name)
	must(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(b.t, os.WriteFile(path, []byte(text), 0o644))
}

func (b *bench) git(args ...string) {
	b.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = b.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func (b *bench) run() Result {
	b.t.Helper()
	return b.runUntil(b.t.Context())
}

func (b *bench) runUntil(ctx context.Context) Result {
	b.t.Helper()
	o := b.Options
	o.Root, o.Screen = b.Root, b.Screen
	result, err := Run(ctx, o)
	must(b.t, err)
	if left, err := os.ReadDir(o.Scratch); err != nil || len(left) > 0 && !o.Keep {
		b.t.Errorf("left in the scratch folder: %v, %v", left, err)
	}
	return result
}

// statuses are those of the jobs in their order, the run's first.
func statuses(r Result) string {
	list := []string{string(r.Run.Status)}
	for _, j := range r.Jobs {
		list = append(list, fmt.Sprintf("%s=%s", j.JobName, j.Status))
	}
	return strings.Join(list, " ")
}

// ends checks how everything ended.
func (b *bench) ends(r Result, want string) {
	b.t.Helper()
	if got := statuses(r); got != want {
		b.t.Errorf("got  %s\nwant %s", got, want)
		for _, j := range r.Jobs {
			if j.ErrorMessage != nil {
				b.t.Logf("%s: %s", j.JobName, *j.ErrorMessage)
			}
		}
		b.t.Log(b.Screen.text())
	}
}

func (b *bench) says(want ...string) {
	b.t.Helper()
	for _, w := range want {
		if !strings.Contains(b.Screen.text(), w) {
			b.t.Errorf("%q is not in\n%s", w, b.Screen.text())
		}
	}
}
