//go:build unix

package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open lets a scene go on that waits for the pipe.
func open(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestHandshakeWithAToken(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "success", func(c *Config) {
		c.Token = "kat_x"
		c.Labels = []string{"linux", "gpu"}
		c.Properties = map[string]any{"rack": 3.0}
	})
	p := s.accept()
	if auth := expect[wire.AuthRequest](p); auth.Token != "kat_x" || auth.ProtocolVersion != 1 {
		t.Errorf("auth = %+v", auth)
	}
	p.send(wire.AuthSuccess{ConnectionID: "c"})
	r := p.register()
	if r.AgentID != "agent-1" || r.Platform != "linux" || !strings.HasPrefix(r.MessageID, "register-agent-1-") || len(r.InFlightJobs) > 0 {
		t.Errorf("register = %+v", r)
	}
	for _, l := range []string{"linux", "gpu", "kici:os:linux", "kici:host:" + r.Hostname, "kici:role:builder", "kici:role:init-runner"} {
		if !slices.Contains(r.Labels, l) {
			t.Errorf("label %s is missing from %v", l, r.Labels)
		}
	}
	if !cmp.Equal(r.Features, allFeatures) || r.RunningAsUID == nil || *r.RunningAsUID != int64(os.Getuid()) || r.Properties["rack"] != 3.0 {
		t.Errorf("register = %+v", r)
	}
	if c := expect[wire.ConfigAck](p); c.AgentID != "agent-1" {
		t.Errorf("config.ack = %+v", c)
	}
	if frames, _ := p.heard(); frames[0].MessageType() != "auth.request" {
		t.Errorf("first frame is %s", frames[0].MessageType())
	}
}

func TestAJobIsReportedFromAcceptanceToItsEnd(t *testing.T) {
	for name, features := range map[string][]string{"our server": allFeatures, "a server without features": nil} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer(t)
			startAgent(t, s.url, "success")
			p := s.accept()
			p.register(features...)
			p.send(dispatch("job-1", nil, func(d *wire.JobDispatch) {
				d.RunPublicKey = "MCowBQYDK2VuAyEAe06Qm75//kTEZaIgA31gjuNYl9Me+XLwf3SJLLD3PxM="
			}))
			if features != nil {
				p.ack(expect[wire.JobAck](p).MessageID)
			}
			end, data := terminal(p)
			if end.State != ci.JobSuccess || string(data.Outputs) != `{"one":{"n":1}}` || !cmp.Equal(data.DroppedJobs, []string{"other"}) {
				t.Errorf("end = %+v %s", end, end.Data)
			}
			if want := []wire.StepResult{{Name: "one", Status: "success", DurationMs: 7}}; !cmp.Equal(data.StepResults, want) {
				t.Errorf("results = %+v", data.StepResults)
			}
			if secret := end.SecretOutputs["PASSWORD"]; secret.Encrypted == "" || strings.Contains(p.transcript(), "hunter22") {
				t.Errorf("secret output = %+v", secret)
			}
			expect[wire.AgentMetrics](p)
			if st := expect[wire.AgentStatus](p); st.ActiveJobs != 0 {
				t.Errorf("status after the job = %+v", st)
			}
			if got := lines(p, 0); !cmp.Equal(got, []string{"hello", "", "bye"}) {
				t.Errorf("log = %q", got)
			}
			steps := all[wire.StepStatus](p)
			if len(steps) != 2 || steps[0].State != "running" || steps[1].State != "success" || *steps[1].LogBytesStreamed != 8 ||
				!cmp.Equal(steps[1].SecretsAccessed, []string{"A"}) || string(steps[1].Data) != `{"durationMs":7,"extra":true}` {
				t.Errorf("steps = %+v", steps)
			}
			var order []string
			frames, _ := p.heard()
			for _, f := range frames {
				switch m := f.(type) {
				case wire.JobAck, wire.StepStatus:
					order = append(order, f.MessageType())
				case wire.JobStatus:
					order = append(order, string(m.State))
				case wire.RunEvent:
					order = append(order, m.EventType)
				}
			}
			want := []string{"job.ack", "running", "agent.execution.start", "step.status", "step.status", "agent.execution.end", "success", "agent.teardown"}
			if d := cmp.Diff(want, order); d != "" {
				t.Errorf("order:\n%s", d)
			}
		})
	}
}

// A frame over the limit would end every connection on which it is sent again.
func TestTheEndOfAJobFitsAFrame(t *testing.T) {
	for name, tt := range map[string]struct {
		outputs int
		state   ci.JobStatus
	}{
		"as much as a runner lets through": {2 << 20, ci.JobSuccess},
		"more than that":                   {3 << 20, ci.JobFailed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer(t)
			startAgent(t, s.url, fmt.Sprint("large:", tt.outputs))
			p := s.accept()
			p.register(allFeatures...)
			p.send(dispatch("job-1", nil, func(d *wire.JobDispatch) {
				d.RunPublicKey = "MCowBQYDK2VuAyEAe06Qm75//kTEZaIgA31gjuNYl9Me+XLwf3SJLLD3PxM="
			}))
			p.ack(expect[wire.JobAck](p).MessageID)
			end, data := terminal(p)
			frames, raws := p.heard()
			for i, raw := range raws {
				if len(raw) > wire.MaxAgentFrame {
					t.Errorf("a %s of %d bytes", frames[i].MessageType(), len(raw))
				}
			}
			if end.State != tt.state || len(data.StepResults) != 20 {
				t.Errorf("%s with %d results: %s", end.State, len(data.StepResults), data.Error)
			}
			if want := "the largest outputs are those of step 'one' with 3145728 bytes"; tt.state == ci.JobFailed && !strings.HasSuffix(data.Error, want) {
				t.Errorf("reason %q", data.Error)
			}
			if tt.state == ci.JobSuccess && (len(data.Outputs) != tt.outputs+len(`{"one":}`) || len(end.SecretOutputs) != 20) {
				t.Errorf("%d bytes of outputs, %d secret ones", len(data.Outputs), len(end.SecretOutputs))
			}
		})
	}
}

func TestSecretOutputsWithoutAKeyAreDroppedAndTheAuthorIsTold(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "success")
	p := s.accept()
	p.register()
	for i, key := range []string{"", "bm8ga2V5"} {
		p.send(dispatch(fmt.Sprint("job-", i), nil, func(d *wire.JobDispatch) { d.RunPublicKey = key }))
		if end, _ := terminal(p); end.State != ci.JobSuccess || len(end.SecretOutputs) > 0 || strings.Contains(p.transcript(), "hunter22") {
			t.Errorf("end = %+v", end)
		}
	}
	if got := strings.Join(lines(p, wire.JobLevel), "\n"); strings.Count(got, "Warning: secret outputs are dropped") != 2 {
		t.Error(got)
	}
}

func TestNoStepStartsBeforeTheServerHasConfirmedTheAck(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "success")
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	ack := expect[wire.JobAck](p)
	expect(p, func(e wire.RunEvent) bool { return e.EventType == "agent.execution.start" })
	p.cut() // the confirmation is lost with the connection
	p = s.accept()
	r := p.register(allFeatures...)
	if want := []wire.InFlightJob{{JobID: "job-1", RunID: "run-1"}}; !cmp.Equal(r.InFlightJobs, want) {
		t.Errorf("in flight = %v", r.InFlightJobs)
	}
	if again := expect[wire.JobAck](p); again != ack {
		t.Errorf("replayed ack = %+v, want %+v", again, ack)
	}
	expect[wire.JobHeartbeat](p)
	if n := len(all[wire.StepStatus](p)); n > 0 {
		t.Errorf("%d step states before the confirmation", n)
	}
	p.ack(ack.MessageID)
	if end, _ := terminal(p); end.State != ci.JobSuccess {
		t.Errorf("end = %+v", end)
	}
}

func TestALateDispatchIsNeverExecuted(t *testing.T) {
	s := newFakeServer(t)
	a := startAgent(t, s.url, "success")
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	expect[wire.JobAck](p)
	p.send(wire.JobCancel{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: wire.ReasonNotAssigned})
	p.send(dispatch("job-2", nil)) // taken as soon as the first is gone, else refused as busy
	for {
		if st := expect[wire.AgentStatus](p); st.ActiveJobs == 0 {
			break
		}
	}
	for _, m := range all[wire.StepStatus](p) {
		t.Errorf("step state %+v", m)
	}
	for _, m := range all[wire.JobStatus](p) {
		if m.State.Terminal() {
			t.Errorf("status %+v of a job that is not ours", m)
		}
	}
	if open := a.ledger.OpenJobs(); len(open) > 0 {
		t.Errorf("still in flight: %v", open)
	}
}

func TestWhatIsNotConfirmedIsReplayedInOrder(t *testing.T) {
	gate := fifo(t)
	s := newFakeServer(t)
	startAgent(t, s.url, "gated:"+gate)
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	ack := expect[wire.JobAck](p)
	p.ack(ack.MessageID)
	running := expect[wire.StepStatus](p)
	chunk := expect(p, func(c wire.LogChunk) bool { return c.StepIndex == 0 })
	p.ack(running.MessageID)
	p.cut()
	open(t, gate) // the job ends without a connection
	p = s.accept()
	r := p.register(allFeatures...)
	if len(r.InFlightJobs) != 1 {
		t.Errorf("in flight = %v", r.InFlightJobs)
	}
	end, data := terminal(p)
	if end.State != ci.JobSuccess || len(data.StepResults) != 1 {
		t.Errorf("end = %+v", end)
	}
	seen(p, func(c wire.LogChunk) bool { return c.MessageID == chunk.MessageID })
	if got := lines(p, 0); !cmp.Equal(got, []string{"before", "after"}) {
		t.Errorf("log = %q", got)
	}
	for _, m := range all[wire.StepStatus](p) {
		if m.MessageID == running.MessageID {
			t.Error("a confirmed frame was replayed")
		}
	}
	// A job stays in flight until its end is confirmed.
	p.cut()
	p = s.accept()
	if r := p.register(allFeatures...); len(r.InFlightJobs) != 1 {
		t.Errorf("in flight = %v", r.InFlightJobs)
	}
	end2, _ := terminal(p)
	if end2.MessageID != end.MessageID {
		t.Error("the end was replayed under another id")
	}
	for _, c := range all[wire.LogChunk](p) {
		p.ack(c.MessageID)
	}
	p.ack(end.MessageID)
	p.send(dispatch("job-1", nil)) // a requeue that crossed: the agent does not start it twice
	p.cut()
	p = s.accept()
	if r := p.register(allFeatures...); len(r.InFlightJobs) > 1 {
		t.Errorf("in flight = %v", r.InFlightJobs)
	}
}

func TestAnEndWithoutConnectionReachesAServerThatDoesNotConfirm(t *testing.T) {
	gate := fifo(t)
	s := newFakeServer(t)
	startAgent(t, s.url, "gated:"+gate)
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", nil))
	expect[wire.StepStatus](p)
	p.cut()
	open(t, gate)
	p = s.accept()
	p.register()
	if end, _ := terminal(p); end.State != ci.JobSuccess {
		t.Errorf("end = %+v", end)
	}
	seen(p, func(m wire.AgentLog) bool { return strings.HasPrefix(m.Lines[0], "--- Orchestrator offline for ") })
	p.cut()
	p = s.accept()
	if r := p.register(); len(r.InFlightJobs) > 0 {
		t.Errorf("in flight = %v", r.InFlightJobs)
	}
}

// repository makes a git repository with these files and returns its URL and commit.
func repository(t testing.TB, files map[string]string) (url, sha string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.test"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	git("add", "-A")
	git("commit", "-q", "-m", "x")
	return "file://" + dir, git("rev-parse", "HEAD")
}

const realWorkflow = `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { on: [], jobs: [job('build', { runsOn: 'linux', steps: [
  step('one', async (ctx) => {
    const { stdout } = await ctx.$` + "`cat a.txt; git rev-parse --abbrev-ref HEAD`" + `;
    ctx.log.info('secret ' + (await ctx.secrets.get('A')));
    return { text: stdout };
  }),
] })] });
`

func TestARealWorkflowRuns(t *testing.T) {
	url, sha := repository(t, map[string]string{"a.txt": "content\n", ".kici/workflows/ci.ts": realWorkflow})
	s := newFakeServer(t)
	startAgent(t, s.url, "", func(c *Config) { c.RunnerCommand = []string{os.Args[0], "__runner"} })
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", map[string]any{"checkout": true}, func(d *wire.JobDispatch) {
		d.RepoURL, d.SHA, d.Secrets = url, sha, map[string]string{"A": "s3cret-value"}
	}))
	p.ack(expect[wire.JobAck](p).MessageID)
	end, data := terminal(p)
	if end.State != ci.JobSuccess || string(data.Outputs) != `{"one":{"text":"content\nmain\n"}}` {
		t.Errorf("end = %s %s\n%s", end.State, end.Data, strings.Join(lines(p, -1), "\n"))
	}
	if got := lines(p, 0); !cmp.Equal(got, []string{"content", "main", "[one] secret ***"}) {
		t.Errorf("log = %q", got)
	}
}

// BenchmarkJob is what an agent adds to a trivial job: from the dispatch on the wire to the terminal status, with the
// source from a mirror and the embedded runner.
func BenchmarkJob(b *testing.B) {
	url, sha := repository(b, map[string]string{"a.txt": "content\n", ".kici/workflows/ci.ts": `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { on: [], jobs: [job('build', { runsOn: 'linux', steps: [step('one', async () => {})] })] });
`})
	s := newFakeServer(b)
	startAgent(b, s.url, "", func(c *Config) { c.RunnerCommand = []string{os.Args[0], "__runner"} })
	p := s.accept()
	p.register(allFeatures...)
	n := 0
	for b.Loop() {
		n++
		p.send(dispatch(fmt.Sprint("job-", n), map[string]any{"checkout": true}, func(d *wire.JobDispatch) { d.RepoURL, d.SHA = url, sha }))
		p.ack(expect[wire.JobAck](p).MessageID)
		end, _ := terminal(p)
		if end.State != ci.JobSuccess {
			b.Fatalf("end = %s %s", end.State, end.Data)
		}
		p.ack(end.MessageID)
	}
}

func TestTheSourceOfTheJobIsThere(t *testing.T) {
	url, sha := repository(t, map[string]string{"a.txt": "content", ".kici/workflows/ci.ts": "export default 1;\r\n"})
	const hash = "d7860edba9d5a63a7b851c470f721121348dec5488b16649dc9ddbdb2c3f1de9"
	tests := []struct {
		name, sha, hash, want string
	}{
		{"good", sha, hash, ""},
		{"another commit", strings.Repeat("12", 20), hash, "SHA mismatch: expected " + strings.Repeat("12", 20) + ", got " + sha},
		{"drift", sha, strings.Repeat("0", 64), "Lock file is out of date: workflow source changed without regenerating kici.lock.json (expected contentHash " +
			strings.Repeat("0", 64) + ", got " + hash + " in .kici/workflows/ci.ts)"},
	}
	s := newFakeServer(t)
	startAgent(t, s.url, "source")
	p := s.accept()
	p.register()
	for i, tt := range tests {
		p.send(dispatch(fmt.Sprint("job-", i), map[string]any{"checkout": true, "contentHash": tt.hash}, func(d *wire.JobDispatch) {
			d.RepoURL, d.SHA = url, tt.sha
		}))
		end, data := terminal(p)
		if !strings.Contains(data.Error, tt.want) || (tt.want == "") != (end.State == ci.JobSuccess) {
			t.Errorf("%s: end = %s %s", tt.name, end.State, end.Data)
		}
	}
	if got := lines(p, 0); !cmp.Equal(got, []string{"content<nil>"}) {
		t.Errorf("the step saw %q", got)
	}
}
