package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"kici/internal/agent/bundles"
	"kici/internal/agent/host"
	"kici/internal/agent/ledger"
	"kici/internal/agent/metrics"
	"kici/internal/agent/runner"
	"kici/internal/agent/workspace"
)

// Workshop is what the jobs of one agent have of it.
type Workshop struct {
	ServerURL        string   // of the agent's connection
	Token            string   // of the agent, which no job may show
	Settings         []string // the agent's own variables, NAME=value
	Environ          []string // of the agent's process
	TempDir          string   // for workspaces; "" = the system's
	Place            host.Place
	StepTimeout      time.Duration // of steps that set none
	ConcurrencyWait  time.Duration // for a slot of a concurrency group
	GuardMargin      time.Duration // the runner ends a job at its timeout by itself; this much later the agent does
	MaxLogBytes      int64         // per step, where the dispatch names no limit
	DropLines        bool          // of logs, while the connection is full, instead of waiting
	OrchestratorHost bool          // this machine runs the server: never reboot it

	Log       *slog.Logger
	Client    *http.Client // of downloads
	Cache     *workspace.Cache
	Bundles   *bundles.Memory
	Facts     host.Facts
	Ledger    *ledger.Ledger
	Questions *ledger.Questions
	Metrics   *metrics.Metrics

	Has         func(feature string) bool                 // the server has the feature
	SpareRunner func() (proc *runner.Process, ready bool) // nil when there is none
	Finished    func(j *Job, report func())               // frees the agent and reports the end, in one step
	Reboot      func(params json.RawMessage)              // the machine, after the job, as the params of the call say
	KeepMachine func()                                    // takes that back
	Go          func(func())                              // runs what the agent waits for when it ends
}

// The calls of the agent API that concern the machine of the agent.
const (
	MethodRequestReboot = "host.requestReboot"
	MethodCancelReboot  = "host.cancelReboot"
)

// allowed refuses API methods that this agent does not carry out itself, and a reboot of the server's own machine.
func (w Workshop) allowed(method string) error {
	switch method {
	case "kici.ensureInitRunner", "kici.preBootSend":
		return fmt.Errorf("this agent cannot reach other hosts by SSH, which %s needs", method)
	case MethodRequestReboot:
		if w.OrchestratorHost {
			return errors.New("refusing to reboot the orchestrator host")
		}
	}
	return nil
}

// reach turns a URL on "localhost", which a server writes that knows no better name of itself, into one that leads to
// the server from here.
func (w Workshop) reach(raw string) string {
	u, err := url.Parse(raw)
	server, serverErr := url.Parse(w.ServerURL)
	if err != nil || serverErr != nil || u.Host == "" {
		return raw
	}
	if name := u.Hostname(); name != "localhost" && name != "127.0.0.1" && name != "::1" {
		return raw
	}
	name := server.Hostname()
	switch port := u.Port(); {
	case name == "":
		return raw
	case port != "":
		u.Host = net.JoinHostPort(name, port)
	case strings.Contains(name, ":"):
		u.Host = "[" + name + "]"
	default:
		u.Host = name
	}
	return u.String()
}
