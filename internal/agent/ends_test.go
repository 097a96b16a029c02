//go:build unix

package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

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

func TestSignalsAndExitCodes(t *testing.T) {
	tests := []struct {
		name, scene string
		signals     []syscall.Signal
		job         bool
		want        int
		state       ci.JobStatus
	}{
		{"SIGTERM while idle", "success", []syscall.Signal{syscall.SIGTERM}, false, 0, ""},
		{"SIGUSR1 while idle", "success", []syscall.Signal{syscall.SIGUSR1}, false, 0, ""},
		{"SIGUSR1 finishes the job", "gated", []syscall.Signal{syscall.SIGUSR1}, true, 0, ci.JobSuccess},
		{"SIGTERM finishes the job", "gated", []syscall.Signal{syscall.SIGTERM}, true, 0, ci.JobSuccess},
		{"SIGTERM twice cancels it", "polite", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, true, 1, ci.JobCancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gate := fifo(t)
			s := newFakeServer(t)
			tmp := t.TempDir()
			cmd := exec.Command(os.Args[0], "__agent", tt.scene+":"+gate)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp, "KICI_ORCHESTRATOR_URL=" + s.url, "KICI_PORT=0"}
			log := &lockedBuffer{}
			cmd.Stderr = log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p := s.accept()
			p.register()
			expect[wire.ConfigAck](p)
			if tt.job {
				p.send(dispatch("job-1", nil))
				expect[wire.StepStatus](p)
			}
			for i, sig := range tt.signals {
				if i > 0 {
					awaitDraining(p) // the first has been taken, or the two could be one
				}
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
			if tt.state == ci.JobSuccess {
				open(t, gate)
			}
			if tt.job {
				if end, _ := terminal(p); end.State != tt.state {
					t.Errorf("end = %+v", end)
				}
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.want {
				t.Errorf("exit code %d, want %d\n%s", got, tt.want, log)
			}
			if left, _ := filepath.Glob(filepath.Join(tmp, "kici-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// awaitDraining offers jobs until the agent refuses one for draining.
func awaitDraining(p *peer) {
	p.t.Helper()
	for n := 0; ; n++ {
		p.send(dispatch(fmt.Sprint("offer-", n), nil))
		if r := expect[wire.JobReject](p); r.Reason == wire.RejectDraining {
			return
		}
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
		for range 2 { // a server repeats what may not have arrived
			p.send(wire.JobCancel{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: "by a person"})
		}
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
		{"success", map[string]any{"bringupOnly": true}, "this agent cannot reach other hosts by SSH", 0},
		{"success", map[string]any{"initOnly": true}, "the step runner gave no result", 0},
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

func TestAJobIsEndedAtItsTimeoutEvenIfTheRunnerDoesNot(t *testing.T) {
	pipe := fifo(t)
	s := newFakeServer(t)
	startAgent(t, s.url, "stubborn:"+pipe)
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", map[string]any{"timeout": 500}))
	end, data := terminal(p)
	if end.State != ci.JobFailed || data.Error != "job_timeout: job exceeded its timeout of 500ms" {
		t.Errorf("end = %s %s", end.State, end.Data)
	}
}
