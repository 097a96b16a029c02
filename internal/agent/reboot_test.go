//go:build unix

package agent

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
)

// asked waits for a call of the agent API and answers it.
func asked(p *peer, method, refusal string) {
	p.t.Helper()
	q := expect[wire.APIRequest](p)
	if q.Method != method {
		p.t.Errorf("asked %s, want %s", q.Method, method)
	}
	answer := wire.APIResponse{RequestID: q.RequestID, Error: refusal}
	if refusal == "" {
		answer.Result = json.RawMessage(`{}`)
	}
	p.send(answer)
}

// rebooted waits until the machine goes down.
func (a *testAgent) rebooted() {
	a.t.Helper()
	select {
	case <-a.reboots:
	case <-time.After(patience):
		a.t.Fatal("the machine is not rebooted")
	}
}

// beginReboot is an agent that takes a job whose steps call these methods.
func beginReboot(t *testing.T, methods string, change ...func(*Config)) (*fakeServer, *testAgent, *peer) {
	t.Helper()
	s := newFakeServer(t)
	a := startAgent(t, s.url, "reboot:"+methods, change...)
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("job-1", nil))
	p.ack(expect[wire.JobAck](p).MessageID)
	return s, a, p
}

func TestTheMachineIsRebootedOnceTheServerHasTheEndOfTheJob(t *testing.T) {
	s, a, p := beginReboot(t, "host.requestReboot")
	asked(p, "host.requestReboot", "")
	end, _ := terminal(p)
	if st := expect[wire.AgentStatus](p); st.ActiveJobs != 0 {
		t.Errorf("status %+v", st)
	}
	p.send(dispatch("job-2", nil))
	if r := expect[wire.JobReject](p); r.Reason != wire.RejectDraining {
		t.Errorf("a job was refused as %s", r.Reason)
	}
	p.cut() // before the end was acknowledged
	p = s.accept()
	p.register(allFeatures...)
	if again, _ := terminal(p); again.MessageID != end.MessageID {
		t.Errorf("the end was told again as %s", again.MessageID)
	}
	asked(p, "host.requestReboot", "") // the server took the host for one that is back
	if n := len(a.reboots); n != 0 {
		t.Fatal("the machine is rebooted before the server has the end of the job")
	}
	p.ack(end.MessageID)
	a.rebooted()
}

func TestTheMachineIsRebootedForAServerThatAcknowledgesNothing(t *testing.T) {
	s := newFakeServer(t)
	a := startAgent(t, s.url, "reboot:host.requestReboot")
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", nil))
	asked(p, "host.requestReboot", "")
	a.rebooted()
	terminal(p)
	expect[wire.AgentStatus](p)
}

func TestTheMachineIsRebootedForAJobThatDidNotWaitForTheAnswer(t *testing.T) {
	s := newFakeServer(t)
	a := startAgent(t, s.url, "reboot-unheard")
	p := s.accept()
	p.register()
	p.send(dispatch("job-1", nil))
	q := expect[wire.APIRequest](p)
	terminal(p)
	expect[wire.AgentStatus](p)
	p.send(wire.APIResponse{RequestID: q.RequestID, Result: json.RawMessage(`{}`)})
	a.rebooted()
}

func TestAMachineThatCannotBeRebootedTakesJobsAgain(t *testing.T) {
	_, a, p := beginReboot(t, "host.requestReboot")
	a.rebootFails.Store(true)
	q := expect[wire.APIRequest](p)
	if d := cmp.Diff(`{"deadlineMs":60000}`, string(q.Params)); d != "" {
		t.Error(d)
	}
	p.send(wire.APIResponse{RequestID: q.RequestID, Result: json.RawMessage(`{}`)})
	end, _ := terminal(p)
	p.ack(end.MessageID)
	a.rebooted()
	asked(p, "host.cancelReboot", "")
	p.send(dispatch("job-2", nil))
	p.ack(expect[wire.JobAck](p).MessageID)
	asked(p, "host.requestReboot", "no")
	terminal(p)
}

func TestAMachineIsNotRebooted(t *testing.T) {
	tests := []struct {
		name    string
		methods string
		own     bool // the server is on this machine
		server  func(p *peer)
		log     string
	}{
		{"that is the server's", "host.requestReboot", true, func(*peer) {},
			`{"error":"refusing to reboot the orchestrator host","requestId":"1","type":"agent.api.response"}`},
		{"that the server refuses to let go", "host.requestReboot", false, func(p *peer) { asked(p, "host.requestReboot", "no") },
			`{"error":"no","requestId":"1","type":"agent.api.response"}`},
		{"of which that is not wanted any more", "host.requestReboot host.cancelReboot", false,
			func(p *peer) { asked(p, "host.requestReboot", ""); asked(p, "host.cancelReboot", "") },
			`{"requestId":"1","result":{},"type":"agent.api.response"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, a, p := beginReboot(t, tt.methods, func(c *Config) { c.OrchestratorHost = tt.own })
			tt.server(p)
			end, _ := terminal(p)
			p.ack(end.MessageID)
			if got := lines(p, 0); len(got) == 0 || got[0] != tt.log {
				t.Errorf("the step was told %q", got)
			}
			if len(all[wire.APIRequest](p)) > 0 != !tt.own {
				t.Errorf("the server was asked %+v", all[wire.APIRequest](p))
			}
			p.send(dispatch("job-2", nil)) // an agent that is about to reboot would refuse it
			expect[wire.JobAck](p)
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.reboot != nil || len(a.reboots) > 0 {
				t.Error("the machine is rebooted all the same")
			}
		})
	}
}
