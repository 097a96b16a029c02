//go:build unix

package agent

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConfigFromEnvReadsEveryVariable(t *testing.T) {
	environ := strings.Split(`KICI_ORCHESTRATOR_URL=ws://h:4000/ws
KICI_AGENT_ID=a-1
KICI_AGENT_TOKEN=kat_x
KICI_LABELS= linux, ,gpu,
KICI_PROPERTIES=rack=3,zone=eu,spare=true,version=1.2.3,empty=
KICI_ROLES=builder
KICI_PORT=0
KICI_LOG_LEVEL=debug
KICI_MAX_LOG_SIZE_BYTES=1000
KICI_DEFAULT_STEP_TIMEOUT_MS=2000
KICI_JOB_HEARTBEAT_INTERVAL_MS=3000
KICI_BACKPRESSURE_MODE=drop
KICI_SANDBOX=true
KICI_SANDBOX_NETWORK=host
KICI_EXECUTION_MODE=bare-metal
KICI_SCALER_MANAGED=1
KICI_SCALER_IDLE_TIMEOUT=-1
KICI_SCALER_PENDING_DISPATCH_TIMEOUT=7000
KICI_CONCURRENCY_WAIT_TIMEOUT_MS=1000
KICI_AGENT_IS_ORCHESTRATOR_HOST=true
KICI_DATABASE_URL=postgres://x
KICI_AGENT_ENV_HTTP_PROXY=p
MY_ENV_PROBE=1
PATH=/bin`, "\n")
	got, err := ConfigFromEnv(environ)
	if err != nil {
		t.Fatal(err)
	}
	got.Environ = nil
	want := Config{
		OrchestratorURL: "ws://h:4000/ws", AgentID: "a-1", Token: "kat_x", Labels: []string{"linux", "gpu"},
		Properties: map[string]any{"rack": 3.0, "zone": "eu", "spare": true, "version": "1.2.3", "empty": ""},
		Roles:      &[]string{"builder"}, Port: 0, LogLevel: slog.LevelDebug, MaxLogBytes: 1000, StepTimeout: 2 * time.Second,
		JobHeartbeat: 3 * time.Second, Backpressure: "drop", Sandbox: true, SandboxNetwork: "host", ExecutionMode: "bare-metal",
		ScalerManaged: true, IdleTimeout: -time.Millisecond, PendingDispatchTimeout: 7 * time.Second, ConcurrencyWait: time.Second,
		OrchestratorHost: true, Version: "dev",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestConfigFromEnvDefaults(t *testing.T) {
	got, err := ConfigFromEnv([]string{"KICI_ORCHESTRATOR_URL=wss://h/ws"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Port != 8080 || got.IdleTimeout != 5*time.Second || got.PendingDispatchTimeout != time.Minute || got.Roles != nil ||
		got.MaxLogBytes != 10<<20 || got.StepTimeout != 30*time.Minute || got.ConcurrencyWait != time.Hour || got.ScalerManaged {
		t.Errorf("%+v", got)
	}
	if len(got.AgentID) < 10 {
		t.Errorf("agent id %q", got.AgentID)
	}
	none, err := ConfigFromEnv([]string{"KICI_ORCHESTRATOR_URL=wss://h/ws", "KICI_ROLES="})
	if err != nil || none.Roles == nil || len(*none.Roles) != 0 {
		t.Errorf("empty roles: %+v %v", none.Roles, err)
	}
}

func TestConfigFromEnvNamesEveryProblem(t *testing.T) {
	_, err := ConfigFromEnv(strings.Fields(`KICI_PORT=99999 KICI_LABELS=kici:os:linux KICI_PROPERTIES=x,=y KICI_ROLES=boss
		KICI_SANDBOX=yes KICI_BACKPRESSURE_MODE=wait KICI_LOG_LEVEL=loud KICI_FOO=1 KICI_BAR=2
		KICI_CONCURRENCY_WAIT_TIMEOUT_MS=5 KICI_MAX_LOG_SIZE_BYTES=ten`))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"KICI_ORCHESTRATOR_URL", "KICI_PORT", "kici:os:linux", `"x"`, `"=y"`, "boss", "KICI_SANDBOX",
		"KICI_BACKPRESSURE_MODE", "KICI_LOG_LEVEL", "KICI_FOO", "KICI_BAR", "KICI_CONCURRENCY_WAIT_TIMEOUT_MS", "KICI_MAX_LOG_SIZE_BYTES"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not mentioned in:\n%v", want, err)
		}
	}
	if n := len(err.(interface{ Unwrap() []error }).Unwrap()); n != 13 {
		t.Errorf("%d problems, want 13", n)
	}
	if _, err := ConfigFromEnv([]string{"KICI_ORCHESTRATOR_URL=ws://h/ws", "KICI_FOO=1", "KICI_DEV=true"}); err != nil {
		t.Errorf("with KICI_DEV: %v", err)
	}
	if _, err := ConfigFromEnv([]string{"KICI_ORCHESTRATOR_URL=ws://h/ws", "KICI_LABELS=kici:init,kici:host:x"}); err != nil {
		t.Errorf("labels of a bring-up: %v", err)
	}
}

func TestJobsOfAScalersAgentNeedNoSandboxOfTheirOwn(t *testing.T) {
	for _, tt := range []struct {
		name      string
		c         Config
		kind      string
		sandboxed bool
	}{
		{"as the operator says", Config{Sandbox: true}, "bare-metal", true},
		{"without a sandbox", Config{}, "bare-metal", false},
		{"in a container", Config{Sandbox: true, ExecutionMode: "container"}, "container", false},
		{"in a microVM", Config{Sandbox: true, ScalerManaged: true}, "firecracker", false},
		{"of a scaler on its own machine", Config{Sandbox: true, ScalerManaged: true, ExecutionMode: "bare-metal"}, "bare-metal", false},
	} {
		if p := tt.c.place(); p.Kind != tt.kind || p.Sandboxed != tt.sandboxed {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
}
