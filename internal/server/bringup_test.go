package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/server"
	"kici/internal/server/auth"
	"kici/internal/server/fleet"
	"kici/internal/server/hub"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
)

// agentToken makes a token that names these labels.
func agentToken(t *testing.T, h *servertest.Home, labels ...string) string {
	t.Helper()
	token, _, err := auth.New(h.DB, time.Now, slog.New(slog.DiscardHandler)).CreateStatic(t.Context(), auth.NewAgentToken{Labels: labels, CreatedBy: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// enter connects an agent with a token of its own.
func enter(t *testing.T, h *servertest.Home, token string, m wire.AgentRegister) *servertest.Peer {
	t.Helper()
	p := h.Dial(t)
	p.Send(wire.AuthRequest{Token: token, ProtocolVersion: wire.Version})
	p.Next()
	p.Send(m)
	if _, ok := p.Next().(wire.RegisterAck); !ok {
		t.Fatalf("agent %s is not admitted", m.AgentID)
	}
	return p
}

func declareHost(t *testing.T, h *servertest.Home, host fleet.Host) {
	t.Helper()
	err := h.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := fleet.Declare(ctx, tx, host, 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// asks sends a call of the agent API for a host, and gives the answer.
func asks(t *testing.T, p *servertest.Peer, target string) (answer hub.BringUp, refusal string) {
	t.Helper()
	p.Send(wire.APIRequest{RequestID: "q", Method: "kici.ensureInitRunner", Params: fmt.Appendf(nil, `{"targetAgentId":%q}`, target)})
	m, ok := p.Next().(wire.APIResponse)
	if !ok {
		t.Fatal("no answer")
	}
	if m.Error == "" {
		if err := json.Unmarshal(m.Result, &answer); err != nil {
			t.Fatal(err)
		}
	}
	return answer, m.Error
}

// TestAHostIsBroughtUpByAnAgentWithSSH goes the whole way: a job for a declared host, an agent with SSH that is given the
// bring-up and asks for the way to the host, the agent that it starts there, and the job on it.
func TestAHostIsBroughtUpByAnAgentWithSSH(t *testing.T) {
	base := func(s *server.Settings) { s.Storage.BaseURL = "https://kici.example/base" }
	servertest.Each(t, base, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		declareHost(t, h, fleet.Host{AgentID: "web-3", Labels: []string{"web"}, Reach: fleet.Reach{Address: "w3.example", User: "ops", Port: 2222, KeySecret: "hosts/web/KEY"}})
		setSecret(t, h, "hosts/web", "KEY", "-----BEGIN KEY-----")
		runner := enter(t, h, agentToken(t, h, plan.CapabilitySSH), wire.AgentRegister{MessageID: "r", AgentID: "ssh-1", Labels: []string{plan.CapabilitySSH}})
		h.Push(t, app, "main", h.Commit(t, app, lockOf(lockJob("deploy", `,"runsOnAll":{"include":[[{"kind":"exact","value":"web"}]],"exclude":[]},"includeUninitialized":true`))))
		up, ok := runner.Next().(wire.JobDispatch)
		if !ok || up.RepoURL != "" || len(up.Secrets) > 0 || !strings.Contains(string(up.JobConfig), `"bringupOnly":true,"bringupTarget":"web-3"`) {
			t.Fatalf("got %+v", up)
		}
		got, refusal := asks(t, runner, "web-3")
		want := hub.BringUp{BroughtUp: true, Reach: &hub.Reach{AgentID: "web-3", Address: "w3.example", SSHUser: "ops", SSHPort: 2222}, PrivateKey: "-----BEGIN KEY-----",
			TargetAgentID: "web-3", OrchestratorURL: "wss://kici.example/base/ws", Labels: []string{"kici:init", "kici:privileged:root", "kici:host:web-3"}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(hub.BringUp{}, "BootstrapToken")); diff != "" || refusal != "" {
			t.Fatalf("%s: %s", refusal, diff)
		}
		root := int64(0)
		started := enter(t, h, got.BootstrapToken, wire.AgentRegister{MessageID: "r", AgentID: "web-3", Labels: got.Labels, RunningAsUID: &root})
		if got, refusal := asks(t, runner, "web-3"); got.BroughtUp || refusal != "" || got.PrivateKey != "" {
			t.Errorf("a host whose agent is connected: %+v %s", got, refusal)
		}
		runner.Send(wire.JobStatus{MessageID: "e", RunID: up.RunID, JobID: up.JobID, State: ci.JobSuccess, Timestamp: 1})
		child, ok := started.Next().(wire.JobDispatch)
		if !ok || !strings.Contains(string(child.JobConfig), `"name":"deploy (web-3)"`) {
			t.Fatalf("the started agent got %+v", child)
		}
		started.Send(wire.JobStatus{MessageID: "e", RunID: child.RunID, JobID: child.JobID, State: ci.JobSuccess, Timestamp: 1})
		h.AwaitRuns(t, 1)
		requireAllGreen(t, h, 1)

		again := h.Dial(t)
		again.Send(wire.AuthRequest{Token: got.BootstrapToken, ProtocolVersion: wire.Version})
		if m, ok := again.Next().(wire.AuthFailure); !ok {
			t.Errorf("the token admits twice: %+v", m)
		}
		if n := h.Count(t, "SELECT count(*) FROM access_log WHERE action = 'host.bring_up' AND actor_id = 'ssh-1' AND target_id = 'web-3' AND outcome = 'allowed'"); n != 2 {
			t.Errorf("%d calls are in the access log, want 2", n)
		}
	})
}

func TestTheWayToAHostIsRefusedWithTheReason(t *testing.T) {
	h := servertest.New(t, func(s *server.Settings) { s.Storage.BaseURL = "https://kici.example" })
	h.Start(t)
	for id, r := range map[string]fleet.Reach{"bare": {}, "keyless": {Address: "a"}, "lost": {Address: "a", KeySecret: "hosts/KEY"}} {
		declareHost(t, h, fleet.Host{AgentID: id, Reach: r})
	}
	granted := enter(t, h, agentToken(t, h, plan.CapabilitySSH), wire.AgentRegister{MessageID: "r", AgentID: "ssh-1", Labels: []string{plan.CapabilitySSH}})
	for target, want := range map[string]string{
		"unknown": "no host is declared under the id unknown",
		"bare":    "host bare was declared without an address",
		"keyless": "host keyless was declared without the secret of its SSH key",
		"lost":    "secret hosts/KEY, which holds the SSH key of host lost, does not exist",
		"":        "kici.ensureInitRunner: targetAgentId must be the id of an agent",
	} {
		if got, refusal := asks(t, granted, target); refusal != want || got.PrivateKey != "" {
			t.Errorf("host %s: %q, want %q", target, refusal, want)
		}
	}
	// Its token admits any label, so it may have given itself this one.
	claims := enter(t, h, h.Token, wire.AgentRegister{MessageID: "r", AgentID: "other", Labels: []string{plan.CapabilitySSH}})
	if _, refusal := asks(t, claims, "lost"); refusal != "the token of agent other does not name the label kici:capability:ssh-transport" {
		t.Errorf("an agent that was not granted the label: %q", refusal)
	}
	if n := h.Count(t, "SELECT count(*) FROM access_log WHERE action = 'host.bring_up' AND outcome = 'denied'"); n != 5 {
		t.Errorf("%d refusals are in the access log, want 5", n)
	}
	if n := h.Count(t, "SELECT count(*) FROM agent_tokens WHERE agent_type = 'ephemeral'"); n != 0 {
		t.Errorf("%d tokens were made for nothing", n)
	}
}

func TestAServerOfThisMachineAloneBringsNothingUp(t *testing.T) {
	h := servertest.New(t, nil)
	h.Start(t)
	declareHost(t, h, fleet.Host{AgentID: "w", Reach: fleet.Reach{Address: "a", KeySecret: "hosts/KEY"}})
	setSecret(t, h, "hosts", "KEY", "k")
	p := enter(t, h, agentToken(t, h, plan.CapabilitySSH), wire.AgentRegister{MessageID: "r", AgentID: "ssh-1", Labels: []string{plan.CapabilitySSH}})
	if got, refusal := asks(t, p, "w"); !strings.Contains(refusal, "KICI_STORAGE_FS_BASE_URL") || got.PrivateKey != "" {
		t.Errorf("%+v %q", got, refusal)
	}
}
