package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
	if first := p.frames[0]; first.MessageType() != "auth.request" {
		t.Errorf("first frame is %s", first.MessageType())
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
			for _, f := range p.frames {
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
	if open := a.ledger.openJobs(); len(open) > 0 {
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

func TestOneJobAtATime(t *testing.T) {
	gate := fifo(t)
	s := newFakeServer(t)
	a := startAgent(t, s.url, "gated:"+gate)
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	p.ack(expect[wire.JobAck](p).MessageID)
	expect[wire.StepStatus](p)
	p.send(dispatch("job-2", nil))
	if r := expect[wire.JobReject](p); r.JobID != "job-2" || r.Reason != wire.RejectBusy {
		t.Errorf("reject = %+v", r)
	}
	if st := expect[wire.AgentStatus](p); st.ActiveJobs != 1 {
		t.Errorf("status = %+v", st)
	}
	p.send(dispatch("job-1", nil))
	if again := expect[wire.JobAck](p); again.JobID != "job-1" {
		t.Errorf("ack = %+v", again)
	}
	a.Drain()
	p.send(dispatch("job-3", nil))
	if r := expect[wire.JobReject](p); r.JobID != "job-3" || r.Reason != wire.RejectDraining {
		t.Errorf("reject = %+v", r)
	}
	open(t, gate)
	end, _ := terminal(p)
	for _, m := range append(all[wire.StepStatus](p), wire.StepStatus{MessageID: end.MessageID}) {
		p.ack(m.MessageID)
	}
	for _, m := range all[wire.JobStatus](p) {
		p.ack(m.MessageID)
	}
	for _, m := range all[wire.JobAck](p) {
		p.ack(m.MessageID)
	}
	for _, m := range all[wire.LogChunk](p) {
		p.ack(m.MessageID)
	}
	if err := a.ended(); err != nil {
		t.Errorf("a drained agent ended with %v", err)
	}
	<-p.gone
	if !strings.Contains(p.closed.Error(), "1000") && !strings.Contains(p.closed.Error(), wire.ReasonAgentLeaves) {
		t.Errorf("closed with %v", p.closed)
	}
}

func TestCancel(t *testing.T) {
	t.Run("politely, with hooks", func(t *testing.T) {
		s := newFakeServer(t)
		startAgent(t, s.url, "polite")
		p := s.accept()
		p.register()
		p.send(dispatch("job-1", nil))
		expect[wire.StepStatus](p)
		p.send(wire.JobCancel{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: "by a person"})
		end, _ := terminal(p)
		if end.State != ci.JobCancelled {
			t.Errorf("end = %+v", end)
		}
		if got := lines(p, 3); !cmp.Equal(got, []string{"cleaning up"}) {
			t.Errorf("log of the hook = %q", got)
		}
	})
	for name, cancels := range map[string][]wire.JobCancel{
		"by force":                 {{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: "x", Force: true}},
		"twice":                    {{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: "x"}, {MessageID: "d", RunID: "run-1", JobID: "job-1", Reason: "x"}},
		"after the grace has gone": {{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: "x", GraceMs: 1}},
	} {
		t.Run(name+", a stubborn runner with a detached grandchild", func(t *testing.T) {
			pipe := fifo(t)
			s := newFakeServer(t)
			startAgent(t, s.url, "stubborn:"+pipe)
			p := s.accept()
			p.register()
			p.send(dispatch("job-1", nil))
			held, err := os.Open(pipe) // blocks until the grandchild is up
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			expect[wire.StepStatus](p)
			for _, c := range cancels {
				p.send(c)
			}
			if end, _ := terminal(p); end.State != ci.JobCancelled {
				t.Errorf("end = %+v", end)
			}
			if _, err := io.Copy(io.Discard, held); err != nil { // ends with the last holder of the pipe
				t.Error(err)
			}
		})
	}
	t.Run("before a step", func(t *testing.T) {
		s := newFakeServer(t)
		startAgent(t, s.url, "success")
		p := s.accept()
		p.register(allFeatures...)
		p.send(dispatch("job-1", nil))
		expect(p, func(e wire.RunEvent) bool { return e.EventType == "agent.execution.start" })
		p.send(wire.JobCancel{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: "x"})
		if end, _ := terminal(p); end.State != ci.JobCancelled {
			t.Errorf("end = %+v", end)
		}
		p.send(wire.JobCancel{MessageID: "c", RunID: "run-9", JobID: "job-9", Reason: "unknown here"})
	})
}

func TestARunnerThatFailsIsReportedTruthfully(t *testing.T) {
	tests := []struct {
		scene  string
		config map[string]any
		want   string
		steps  int
	}{
		{"crash", nil, "Workflow runner crashed:\nboom with ***\n    at file.ts:1", 2},
		{"vanish", nil, "Workflow runner exited unexpectedly (code=3, signal=null)", 0},
		{"early-exit", nil, "Workflow runner exited unexpectedly (code=4, signal=null)", 0},
		{"success", map[string]any{"container": "node:24"}, "this agent does not start containers for jobs", 0},
		{"success", map[string]any{"buildOnly": true}, "this agent does not run build jobs", 0},
		{"success", map[string]any{"contentHash": "abc"}, "check workflow source", 0},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			s := newFakeServer(t)
			startAgent(t, s.url, tt.scene)
			p := s.accept()
			p.register()
			p.send(dispatch("job-1", tt.config, func(d *wire.JobDispatch) { d.Secrets = map[string]string{"A": "s3cret-value"} }))
			end, data := terminal(p)
			if end.State != ci.JobFailed || !strings.Contains(data.Error, tt.want) || len(data.StepResults) != tt.steps {
				t.Errorf("end = %s %s", end.State, end.Data)
			}
		})
	}
	t.Run("no such program", func(t *testing.T) {
		s := newFakeServer(t)
		startAgent(t, s.url, "", func(c *Config) { c.RunnerCommand = []string{"/nonexistent/runner"} })
		p := s.accept()
		p.register()
		p.send(dispatch("job-1", nil))
		if end, data := terminal(p); end.State != ci.JobFailed || !strings.Contains(data.Error, "/nonexistent/runner") {
			t.Errorf("end = %s", end.Data)
		}
	})
}

func TestSecretsAreMaskedOnEveryWayOut(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "secrets", func(c *Config) {
		c.Token = "kat_agent"
		c.Environ = append(c.Environ, "KICI_AGENT_TOKEN=kat_agent", "MY_PASSWORD=hunter2", "KICI_DATABASE_URL=postgres://u:pw@h/d")
	})
	p := s.accept()
	expect[wire.AuthRequest](p)
	p.send(wire.AuthSuccess{ConnectionID: "c"})
	p.register()
	p.send(dispatch("job-1", map[string]any{"jobEnv": map[string]any{"API_KEY": "plain-key", "LEVEL": "high s3cret-value"}},
		func(d *wire.JobDispatch) { d.Secrets = map[string]string{"A": "s3cret-value"} }))
	_, data := terminal(p)
	if data.Error != "job ***" || string(data.StepResults[0].Error) != `"failed with ***"` {
		t.Errorf("data = %+v", data)
	}
	if got := lines(p, 0); !cmp.Equal(got, []string{"value *** base64 *** token ***"}) {
		t.Errorf("log = %q", got)
	}
	text := p.transcript()
	text = text[strings.Index(text, "agent.register"):] // the token was said where it belongs
	for _, secret := range []string{"s3cret-value", "czNjcmV0LXZhbHVl", "kat_agent", "plain-key", "hunter2", "postgres"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s left the agent", secret)
		}
	}
	vars := map[string]wire.EnvVar{}
	for _, v := range all[wire.JobContext](p)[0].Context.EnvVars {
		vars[v.Name] = v
	}
	for name, want := range map[string]wire.EnvVar{
		"KICI_AGENT_TOKEN": {Name: "KICI_AGENT_TOKEN", Value: "***", Category: "secret"},
		"API_KEY":          {Name: "API_KEY", Value: "***", Category: "secret"},
		"LEVEL":            {Name: "LEVEL", Value: "high ***", Category: "user"},
	} {
		if vars[name] != want {
			t.Errorf("%s = %+v", name, vars[name])
		}
	}
}

func TestTheEnvironmentOfStepsIsBuiltFromNothing(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "request", func(c *Config) {
		c.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=/home/a", "KICI_AGENT_TOKEN=kat_x", "AWS_SECRET=x", "TZ=UTC"}
		c.StepTimeout = 90 * time.Second
	})
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", map[string]any{
		"env": map[string]any{"KICI_RUN_ID": "r", "A": "1"}, "environmentVars": map[string]any{"A": "2", "B": "2"},
		"jobEnv": map[string]any{"B": "3", "KICI_AGENT_TOKEN": "kat_y"}, "timeout": 60000, "orchestratorPrivateKey": "private",
	}, func(d *wire.JobDispatch) {
		d.Secrets = map[string]string{"S": "s3cret-value"}
		d.Token = "clone-token"
	}))
	terminal(p)
	got := lines(p, 0)
	want := []string{"A=2", "B=3", "FORCE_COLOR=1", "HOME=/home/a", "KICI_RUN_ID=r", "PATH=" + os.Getenv("PATH"), "TZ=UTC"}
	if marks := slices.IndexFunc(got, func(kv string) bool { return strings.HasPrefix(kv, "_KICI_GROUP=") }); marks >= 0 {
		got = slices.Delete(got, marks, marks+1) // where no control group can be made
	}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("environment:\n%s", d)
	}
	var request map[string]any
	log := strings.Join(lines(p, -1), "\n")
	if err := json.Unmarshal([]byte(log[strings.Index(log, "{"):]), &request); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	for name, want := range map[string]any{"runId": "run-1", "jobId": "job-1", "jobName": "build", "sourceFile": ".kici/workflows/ci.ts",
		"workflowName": "ci", "branch": "main", "jobTimeoutMs": 60000.0, "defaultStepTimeoutMs": 90000.0, "checkout": false, "workDir": lines(p, 1)[0]} {
		if !cmp.Equal(request[name], want) {
			t.Errorf("request.%s = %v, want %v", name, request[name], want)
		}
	}
	if request["secrets"] == nil || request["event"] == nil {
		t.Errorf("request = %v", request)
	}
	for _, name := range []string{"token", "orchestratorPrivateKey", "timeout"} {
		if request[name] != nil {
			t.Errorf("the runner was given %s", name)
		}
	}
}

func TestLogsAreBoundedAndCutIntoLines(t *testing.T) {
	t.Run("limit", func(t *testing.T) {
		s := newFakeServer(t)
		startAgent(t, s.url, "flood")
		p := s.accept()
		p.register(allFeatures...)
		p.send(dispatch("job-1", nil, func(d *wire.JobDispatch) { d.MaxLogSizeBytes = 100_000 }))
		p.ack(expect[wire.JobAck](p).MessageID)
		terminal(p)
		got := lines(p, 0)
		if want := 100_000/507 + 2; len(got) != want || got[len(got)-1] != "[TRUNCATED: log output exceeded 100000 bytes]" {
			t.Errorf("%d lines, want %d; the last is %q", len(got), want, got[len(got)-1])
		}
		for _, c := range all[wire.LogChunk](p) {
			if len(c.Lines) > 50 {
				t.Errorf("a chunk of %d lines", len(c.Lines))
			}
		}
	})
	t.Run("long line", func(t *testing.T) {
		s := newFakeServer(t)
		startAgent(t, s.url, "long-lines")
		p := s.accept()
		p.register()
		p.send(dispatch("job-1", nil))
		terminal(p)
		got := lines(p, 0)
		if len(got) != 2 || len(got[0]) > maxLine || strings.Join(got, "") != strings.Repeat("é", 50_000) {
			t.Errorf("%d lines", len(got))
		}
	})
}

func TestALoudStepWaitsForASlowServerAndLosesNothing(t *testing.T) {
	s := newFakeServer(t)
	a := startAgent(t, s.url, "flood", func(c *Config) { c.MaxLogBytes = 1 << 30 })
	p := s.accept()
	p.register(allFeatures...)
	resume := p.stopReading()
	p.send(dispatch("job-1", nil))
	// The step is held up once the socket and a mebibyte of frames are full.
	deadline := time.Now().Add(patience)
	for a.metrics.pausing.Load() == 0 {
		_, _, changed := a.ledger.room()
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond): // pausing changes nothing in the ledger
		}
		if p.t.Failed() || time.Now().After(deadline) {
			t.Fatal("the step was not held up")
		}
		a.ledger.mu.Lock()
		if len(a.ledger.byID) > 0 && a.ledger.front != nil { // the fence must not be what holds it up
			for id, e := range a.ledger.byID {
				if e.settled != nil {
					a.ledger.mu.Unlock()
					a.ledger.ack(id, false)
					a.ledger.mu.Lock()
					break
				}
			}
		}
		a.ledger.mu.Unlock()
	}
	if a.ledger.size > 8<<20 {
		t.Errorf("%d bytes are held in the agent", a.ledger.size)
	}
	resume()
	if end, _ := terminal(p); end.State != ci.JobSuccess {
		t.Errorf("end = %+v", end)
	}
	got := lines(p, 0)
	if len(got) != 40_000 {
		t.Fatalf("%d lines, want 40000", len(got))
	}
	for i, l := range got {
		if !strings.HasPrefix(l, fmt.Sprintf("%06d ", i)) {
			t.Fatalf("line %d is %.20q", i, l)
		}
	}
}

func TestQuestionsOfStepsAreRelayed(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "ask")
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	p.ack(expect[wire.JobAck](p).MessageID)
	e := expect[wire.EventEmit](p)
	p.send(wire.EventEmitResponse{RequestID: e.RequestID, DeliveryID: "ev-1"})
	q := expect[wire.APIRequest](p)
	p.send(wire.APIResponse{RequestID: q.RequestID, Result: json.RawMessage(`{"hostname":"h"}`)})
	c := expect[wire.UserCacheRestoreRequest](p)
	p.send(wire.UserCacheRestoreResponse{RequestID: c.MessageID, Hit: true, DownloadURL: "http://localhost:9/x"})
	expect[wire.UserCacheSaveComplete](p)
	ap := expect[wire.ApprovalRequest](p)
	if len(ap.Clauses) != 1 || ap.Clauses[0].Team != "ops" {
		t.Errorf("approval = %+v", ap)
	}
	p.ack(ap.MessageID) // received; the answer may come on another connection
	p.cut()
	p = s.accept()
	p.register(allFeatures...)
	if again := expect[wire.ApprovalRequest](p); again.MessageID != ap.MessageID {
		t.Errorf("approval was asked again as %s", again.MessageID)
	}
	p.send(wire.ApprovalResolved{RequestID: ap.MessageID, RunID: "run-1", JobID: "job-1", Outcome: wire.ApprovalApproved})
	terminal(p)
	host := strings.Split(strings.TrimPrefix(s.url, "ws://"), ":")[0]
	want := []string{
		`{"deliveryId":"ev-1","requestId":"1","type":"event.emit.response"}`,
		`{"requestId":"2","result":{"hostname":"h"},"type":"agent.api.response"}`,
		`{"downloadUrl":"http://` + host + `:9/x","hit":true,"requestId":"3","type":"cache.response"}`,
		`{"requestId":"4","type":"cache.response"}`,
		`{"outcome":"approved","requestId":"5","type":"approval.resolved"}`,
		`{"error":"this agent cannot reach other hosts by SSH, which kici.preBootSend needs","requestId":"6","type":"agent.api.response"}`,
	}
	if d := cmp.Diff(want, lines(p, 0)); d != "" {
		t.Errorf("answers:\n%s", d)
	}
}

func TestAJobWaitsForItsConcurrencyGroup(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.url, "concurrency")
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", nil))
	r := expect[wire.ConcurrencyReport](p)
	if r.Group != "deploy" {
		t.Errorf("report = %+v", r)
	}
	p.send(wire.ConcurrencyAck{RequestID: r.MessageID, Action: wire.ConcurrencyWait, Reason: "taken"})
	// The reference wakes a waiter under an id of its own.
	p.send(wire.ConcurrencyAck{RequestID: "other", Action: wire.ConcurrencyProceed, RunID: "run-1", JobID: "job-1"})
	terminal(p)
	if d := cmp.Diff([]string{"wait taken", "proceed <nil>"}, lines(p, -1)[1:]); d != "" {
		t.Errorf("log:\n%s", d)
	}
}

func TestTheSourceOfTheJobIsThere(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "repo")
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.test"}, args...)...)
		if args[0] != "init" {
			cmd.Dir = repo
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main", repo)
	if err := os.MkdirAll(filepath.Join(repo, ".kici/workflows"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.txt": "content", ".kici/workflows/ci.ts": "export default 1;\r\n"} {
		if err := os.WriteFile(filepath.Join(repo, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git("add", "-A")
	git("commit", "-q", "-m", "x")
	sha := git("rev-parse", "HEAD")
	const hash = "d7860edba9d5a63a7b851c470f721121348dec5488b16649dc9ddbdb2c3f1de9"
	tests := []struct {
		name, sha, hash, want string
	}{
		{"good", sha, hash, ""},
		{"another commit", strings.Repeat("12", 20), hash, "SHA mismatch: expected " + strings.Repeat("12", 20) + ", got " + sha},
		{"drift", sha, strings.Repeat("0", 64), "Lock file is out of date: .kici/workflows/ci.ts has content hash " + hash},
	}
	s := newFakeServer(t)
	startAgent(t, s.url, "source")
	p := s.accept()
	p.register()
	for i, tt := range tests {
		p.send(dispatch(fmt.Sprint("job-", i), map[string]any{"checkout": true, "contentHash": tt.hash}, func(d *wire.JobDispatch) {
			d.RepoURL, d.SHA = "file://"+repo, tt.sha
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

func TestEndpoints(t *testing.T) {
	s := newFakeServer(t)
	a := startAgent(t, s.url, "success")
	p := s.accept()
	get := func(path string) (int, string) {
		t.Helper()
		res, err := http.Get("http://" + a.address.Load().(string) + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	expect[wire.AgentRegister](p)
	if code, _ := get("/ready"); code != 503 {
		t.Errorf("ready before registration = %d", code)
	}
	p.send(wire.RegisterAck{AgentID: "agent-1"})
	expect[wire.ConfigAck](p)
	if code, _ := get("/ready"); code != 200 {
		t.Errorf("ready = %d", code)
	}
	p.send(dispatch("job-1", nil))
	terminal(p)
	expect[wire.AgentStatus](p)
	if code, body := get("/health"); code != 200 || !strings.Contains(body, `"agentId":"agent-1"`) || !strings.Contains(body, `"connected":true`) {
		t.Errorf("health = %d %s", code, body)
	}
	_, body := get("/metrics")
	for _, want := range []string{`kici_agent_jobs_total{status="success"} 1`, `kici_agent_steps_total{status="success"} 1`,
		`kici_agent_step_duration_seconds_bucket{le="0.1"} 1`, `kici_agent_connection_status 1`, "kici_agent_jobs_active 0"} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("metrics lack %s:\n%s", want, body)
		}
	}
	m := all[wire.AgentMetrics](p)
	if len(m) == 0 || len(m[0].Metrics) < 8 {
		t.Errorf("metrics frames = %+v", m)
	}
}

func TestEndsOfAnAgent(t *testing.T) {
	t.Run("graceful without work", func(t *testing.T) {
		s := newFakeServer(t)
		a := startAgent(t, s.url, "success")
		s.accept().register()
		a.stop()
		if err := a.ended(); err != nil {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("graceful waits for the job", func(t *testing.T) {
		gate := fifo(t)
		s := newFakeServer(t)
		a := startAgent(t, s.url, "gated:"+gate)
		p := s.accept()
		p.register()
		p.send(dispatch("job-1", nil))
		expect[wire.StepStatus](p)
		a.stop()
		p.send(dispatch("job-2", nil))
		if r := expect[wire.JobReject](p); r.Reason != wire.RejectDraining {
			t.Errorf("reject = %+v", r)
		}
		open(t, gate)
		if end, _ := terminal(p); end.State != ci.JobSuccess {
			t.Errorf("end = %+v", end)
		}
		if err := a.ended(); err != nil {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("scaler-managed without work", func(t *testing.T) {
		s := newFakeServer(t)
		a := startAgent(t, s.url, "success", func(c *Config) { c.ScalerManaged, c.IdleTimeout = true, time.Millisecond })
		s.accept().register()
		if err := a.ended(); err != nil {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("scaler-managed waits for an announced job", func(t *testing.T) {
		s := newFakeServer(t)
		a := startAgent(t, s.url, "success", func(c *Config) {
			c.ScalerManaged, c.IdleTimeout, c.PendingDispatchTimeout = true, time.Millisecond, time.Hour
		})
		p := s.accept()
		expect[wire.AgentRegister](p)
		p.send(wire.RegisterAck{AgentID: "agent-1", ScalerManaged: true, PendingDispatch: true})
		expect[wire.ConfigAck](p)
		p.send(dispatch("job-1", nil))
		terminal(p)
		if err := a.ended(); err != nil {
			t.Errorf("err = %v", err)
		}
	})
	for _, how := range []string{"auth.failure", "close 4010"} {
		refuse := func(p *peer) {
			if how == "auth.failure" {
				p.send(wire.AuthFailure{Reason: "Invalid or expired token"})
				return
			}
			_ = p.conn.Close(wire.CloseUnauthorized, wire.ReasonAuthFailed)
		}
		t.Run("scaler-managed and refused by "+how, func(t *testing.T) {
			s := newFakeServer(t)
			a := startAgent(t, s.url, "success", func(c *Config) { c.ScalerManaged, c.Token = true, "kat_x" })
			p := s.accept()
			expect[wire.AuthRequest](p)
			refuse(p)
			var exit *ExitError
			if err := a.ended(); !errors.As(err, &exit) || exit.Code != 1 {
				t.Errorf("err = %v", err)
			}
		})
		t.Run("static and refused by "+how, func(t *testing.T) {
			s := newFakeServer(t)
			a := startAgent(t, s.url, "success", func(c *Config) { c.Token = "kat_x" })
			p := s.accept()
			expect[wire.AuthRequest](p)
			refuse(p)
			<-p.gone
			a.stop()
			if err := a.ended(); err != nil {
				t.Errorf("err = %v", err)
			}
			select {
			case <-s.conns:
				t.Error("a refused agent connected again")
			default:
			}
		})
	}
}

func TestTheWorkspaceGoesWithAKilledRunner(t *testing.T) {
	pipe := fifo(t)
	s := newFakeServer(t)
	a := startAgent(t, s.url, "stubborn:"+pipe)
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", nil))
	held, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	expect[wire.StepStatus](p)
	j := a.running()
	dirs, _ := filepath.Glob(filepath.Join(a.cfg.TempDir, "kici-*"))
	if len(dirs) != 1 {
		t.Fatalf("workspaces: %v", dirs)
	}
	pid := exec.Command("pgrep", "-f", "__scene stubborn:"+pipe)
	out, err := pid.Output()
	if err != nil {
		t.Skipf("no pgrep: %v", err)
	}
	var n int
	if _, err := fmt.Sscan(string(out), &n); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	end, data := terminal(p)
	if end.State != ci.JobFailed || data.Error != "Workflow runner exited unexpectedly (code=-1, signal=killed)" {
		t.Errorf("end = %s", end.Data)
	}
	<-j.done
	if _, err := os.Stat(dirs[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("workspace: %v", err)
	}
	if _, err := io.Copy(io.Discard, held); err != nil {
		t.Error(err)
	}
}
