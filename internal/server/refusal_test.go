package server_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server"
	"kici/internal/server/forge"
	"kici/internal/server/report"
	"kici/internal/server/servertest"
)

func sign(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func TestDeliveriesAreRefusedWithTheReason(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.AddSource("signed", forge.Verification{Method: forge.MethodHMAC, Secret: "s3cret"})
		h.Start(t)
		body := servertest.PushBody(app, "main", strings.Repeat("a", 40))
		tests := []struct {
			name, source, body string
			headers            []string
			status             int
			reason             string
		}{
			{"right signature", "signed", body, []string{"X-Signature-256", sign("s3cret", body)}, http.StatusAccepted, ""},
			{"signature by another secret", "signed", body, []string{"X-Signature-256", sign("guess", body)}, http.StatusUnauthorized, "Invalid signature"},
			{"signature of another body", "signed", body + " ", []string{"X-Signature-256", sign("s3cret", body)}, http.StatusUnauthorized, "Invalid signature"},
			{"no signature", "signed", body, nil, http.StatusUnauthorized, "Invalid signature"},
			{"oversized body", servertest.Source, body + strings.Repeat(" ", 1<<20), nil, http.StatusRequestEntityTooLarge, "Payload too large"},
			{"unknown source", "nobody", body, nil, http.StatusNotFound, "Unknown source"},
			{"body that is no JSON", servertest.Source, "{", nil, http.StatusBadRequest, "Local source requires JSON body"},
		}
		for _, tt := range tests {
			a, err := h.Deliver(t.Context(), tt.source, tt.body, tt.name, tt.headers...)
			if err != nil || a.Status != tt.status || a.Reason != tt.reason {
				t.Errorf("%s: %+v, %v; want %d %q", tt.name, a, err, tt.status, tt.reason)
			}
		}
		if n := h.Count(t, "SELECT count(*) FROM inbox"); n != 1 {
			t.Errorf("%d deliveries were taken, want the signed one alone", n)
		}
	})
}

func TestMalformedLockFileMakesAFailedRunThatShowsWhere(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		h.Push(t, app, "main", h.Commit(t, app, []byte("{\n  \"schemaVersion\": 29,\n  \"workflows\": [,]\n}\n")))
		h.AwaitRuns(t, 1)
		runs, err := report.Runs(t.Context(), h.DB.Read(), report.RunFilter{Limit: 2})
		if err != nil || len(runs) != 1 {
			t.Fatalf("runs %+v, %v", runs, err)
		}
		run, _, err := report.RunOf(t.Context(), h.DB.Read(), runs[0].RunID)
		if err != nil {
			t.Fatal(err)
		}
		if run.WorkflowName != "(unresolved workflow)" || run.Status != ci.RunFailed {
			t.Errorf("run %s is %s", run.WorkflowName, run.Status)
		}
		f := run.InitFailure
		if f == nil || f.Category != ci.InitLockResolution || f.Scope != ci.ScopeRun || !strings.Contains(f.Message, "line 3") {
			t.Errorf("init failure %+v", f)
		}
		if f != nil && (run.FailureReason == nil || *run.FailureReason != f.Message) {
			t.Errorf("failure reason %v, want %q", run.FailureReason, f.Message)
		}
	})
}

func TestJobThatFitsNoAgentWaitsAndSaysWhy(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		h.Employ(t, &servertest.Agent{ID: "agent-1"})
		servertest.Await(t, "the agent's registration", func() bool {
			return h.Count(t, "SELECT count(*) FROM agents WHERE disconnected_at IS NULL") == 1
		}, nil)
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("train:gpu", "build")))
		const buildEnded = "SELECT count(*) FROM execution_jobs WHERE job_name = 'build' AND status = 'success'"
		servertest.Await(t, "the end of the job that fits", func() bool { return h.Count(t, buildEnded) == 1 }, nil)
		waiting, err := report.Queue(t.Context(), h.DB.Read(), report.QueueFilter{Statuses: []string{"pending"}, Limit: 10})
		if err != nil || len(waiting) != 1 {
			t.Fatalf("queue %+v, %v", waiting, err)
		}
		w := waiting[0]
		if w.JobName != "train" || w.Reason.Code != ci.ReasonNoAgent || !strings.Contains(w.Reason.Message, "agent-1") || !strings.Contains(w.Reason.Message, "gpu") {
			t.Errorf("%s waits: %+v", w.JobName, w.Reason)
		}
		explained, err := report.Explain(t.Context(), h.DB.Read(), w.RunID, "", time.Now().UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range explained.Jobs {
			if j.JobName == "train" && j.Reason.Message != w.Reason.Message {
				t.Errorf("the run explains it as %q, the queue as %q", j.Reason.Message, w.Reason.Message)
			}
		}
	})
}

func register(id string) wire.AgentRegister {
	return wire.AgentRegister{MessageID: "register", AgentID: id, Labels: []string{"linux"}}
}

// TestForbiddenFramesCloseTheConnection sends frames that the protocol forbids. An auth.failure and 4010 are final for an
// agent; everything else it survives by connecting again.
func TestForbiddenFramesCloseTheConnection(t *testing.T) {
	stranger := wire.StepStatus{MessageID: "m", RunID: "r", JobID: "j", StepName: "s", State: ci.StepRunning}
	tests := []struct {
		name   string
		act    func(h *servertest.Home, p *servertest.Peer)
		code   int
		reason string
		before string // kind of the frame before the close, "" for none
	}{
		{"nothing at all", func(*servertest.Home, *servertest.Peer) {}, wire.CloseTimeout, "Auth timeout", ""},
		{"registration without a token", func(_ *servertest.Home, p *servertest.Peer) { p.Send(register("a")) },
			wire.CloseUnauthorized, "Authentication failed", "auth.failure"},
		{"unknown token", func(_ *servertest.Home, p *servertest.Peer) {
			p.Send(wire.AuthRequest{Token: "kat_" + strings.Repeat("0", 64), ProtocolVersion: 1})
		}, wire.CloseUnauthorized, "Authentication failed", "auth.failure"},
		{"no JSON before authentication", func(_ *servertest.Home, p *servertest.Peer) { p.SendRaw([]byte("hello")) },
			wire.CloseUnauthorized, "Authentication failed", "auth.failure"},
		{"no registration", func(h *servertest.Home, p *servertest.Peer) {
			p.Send(wire.AuthRequest{Token: h.Token, ProtocolVersion: 1})
			p.Next()
		}, wire.CloseTimeout, "Registration timeout", ""},
		{"another frame than the registration", func(h *servertest.Home, p *servertest.Peer) {
			p.Send(wire.AuthRequest{Token: h.Token, ProtocolVersion: 1})
			p.Next()
			p.Send(wire.Heartbeat{Timestamp: 1})
		}, wire.CloseInvalid, "First message must be agent.register", ""},
		{"no JSON", func(h *servertest.Home, p *servertest.Peer) {
			p.Hello(h, register("a"))
			p.SendRaw([]byte("[1]"))
		}, wire.CloseInvalid, "Malformed JSON", ""},
		{"invalid field", func(h *servertest.Home, p *servertest.Peer) {
			p.Hello(h, register("a"))
			p.SendRaw([]byte(`{"type":"job.ack","messageId":"m","runId":"r","jobId":7,"timestamp":1}`))
		}, wire.CloseInvalid, "Invalid message", "error"},
		{"token in the middle", func(h *servertest.Home, p *servertest.Peer) {
			p.Hello(h, register("a"))
			p.Send(wire.AuthRequest{Token: h.Token, ProtocolVersion: 1})
		}, wire.CloseInvalid, "Invalid message", "error"},
		{"another agent's name on the same connection", func(h *servertest.Home, p *servertest.Peer) {
			p.Hello(h, register("a"))
			p.Send(register("b"))
		}, wire.CloseInvalid, "Invalid message", "error"},
		{"message above the limit", func(h *servertest.Home, p *servertest.Peer) {
			p.Hello(h, register("a"))
			p.SendRaw(fmt.Appendf(nil, `{"type":"heartbeat","timestamp":1,"x":"%s"}`, bytes.Repeat([]byte("x"), 4<<20)))
		}, wire.CloseInvalid, "Message too large", ""},
		{"frames about jobs of others", func(h *servertest.Home, p *servertest.Peer) {
			p.Hello(h, register("a"))
			for range 5 {
				p.Send(stranger)
			}
		}, wire.CloseGoingAway, "Too many ownership violations", ""},
		{"root without being root", func(h *servertest.Home, p *servertest.Peer) {
			p.Send(wire.AuthRequest{Token: h.Token, ProtocolVersion: 1})
			p.Next()
			r := register("a")
			r.Labels = append(r.Labels, "kici:privileged:root")
			p.Send(r)
		}, wire.CloseUnauthorized, "privileged-root token presented by non-root agent (uid=absent)", ""},
	}
	h := servertest.New(t, func(s *server.Settings) {
		s.Hub.AuthTimeout, s.Hub.RegisterTimeout = 500*time.Millisecond, 500*time.Millisecond
	})
	h.Start(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := h.Dial(t)
			tt.act(h, p)
			code, reason := p.Ending()
			if code != tt.code || reason != tt.reason {
				t.Errorf("closed with %d %q, want %d %q", code, reason, tt.code, tt.reason)
			}
			var before []string
			for _, m := range p.Rest() {
				before = append(before, m.MessageType())
			}
			var want []string
			if tt.before != "" {
				want = []string{tt.before}
			}
			if !slices.Equal(before, want) {
				t.Errorf("frames before the close: %v, want %v", before, want)
			}
		})
	}
}

func TestUnknownFramesAreIgnored(t *testing.T) {
	h := servertest.New(t, nil)
	h.Start(t)
	p := h.Dial(t)
	p.Hello(h, register("a"))
	p.SendRaw([]byte(`{"type":"artifact.offer","messageId":"m"}`))
	p.SendRaw([]byte(`{"type":"run.event","runId":7}`)) // decoration is not worth a connection
	p.Settle()
	if rest := p.Rest(); len(rest) > 0 {
		t.Errorf("answers %+v", rest)
	}
}

// TestDrainingAgentKeepsNoJobFromTheNext is the burst of refusals in which a server that offers a job to the same
// draining agent again and again fails it within a moment.
func TestDrainingAgentKeepsNoJobFromTheNext(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		leaving := h.Dial(t)
		leaving.Hello(h, register("agent-1"))
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
		d, ok := leaving.Next().(wire.JobDispatch)
		if !ok {
			t.Fatal("no dispatch")
		}
		leaving.Send(wire.JobReject{MessageID: "m", RunID: d.RunID, JobID: d.JobID, Reason: wire.RejectDraining, Timestamp: 1})
		leaving.Send(wire.AgentStatus{MessageID: "n", AgentID: "agent-1"})
		leaving.Settle()
		h.Employ(t, &servertest.Agent{ID: "agent-2"})
		h.AwaitRuns(t, 1)
		compareJob(t, h, "success", "", 2)
		leaving.Settle()
		if rest := leaving.Rest(); len(rest) > 0 {
			t.Errorf("the draining agent was sent %+v", rest)
		}
	})
}
