//go:build unix

package agent

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/testenv"
)

// What every agent must do is tried with the real runner, on each host of JavaScript: the names are those of the list by
// which an agent is accepted.
func TestAcceptance(t *testing.T) {
	rows := []struct {
		name string
		test func(t *testing.T, host string)
	}{
		{"a recorded job gives the names, statuses, order, outputs and log of the recording", recordedJobs},
		{"no process survives a cancel", func(t *testing.T, host string) { survivors(t, host, nil, true) }},
		{"no process survives a timeout of the step", func(t *testing.T, host string) { survivors(t, host, nil, false) }},
		{"no process survives a timeout of the job", func(t *testing.T, host string) { survivors(t, host, map[string]any{"timeout": 6000}, false) }},
		{"the workspace is gone after SIGKILL of the runner", killedRunner},
		{"the token is absent from job.context, environment and logs", absentToken},
		{"all secrets stay masked after mountFile", maskedAfterMount},
		{"an offline finish is replayed", offlineFinish},
		{"20 MiB of output with a cap of 10 MiB give one truncation line", truncated},
		{"an isolated job installs but its steps have no network", isolated},
		{"KICI_FOO=1 stops the start", unknownVariable},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // an agent waits more than it works
			for _, host := range []string{"embedded", "node"} {
				t.Run(host, func(t *testing.T) {
					if host == "node" {
						testenv.Need(t, "node")
					}
					t.Parallel()
					row.test(t, host)
				})
			}
		})
	}
}

// forHost makes a workflow run on the host: an import of a module of node is what asks for node.
func forHost(host, source string) string {
	if host == "node" {
		source += "\nimport { EOL as nodeOnly } from 'node:os'; void nodeOnly;\n"
	}
	return source
}

// realAgent is an agent with the real runner, and the server's side of its connection.
func realAgent(t *testing.T, change ...func(*Config)) (*testAgent, *fakeServer, *peer) {
	t.Helper()
	s := newFakeServer(t)
	a := startAgent(t, s.url, "", append([]func(*Config){func(c *Config) { c.RunnerCommand = []string{os.Args[0], "__runner"} }}, change...)...)
	a.guardMargin = time.Minute // the runner keeps to its times by itself
	p := s.accept()
	if a.cfg.Token != "" {
		expect[wire.AuthRequest](p)
		p.send(wire.AuthSuccess{ConnectionID: "c"})
	}
	p.register()
	return a, s, p
}

// stepsOn is a workflow with one job of these steps. ~ stands for a backquote.
func stepsOn(host, body string) map[string]string {
	return map[string]string{".kici/workflows/ci.ts": forHost(host, strings.ReplaceAll(`import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('build', { runsOn: 'linux', steps: [`+body+`] })] });
`, "~", "`"))}
}

// give sends the job of a repository.
func give(t *testing.T, p *peer, files map[string]string, config map[string]any, change ...func(*wire.JobDispatch)) {
	t.Helper()
	url, sha := repository(t, files)
	conf := map[string]any{"checkout": true}
	for k, v := range config {
		conf[k] = v
	}
	p.send(dispatch("job-1", conf, append(change, func(d *wire.JobDispatch) { d.RepoURL, d.SHA = url, sha })...))
}

// wantHost fails the test when the job ran on another host.
func wantHost(t *testing.T, p *peer, host string) {
	t.Helper()
	want := map[string]string{"embedded": "[kici] Running on the embedded JavaScript host", "node": "[kici] Running on Node v"}[host]
	if log := strings.Join(lines(p, -1), "\n"); !strings.Contains(log, want) {
		t.Errorf("the job's log does not begin with its host:\n%s", log)
	}
}

// said is what a step showed: its statuses in their order, and its log without what recordings cannot keep.
type said struct {
	Order []string
	Logs  map[string][]string
}

func recordedJobs(t *testing.T, host string) {
	for recorded, workflow := range map[string]string{"two-steps-success": "capture", "failing-step": "capture", "hooks": "hooks", "parallel-groups": "parallel-groups",
		"timeouts-and-retry": "capture", "outputs-and-secret-outputs": "outputs-secrets"} {
		t.Run(recorded, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join(samples, "workflows", workflow+".ts"))
			if err != nil {
				t.Fatal(err)
			}
			url, sha := repository(t, map[string]string{".kici/workflows/" + workflow + ".ts": forHost(host, string(source))})
			_, _, p := realAgent(t)
			dispatches, ends := recording(t, recorded)
			shown := conversation(t, recorded)
			for _, d := range dispatches {
				d.RepoURL, d.SHA, d.Ref, d.SourceTarURL, d.JobConfig = url, sha, "main", "", withoutHash(t, d.JobConfig)
				p.send(d)
				end, _ := terminal(p)
				if want := ends[d.JobID]; end.State != want.State {
					// A value that its schema refuses fails the step here; the recorded agent let it pass.
					if recorded != "outputs-and-secret-outputs" || end.State != ci.JobFailed || !strings.Contains(string(d.JobConfig), `"refused"`) {
						t.Errorf("%s ended as %s, recorded as %s: %s", d.JobConfig, end.State, want.State, end.Data)
					}
					continue
				}
				if diff := cmp.Diff(shown[d.JobID], ours(p, d.JobID)); diff != "" {
					t.Errorf("%s (-recorded +ours):\n%s", d.JobConfig, diff)
				}
			}
			wantHost(t, p, host)
		})
	}
}

// conversation is what the steps of each job showed in a recording.
func conversation(t *testing.T, name string) map[string]*said {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(samples, "wire", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var frames []wire.Message
	for line := range strings.Lines(string(raw)) {
		var l struct {
			Dir string
			Msg json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Dir == "a2o" {
			m, err := wire.DecodeFromAgent(l.Msg)
			if err != nil {
				t.Fatal(err)
			}
			frames = append(frames, m)
		}
	}
	return collect(frames)
}

func ours(p *peer, job string) *said {
	frames, _ := p.heard()
	return collect(frames)[job]
}

// hookNames are shown as steps, too; in recordings some have the index of a step, and so its name.
var hookNames = []string{"beforeStep", "afterStep", "onSuccess", "onFailure", "onCancel", "cleanup"}

// outcomes are what hooks print here that is of the moment, and a reason that the recorded agent leaves out.
var outcomes = regexp.MustCompile(`,"duration":\d+|"reason":"[^"]*",`)

// collect reads the steps of each job out of an agent's frames. Hooks have other indices in recordings, and children of a
// group end in any order, so those are left out. So is what ours adds to a log: where in the author's file a step failed.
func collect(frames []wire.Message) map[string]*said {
	jobs := map[string]*said{}
	names := map[string]string{}
	trace := false
	for _, f := range frames {
		if m, ok := f.(wire.StepStatus); ok && names[m.JobID+"/"+strconv.Itoa(m.StepIndex)] == "" {
			names[m.JobID+"/"+strconv.Itoa(m.StepIndex)] = m.StepName
		}
	}
	for _, f := range frames {
		switch m := f.(type) {
		case wire.StepStatus:
			if slices.Contains(hookNames, m.StepName) || m.ConcurrencyKind != "" {
				continue
			}
			j := jobOf(jobs, m.JobID)
			j.Order = append(j.Order, m.StepName+" "+string(m.State))
		case wire.LogChunk:
			name := names[m.JobID+"/"+strconv.Itoa(m.StepIndex)]
			if name == "" || slices.Contains(hookNames, name) {
				continue
			}
			for _, line := range m.Lines {
				trace = strings.HasPrefix(line, "[kici]") || trace && !strings.HasPrefix(line, "    at ")
				// Secret outputs are secrets here, and known as such at once.
				if trace || strings.HasPrefix(line, "    at ") || strings.TrimSpace(line) == "" || strings.HasPrefix(line, "[read] meta ") {
					continue
				}
				line = strings.ReplaceAll(line, "dummy-secret-value-1", "***")
				j := jobOf(jobs, m.JobID)
				j.Logs[name] = append(j.Logs[name], outcomes.ReplaceAllString(line, ""))
			}
		}
	}
	for _, j := range jobs {
		for _, lines := range j.Logs {
			slices.Sort(lines) // stdout and stderr are read side by side
		}
	}
	return jobs
}

func jobOf(jobs map[string]*said, id string) *said {
	if jobs[id] == nil {
		jobs[id] = &said{Logs: map[string][]string{}}
	}
	return jobs[id]
}

// survivors runs a step that leaves a process behind which ignores all it can, and ends the job. Whatever still ran would
// hold the pipe open.
func survivors(t *testing.T, host string, config map[string]any, cancel bool) {
	pipe := fifo(t)
	held, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // nobody writes yet
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	_, _, p := realAgent(t)
	limit := ""
	if !cancel && config == nil {
		limit = "timeout: 6000, "
	}
	give(t, p, stepsOn(host, `step('leave', { `+limit+`run: async ({ $ }) => {
    await $~setsid bash -c 'trap "" TERM HUP INT; exec 3>`+pipe+`; echo up; sleep 1000' & sleep 1000~; } })`), config)
	expect(p, func(c wire.LogChunk) bool { return c.StepIndex == 0 && c.Lines[0] == "up" })
	want := ci.JobFailed
	if cancel {
		p.send(wire.JobCancel{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: "test"})
		want = ci.JobCancelled
	}
	if end, _ := terminal(p); end.State != want {
		t.Errorf("end = %s %s", end.State, end.Data)
	}
	if _, err := io.Copy(io.Discard, held); err != nil {
		t.Error(err)
	}
	wantHost(t, p, host)
}

func killedRunner(t *testing.T, host string) {
	a, _, p := realAgent(t)
	give(t, p, stepsOn(host, `step('wait', async ({ $ }) => { await $~echo pid $PPID; sleep 1000~; })`), nil)
	m := expect(p, func(c wire.LogChunk) bool { return c.StepIndex == 0 })
	var pid int
	if _, err := readPID(m.Lines[0], &pid); err != nil {
		t.Fatal(err)
	}
	j := a.running()
	dirs, _ := filepath.Glob(filepath.Join(a.cfg.TempDir, "kici-*"))
	if len(dirs) == 0 {
		t.Fatal("no workspace")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if end, _ := terminal(p); end.State != ci.JobFailed {
		t.Errorf("end = %s", end.Data)
	}
	<-j.done
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("workspace: %v", err)
		}
	}
}

func readPID(line string, pid *int) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(line, "pid "))
	*pid = n
	return n, err
}

func absentToken(t *testing.T, host string) {
	const token = "kat_agent_secret_token"
	_, _, p := realAgent(t, func(c *Config) {
		c.Token = token
		c.Environ = append(c.Environ, "KICI_AGENT_TOKEN="+token)
	})
	give(t, p, stepsOn(host, `step('show', async ({ $, env, log }) => { log.info(JSON.stringify(env)); await $~env; cat /proc/$PPID/environ | tr '\\0' '\\n'~; })`), nil)
	if end, _ := terminal(p); end.State != ci.JobSuccess {
		t.Fatalf("end = %s", end.Data)
	}
	text := p.transcript()
	if _, after, _ := strings.Cut(text, "agent.register"); strings.Contains(after, token) {
		t.Error("the token left the agent")
	}
	if log := strings.Join(lines(p, 0), "\n"); strings.Contains(log, "KICI_AGENT_TOKEN") || !strings.Contains(log, "PATH=") {
		t.Errorf("the step saw %s", log)
	}
	for _, v := range all[wire.JobContext](p)[0].Context.EnvVars {
		if strings.Contains(v.Value, token) {
			t.Errorf("job.context shows %s", v.Name)
		}
	}
	wantHost(t, p, host)
}

func maskedAfterMount(t *testing.T, host string) {
	_, _, p := realAgent(t)
	give(t, p, stepsOn(host, `
  step('mount', async ({ secrets, $ }) => { const { path } = await secrets.mountFile({ sources: ['FILE'] }); await $~cat ${path}~; }),
  step('after', async ({ secrets, $, log }) => { log.info('read ' + (await secrets.get('READ'))); await $~echo unread-secret-value cmVhZC1zZWNyZXQtdmFsdWU= file-secret-value~; }),
  step('fails', async () => { throw new Error('with read-secret-value'); })`), nil, func(d *wire.JobDispatch) {
		d.Secrets = map[string]string{"FILE": "file-secret-value", "READ": "read-secret-value", "UNREAD": "unread-secret-value"}
	})
	terminal(p)
	if got := append(lines(p, 0), lines(p, 1)...); !cmp.Equal(got, []string{"***", "[after] read ***", "*** *** ***"}) {
		t.Errorf("log = %q", got)
	}
	for _, secret := range []string{"file-secret-value", "read-secret-value", "unread-secret-value"} {
		if strings.Contains(p.transcript(), secret) {
			t.Errorf("%s left the agent", secret)
		}
	}
	wantHost(t, p, host)
}

func offlineFinish(t *testing.T, host string) {
	gate := fifo(t)
	_, s, p := realAgent(t)
	give(t, p, stepsOn(host, `step('wait', async ({ $ }) => { await $~echo begun; cat `+gate+`; echo over~; return { n: 1 }; })`), nil)
	expect(p, func(c wire.LogChunk) bool { return c.StepIndex == 0 })
	p.cut()
	open(t, gate)
	p = s.accept()
	p.register()
	end, data := terminal(p)
	if end.State != ci.JobSuccess || string(data.Outputs) != `{"wait":{"n":1}}` {
		t.Errorf("end = %s %s", end.State, end.Data)
	}
	seen(p, func(m wire.StepStatus) bool { return m.StepIndex == 0 && string(m.State) == "success" })
}

func truncated(t *testing.T, host string) {
	_, _, p := realAgent(t)
	give(t, p, stepsOn(host, `step('loud', async ({ $ }) => { await $~head -c 20971520 /dev/zero | tr '\\0' x | fold -w 16383~; }), step('next', async ({ log }) => { log.info('still heard'); })`), nil)
	if end, _ := terminal(p); end.State != ci.JobSuccess {
		t.Fatalf("end = %s", end.Data)
	}
	bytes, cuts := 0, 0
	for _, line := range lines(p, 0) {
		if bytes += len(line); line == "[TRUNCATED: log output exceeded 10485760 bytes]" {
			cuts++
		}
	}
	if cuts != 1 || bytes < 10<<20 || bytes > 10<<20+17000 {
		t.Errorf("%d lines of truncation, %d bytes", cuts, bytes)
	}
	if got := lines(p, 1); !cmp.Equal(got, []string{"[next] still heard"}) {
		t.Errorf("the next step says %q", got)
	}
}

// isolated needs bubblewrap: it is what takes the network away.
func isolated(t *testing.T, host string) {
	for _, program := range []string{"bwrap", "npm", "node"} {
		testenv.Need(t, program)
	}
	if out, err := exec.Command("bwrap", "--ro-bind", "/", "/", "--unshare-net", "--unshare-pid", "true").CombinedOutput(); err != nil {
		testenv.Missing(t, "bwrap", string(out))
	}
	reached := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path }))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://127.0.0.1:")
	_, _, p := realAgent(t, func(c *Config) { c.Sandbox = true })
	files := stepsOn(host, `step('try', async ({ $ }) => {
    const net = await $~exec 3<>/dev/tcp/127.0.0.1/`+address+`~.nothrow().exitCode;
    return { net, installed: await $~test -d .kici/node_modules~.exitCode }; })`)
	files[".kici/package.json"] = `{"name":"w","private":true,"dependencies":{"dep":"file:./dep"},"scripts":{"preinstall":"node -e \"require('http').get('` + server.URL + `/installing')\""}}`
	files[".kici/dep/package.json"] = `{"name":"dep","version":"1.0.0"}`
	give(t, p, files, nil)
	end, data := terminal(p)
	if end.State != ci.JobSuccess || string(data.Outputs) != `{"try":{"net":1,"installed":0}}` {
		t.Errorf("end = %s %s\n%s", end.State, end.Data, strings.Join(lines(p, -1), "\n"))
	}
	select {
	case path := <-reached:
		if path != "/installing" {
			t.Errorf("somebody asked for %s", path)
		}
	default:
		t.Error("the installation had no network")
	}
	wantHost(t, p, host)
}

func unknownVariable(t *testing.T, _ string) {
	cmd := exec.Command(os.Args[0], "__agent", "success")
	cmd.Env = append(os.Environ(), "KICI_ORCHESTRATOR_URL=ws://127.0.0.1:1", "KICI_FOO=1")
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the agent ended with %v", err)
	}
	if _, err := ConfigFromEnv([]string{"KICI_ORCHESTRATOR_URL=ws://127.0.0.1:1", "KICI_FOO=1"}); err == nil || !strings.Contains(err.Error(), "KICI_FOO") {
		t.Errorf("the variable is not named: %v", err)
	}
}
