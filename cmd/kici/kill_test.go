//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/author/compile"
	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/proc"
)

// TestMain makes the test binary the program itself when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "server" || os.Args[1] == "agent" || os.Args[1] == "__runner") {
		main()
	}
	os.Exit(m.Run())
}

// slow is a workflow whose steps leave a mark each time they run, and take long enough to be hit.
const slow = `import { job, push, step, workflow } from '@kici-dev/sdk';

const work = (name) => step(name, async ({ $ }) => {
  await $` + "`echo ${name} >> ${'MARKS'}; sleep 0.4; echo ${name} done`" + `;
  return { name };
});
const first = job('first', { runsOn: 'linux', steps: [work('one'), work('two')] });
const second = job('second', { runsOn: 'linux', needs: [first], steps: [work('three')] });
export default workflow('slow', { on: push({ branches: 'main' }), jobs: [first, second] });
`

// world is a server and an agent as processes, and a repository.
type world struct {
	t      *testing.T
	base   string
	server *proc.Server
	agent  *proc.Process
	token  string
	api    *client.Client
	source adminwire.Source
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, base: t.TempDir()}
	t.Cleanup(func() {
		w.agent.Stop()
		w.server.Stop()
	})
	w.makeRepository()
	w.startServer("0")
	token, err := w.api.CreateAgentToken(t.Context(), adminwire.NewAgentToken{})
	w.must(err)
	w.token = token.Token
	w.startAgent()
	name, method := "work", "none"
	w.source, err = w.api.CreateSource(t.Context(), adminwire.SourceSettings{OrgID: client.Org, Name: &name, VerificationMethod: &method,
		LocalConfig: &adminwire.LocalConfig{RepoBasePath: filepath.Join(w.base, "repositories")}})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) makeRepository() {
	w.t.Helper()
	dir := filepath.Join(w.base, "repositories", "app")
	folder := filepath.Join(dir, compile.DefaultDir, "workflows")
	w.must(os.MkdirAll(folder, 0o755))
	source := strings.ReplaceAll(slow, "MARKS", filepath.Join(w.base, "marks"))
	w.must(os.WriteFile(filepath.Join(folder, "slow.ts"), []byte(source), 0o644))
	_, err := compile.Compile(w.t.Context(), compile.Options{Dir: dir, KiciDir: compile.DefaultDir})
	w.must(err)
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "slow"}} {
		cmd := exec.CommandContext(w.t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			w.t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
}

// recoverySetting makes the recovery window two seconds.
const recoverySetting = "KICI_AGENT_MAX_RECONNECT_DELAY_MS=1000"

func (w *world) startServer(port string) {
	w.t.Helper()
	var err error
	w.server, err = proc.StartServerOn(w.t.Context(), filepath.Join(w.base, "data"), port, recoverySetting)
	w.must(err)
	w.api, err = client.Connect(client.Where{URL: w.server.URL, DataDir: w.server.Data, Env: func(string) string { return "" }})
	w.must(err)
}

func (w *world) startAgent() {
	w.t.Helper()
	work := filepath.Join(w.base, "agent")
	w.must(os.MkdirAll(work, 0o700))
	var err error
	w.agent, err = proc.StartAgent(w.server, "agent-1", w.token, work, "linux")
	w.must(err)
}

// until polls a condition of another process, which nothing here could signal.
func (w *world) until(what string, yes func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			w.t.Fatalf("waited in vain for %s\nserver: %s\nagent: %s\nruns: %s", what, w.server.Output(), w.agent.Output(), w.explanations())
		case <-tick.C:
		}
	}
}

func (w *world) explanations() string {
	list, err := w.api.Runs(w.t.Context(), client.RunQuery{})
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, run := range list.Runs {
		x, err := w.api.Explain(w.t.Context(), run.RunID)
		raw, _ := json.Marshal(x)
		fmt.Fprintln(&out, string(raw), err)
	}
	return out.String()
}

func (w *world) marks() string {
	raw, err := os.ReadFile(filepath.Join(w.base, "marks"))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	return string(raw)
}

// ended waits for the end of the only run.
func (w *world) ended() adminwire.Run {
	w.t.Helper()
	var run adminwire.Run
	w.until("the run to end", func() bool {
		list, err := w.api.Runs(w.t.Context(), client.RunQuery{})
		w.must(err)
		if len(list.Runs) == 1 && list.Runs[0].Status.Terminal() {
			run = list.Runs[0]
		}
		return run.RunID != ""
	})
	return run
}

func TestServerKilledInTheMiddleOfARun(t *testing.T) {
	for _, at := range []string{"one\n", "one\ntwo\n", "one\ntwo\nthree\n"} {
		t.Run("after "+strings.ReplaceAll(strings.TrimSpace(at), "\n", " "), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			_, err := w.api.Trigger(t.Context(), w.source.ID, "app", "main")
			w.must(err)
			w.until("the steps to run", func() bool { return w.marks() == at })
			w.server.Kill()
			u, err := url.Parse(w.server.URL)
			w.must(err)
			w.startServer(u.Port())
			run := w.ended()
			if run.Status != "success" {
				t.Errorf("the run ended as %s\n%s", run.Status, w.explanations())
			}
			if got := w.marks(); got != "one\ntwo\nthree\n" {
				t.Errorf("steps ran as %q, each must run once", got)
			}
			jobs, err := w.api.Jobs(t.Context(), run.RunID)
			w.must(err)
			for _, j := range jobs {
				w.wantLog(run.RunID, j)
			}
		})
	}
}

// wantLog checks that every line of the steps is stored, and none twice.
func (w *world) wantLog(runID string, j adminwire.Job) {
	w.t.Helper()
	if j.Attempts != 1 {
		w.t.Errorf("job %s was given out %d times", j.JobName, j.Attempts)
	}
	for _, s := range j.Steps {
		page, err := w.api.Logs(w.t.Context(), runID, j.JobID, s.StepIndex, client.LogQuery{})
		w.must(err)
		if len(page.Lines) != 1 || !strings.Contains(page.Lines[0].Value, s.StepName+" done") {
			w.t.Errorf("log of step %s: %v", s.StepName, page.Lines)
		}
	}
}

func TestAgentKilledInTheMiddleOfAJob(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("started again %v", again), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			_, err := w.api.Trigger(t.Context(), w.source.ID, "app", "main")
			w.must(err)
			w.until("the first step to run", func() bool { return w.marks() == "one\n" })
			w.agent.Kill()
			if again {
				w.startAgent()
			}
			run := w.ended()
			x, err := w.api.Explain(t.Context(), run.RunID)
			w.must(err)
			if run.Status != "failed" || x.Jobs[0].Reason.Code != "agent_lost" || x.Jobs[1].Reason.Code != "upstream_unmet" {
				t.Errorf("the run ended as %s: %s", run.Status, w.explanations())
			}
			if got := w.marks(); got != "one\n" {
				t.Errorf("steps ran on after their agent was killed: %q", got)
			}
		})
	}
}
