//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/rig"
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

// world is a system of processes whose only agent leaves marks in a file.
type world struct {
	*rig.Rig
	t     *testing.T
	marks string // path of the file
}

// recoverySetting makes the recovery window two seconds.
const recoverySetting = "KICI_AGENT_MAX_RECONNECT_DELAY_MS=1000"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, marks: filepath.Join(t.TempDir(), "marks")}
	var err error
	w.Rig, err = rig.New(t.Context(), rig.Options{Name: "slow", Repo: "app", Environ: []string{recoverySetting},
		Workflow: []byte(strings.ReplaceAll(slow, "MARKS", w.marks))})
	w.must(err)
	t.Cleanup(w.Close)
	w.must(w.StartAgent("agent-1"))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits for something that other processes do.
func (w *world) until(what string, ask func() (bool, error)) {
	w.t.Helper()
	if err := w.Await(w.t.Context(), what, ask); err != nil {
		w.t.Fatalf("%v\nruns: %s", err, w.explanations())
	}
}

// untilMarked waits until exactly these steps have left their marks.
func (w *world) untilMarked(want string) {
	w.t.Helper()
	w.until("the steps to run", func() (bool, error) { return w.marked() == want, nil })
}

func (w *world) explanations() string {
	list, err := w.API.Runs(w.t.Context(), client.RunQuery{})
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, run := range list.Runs {
		x, err := w.API.Explain(w.t.Context(), run.RunID)
		raw, _ := json.Marshal(x)
		fmt.Fprintln(&out, string(raw), err)
	}
	return out.String()
}

func (w *world) marked() string {
	raw, err := os.ReadFile(w.marks)
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	return string(raw)
}

// ended waits for the end of the only run.
func (w *world) ended() adminwire.Run {
	w.t.Helper()
	var run adminwire.Run
	w.until("the run to end", func() (bool, error) {
		list, err := w.API.Runs(w.t.Context(), client.RunQuery{})
		if err != nil || len(list.Runs) != 1 {
			return false, err
		}
		run = list.Runs[0]
		return run.Status.Terminal(), nil
	})
	return run
}

func TestServerKilledInTheMiddleOfARun(t *testing.T) {
	for _, at := range []string{"one\n", "one\ntwo\n", "one\ntwo\nthree\n"} {
		t.Run("after "+strings.ReplaceAll(strings.TrimSpace(at), "\n", " "), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			_, err := w.Push(t.Context())
			w.must(err)
			w.untilMarked(at)
			w.Server.Kill()
			u, err := url.Parse(w.Server.URL)
			w.must(err)
			w.must(w.StartServer(t.Context(), u.Port()))
			run := w.ended()
			if run.Status != "success" {
				t.Errorf("the run ended as %s\n%s", run.Status, w.explanations())
			}
			if got := w.marked(); got != "one\ntwo\nthree\n" {
				t.Errorf("steps ran as %q, each must run once", got)
			}
			jobs, err := w.API.Jobs(t.Context(), run.RunID)
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
		page, err := w.API.Logs(w.t.Context(), runID, j.JobID, s.StepIndex, client.LogQuery{})
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
			_, err := w.Push(t.Context())
			w.must(err)
			w.untilMarked("one\n")
			w.Agents[0].Kill()
			if again {
				w.must(w.StartAgent("agent-1"))
			}
			run := w.ended()
			x, err := w.API.Explain(t.Context(), run.RunID)
			w.must(err)
			if run.Status != "failed" || x.Jobs[0].Reason.Code != "agent_lost" || x.Jobs[1].Reason.Code != "upstream_unmet" {
				t.Errorf("the run ended as %s: %s", run.Status, w.explanations())
			}
			if got := w.marked(); got != "one\n" {
				t.Errorf("steps ran on after their agent was killed: %q", got)
			}
		})
	}
}
