//go:build unix

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kici/internal/testenv"
)

// TestMain lets the test binary be the runner: the suite drives the real child process.
func TestMain(m *testing.M) {
	if os.Getenv("KICI_TEST_RUNNER") != "" {
		guardGrace = time.Second // an endless loop uses up a processor as long
		os.Exit(Main(context.Background(), os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// hosts are where every test of the suite runs: the same workflows must behave the same on both.
var hosts = []string{"embedded", "node"}

func onBothHosts(t *testing.T, test func(t *testing.T, host string)) {
	t.Parallel() // a job waits more than it works
	for _, host := range hosts {
		t.Run(host, func(t *testing.T) {
			if host == "node" {
				testenv.Need(t, "node")
			}
			t.Parallel()
			test(t, host)
		})
	}
}

// job is one run of a job through a real runner.
type job struct {
	t       testing.TB
	process *Process
	dir     string

	Logs     map[int][]string
	Steps    []StepComplete
	Starts   []StepStart
	Order    []string // "start name", "pending name", "status name"
	Complete *JobComplete
	Requests []Request
	Mounts   []SecretMount
	Exit     Exit
	answer   func(Request) any
}

// workflow wraps steps into the usual file.
func workflow(steps string) string {
	return `import { workflow, job, step, parallel, rule, skip } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', steps: [` + steps + `] })] });`
}

// start writes the workflow and starts its job. Fields override those of the request.
func start(t *testing.T, host, source string, fields map[string]any) *job {
	t.Helper()
	j := prepare(t, host, source)
	j.execute(fields)
	return j
}

func prepare(t testing.TB, host, source string) *job {
	t.Helper()
	j := &job{t: t, dir: t.TempDir(), Logs: map[int][]string{}}
	if host == "node" {
		// The import is what makes a workflow need node. It stands at the end, so that lines stay what they are.
		source += "\nimport { EOL as nodeOnly } from 'node:os'; void nodeOnly;\n"
	}
	file := filepath.Join(j.dir, ".kici", "workflows", "ci.ts")
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(source), 0o644))
	self, err := os.Executable()
	must(t, err)
	j.process, err = Start(t.Context(), Options{
		Dir: j.dir, Command: []string{self},
		Env: []string{"KICI_TEST_RUNNER=1", "PATH=" + os.Getenv("PATH"), "HOME=" + j.dir, "TMPDIR=" + t.TempDir(), "GREETING=hello"},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := j.process.Kill(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func (j *job) execute(fields map[string]any) {
	request := map[string]any{
		"runId": "r1", "jobId": "j1", "workDir": j.dir, "workflowName": "ci", "jobName": "unit",
		"sourceFile": ".kici/workflows/ci.ts", "event": map[string]any{"type": "push", "payload": map[string]any{"n": 1}},
	}
	maps.Copy(request, fields)
	must(j.t, j.process.Send(map[string]any{"type": TypeExecute, "request": request}))
}

// run runs a job to its end.
func run(t *testing.T, host, source string, fields map[string]any) *job {
	t.Helper()
	return start(t, host, source, fields).wait()
}

// wait takes every message and the exit.
func (j *job) wait() *job {
	j.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case m, ok := <-j.process.Messages():
			if !ok {
				j.Exit = j.process.Wait()
				return j
			}
			j.take(m)
		case <-deadline:
			j.t.Fatalf("the job does not end; so far %v, logs %v", j.Order, j.Logs)
		}
	}
}

// until takes messages up to the first that fits.
func (j *job) until(fits func(m Message) bool) {
	j.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case m, ok := <-j.process.Messages():
			if !ok {
				j.t.Fatalf("the runner ended too early: %+v, logs %v", j.process.Wait(), j.Logs)
			}
			j.take(m)
			if fits(m) {
				return
			}
		case <-deadline:
			j.t.Fatalf("what was awaited does not come; logs %v", j.Logs)
		}
	}
}

func (j *job) untilLog(text string) {
	j.t.Helper()
	j.until(func(m Message) bool { return m.Type == TypeLogLine && bytes.Contains(m.Raw, []byte(text)) })
}

func (j *job) take(m Message) {
	switch m.Type {
	case TypeLogLine:
		l := decode[LogLine](j.t, m)
		j.Logs[l.StepIndex] = append(j.Logs[l.StepIndex], l.Line)
	case TypeStepStart:
		s := decode[StepStart](j.t, m)
		j.Starts = append(j.Starts, s)
		word := "start "
		if s.State == "pending" {
			word = "pending "
		}
		j.Order = append(j.Order, word+s.StepName)
	case TypeStepComplete:
		s := decode[StepComplete](j.t, m)
		j.Steps = append(j.Steps, s)
		j.Order = append(j.Order, s.Status+" "+s.StepName)
	case TypeSecretMount:
		j.Mounts = append(j.Mounts, decode[SecretMount](j.t, m))
	case TypeJobComplete:
		c := decode[JobComplete](j.t, m)
		j.Complete = &c
	case TypeReady:
	default:
		r := decode[Request](j.t, m)
		j.Requests = append(j.Requests, r)
		if j.answer != nil {
			if a := j.answer(r); a != nil {
				must(j.t, j.process.Send(a))
			}
		}
	}
}

// step gives the last completion of a step.
func (j *job) step(name string) StepComplete {
	j.t.Helper()
	for _, s := range slices.Backward(j.Steps) {
		if s.StepName == name {
			return s
		}
	}
	j.t.Fatalf("no completion of step %s; order %v, logs %v, exit %+v", name, j.Order, j.Logs, j.Exit)
	return StepComplete{}
}

// log gives a step's log as one text, without the trace of a failure.
func (j *job) log(step int) string {
	return strings.Join(j.Logs[step], "\n")
}

func (j *job) succeeded() *job {
	j.t.Helper()
	if j.Complete == nil || j.Complete.Status != "success" || j.Exit.Code != 0 {
		j.t.Fatalf("the job did not succeed: %+v\nexit %+v\norder %v\nlogs %v", j.Complete, j.Exit, j.Order, j.Logs)
	}
	return j
}

func (j *job) failed(text string) *job {
	j.t.Helper()
	if j.Complete == nil || j.Complete.Status != "failed" || j.Exit.Code != 1 {
		j.t.Fatalf("the job did not fail in order: %+v\nexit %+v\nlogs %v", j.Complete, j.Exit, j.Logs)
	}
	if !strings.Contains(j.Complete.Error, text) {
		j.t.Errorf("error %q does not say %q", j.Complete.Error, text)
	}
	return j
}

func (j *job) results() string {
	var list []string
	for _, r := range j.Complete.StepResults {
		list = append(list, fmt.Sprintf("%d:%s:%s", r.StepIndex, r.Name, r.Status))
	}
	return strings.Join(list, " ")
}

func decode[T any](t testing.TB, m Message) T {
	t.Helper()
	var v T
	must(t, m.Decode(&v))
	return v
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equalJSON(t *testing.T, got any, want string) {
	t.Helper()
	raw, err := json.Marshal(got)
	must(t, err)
	var a, b any
	must(t, json.Unmarshal(raw, &a))
	must(t, json.Unmarshal([]byte(want), &b))
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if !bytes.Equal(x, y) {
		t.Errorf("got %s\nwant %s", x, y)
	}
}

func onNode(t *testing.T) {
	t.Helper()
	testenv.Need(t, "node")
}
