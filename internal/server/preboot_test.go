package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/server/fleet"
	"kici/internal/server/hub"
	"kici/internal/server/servertest"
)

// preBoot asks for what a host is to be sent before it boots.
func preBoot(t *testing.T, p *servertest.Peer, params string) (answer hub.PreBoot, refusal string) {
	t.Helper()
	p.Send(wire.APIRequest{RequestID: "q", Method: "kici.preBootSend", Params: json.RawMessage(params)})
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

func TestAHostIsSentASecretBeforeItBoots(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		declareHost(t, h, fleet.Host{AgentID: "vault", Reach: fleet.Reach{Address: "v.example", User: "root", Port: 22, KeySecret: "hosts/vault/KEY", HostKey: hostKey}})
		setSecret(t, h, "hosts/vault", "KEY", "-----BEGIN KEY-----")
		setSecret(t, h, "hosts/vault", "DISK", "open sesame")
		p := enter(t, h, agentToken(t, h, plan.CapabilitySSH), wire.AgentRegister{MessageID: "r", AgentID: "ssh-1", Labels: []string{plan.CapabilitySSH}})
		want := hub.PreBoot{Reach: hub.Reach{AgentID: "vault", Address: "v.example", SSHUser: "root", SSHPort: 22, HostKey: hostKey},
			PrivateKey: "-----BEGIN KEY-----", Input: "open sesame", Port: 2222, Command: "cryptroot-unlock"}
		got, refusal := preBoot(t, p, `{"targetAgentId":"vault","inputSecret":"hosts/vault/DISK"}`)
		if d := cmp.Diff(want, got); d != "" || refusal != "" {
			t.Errorf("%s %s", refusal, d)
		}
		want.Port, want.Command = 22, "unlock data"
		got, refusal = preBoot(t, p, `{"targetAgentId":"vault","inputSecret":"hosts/vault/DISK","port":22,"command":"unlock data"}`)
		if d := cmp.Diff(want, got); d != "" || refusal != "" {
			t.Errorf("%s %s", refusal, d)
		}
		if n := h.Count(t, `SELECT count(*) FROM access_log WHERE action = 'host.pre_boot_send' AND actor_id = 'ssh-1' AND target_id = 'vault'
			AND outcome = 'allowed' AND meta LIKE '%hosts/vault/DISK%'`); n != 2 {
			t.Errorf("%d calls are in the access log, want 2", n)
		}
		if n := h.Count(t, "SELECT count(*) FROM access_log WHERE meta LIKE '%sesame%' OR meta LIKE '%BEGIN KEY%'"); n != 0 {
			t.Error("the access log shows a secret")
		}
	})
}

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

func TestASecretForAHostIsRefusedWithTheReason(t *testing.T) {
	h := servertest.New(t, nil)
	h.Start(t)
	declareHost(t, h, fleet.Host{AgentID: "vault", Reach: fleet.Reach{Address: "v.example", KeySecret: "hosts/vault/KEY"}})
	declareHost(t, h, fleet.Host{AgentID: "bare"})
	setSecret(t, h, "hosts/vault", "KEY", "k")
	granted := enter(t, h, agentToken(t, h, plan.CapabilitySSH), wire.AgentRegister{MessageID: "r", AgentID: "ssh-1", Labels: []string{plan.CapabilitySSH}})
	claims := enter(t, h, h.Token, wire.AgentRegister{MessageID: "r", AgentID: "other", Labels: []string{plan.CapabilitySSH}})
	const at = `{"targetAgentId":"vault",`
	noted := 0
	for _, tt := range []struct {
		p            *servertest.Peer
		params, want string
		noted        bool // it names a host, so that the access log tells of it
	}{
		{claims, at + `"inputSecret":"hosts/vault/KEY"}`, "the token of agent other does not name the label kici:capability:ssh-transport", true},
		{granted, `{"targetAgentId":"none","inputSecret":"hosts/vault/KEY"}`, "no host is declared under the id none", true},
		{granted, `{"targetAgentId":"bare","inputSecret":"hosts/vault/KEY"}`, "host bare was declared without an address", true},
		{granted, at + `"inputSecret":"hosts/vault/NONE"}`, "secret hosts/vault/NONE does not exist", true},
		{granted, at + `"inputSecret":"__source__/s/WEBHOOK"}`, "secret __source__/s/WEBHOOK is the server's own", true},
		{granted, at + `"inputSecret":"KEY"}`, "inputSecret must name a secret as scope/key", true},
		{granted, at + `"inputSecret":"hosts/"}`, "inputSecret must name a secret as scope/key", true},
		{granted, `{"inputSecret":"hosts/vault/KEY"}`, "kici.preBootSend: targetAgentId must be the id of an agent", false},
		{granted, at + `"inputSecret":"hosts/vault/KEY","port":0}`, "kici.preBootSend: port must be from 1 to 65535", false},
		{granted, at + `"inputSecret":"hosts/vault/KEY","port":"ssh"}`, "kici.preBootSend: targetAgentId, inputSecret and command must be texts, and port a whole number", false},
		{granted, at + `"inputSecret":"hosts/vault/KEY","command":""}`, "kici.preBootSend: command must have 1 to 4096 characters", false},
		{granted, at + fmt.Sprintf(`"inputSecret":"hosts/vault/KEY","command":%q}`, strings.Repeat("x", 4097)), "kici.preBootSend: command must have 1 to 4096 characters", false},
	} {
		if got, refusal := preBoot(t, tt.p, tt.params); refusal != tt.want || got.PrivateKey != "" || got.Input != "" {
			t.Errorf("%.80s: %q, want %q; %+v", tt.params, refusal, tt.want, got)
		}
		if tt.noted {
			noted++
		}
	}
	if n := h.Count(t, "SELECT count(*) FROM access_log WHERE action = 'host.pre_boot_send' AND outcome = 'denied'"); n != noted {
		t.Errorf("%d refusals are in the access log, want %d", n, noted)
	}
}
