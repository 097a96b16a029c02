// Package agent is the other side of the wire: it connects to a server, takes one job at a time, prepares its source,
// runs its steps in a process of their own and reports what happened. Everything that reports a result is kept until
// the server has it.
package agent

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config is everything an agent can be told. ConfigFromEnv fills it from variables and checks it.
type Config struct {
	OrchestratorURL string         // WebSocket URL, used as it is
	AgentID         string         // identity over reconnects
	Token           string         // "" where the server asks for none
	Labels          []string       // the operator's; those of the machine are added
	Properties      map[string]any // typed facts for the host roster: string, float64 or bool
	Roles           *[]string      // nil = all roles

	Port         int // of the HTTP endpoints; 0 = any free port
	LogLevel     slog.Level
	MaxLogBytes  int64         // per step, where the dispatch names no limit
	StepTimeout  time.Duration // of steps that set none
	JobHeartbeat time.Duration
	Backpressure string // "pause" or "drop": what happens to log lines while the connection is full

	Sandbox        bool   // wrap bare-metal jobs in bubblewrap
	SandboxNetwork string // "isolated" or "host"
	ExecutionMode  string // "", container, bare-metal, firecracker

	ScalerManaged          bool          // one job, then leave
	IdleTimeout            time.Duration // before a scaler-managed agent leaves
	PendingDispatchTimeout time.Duration // the same while the server has announced a job
	ConcurrencyWait        time.Duration // for a slot of a concurrency group
	OrchestratorHost       bool          // this machine runs the server: never reboot it

	RunnerCommand []string // of the step runner; nil = this executable with __runner
	TempDir       string   // for workspaces; "" = the system's
	CacheDir      string   // for repository mirrors; "" = a folder in the user's cache
	Version       string   // of this agent
	Environ       []string // this process' environment; nil = os.Environ()
}

// Backpressure modes.
const (
	BackpressurePause = "pause"
	BackpressureDrop  = "drop"
)

// The numbers of a Config that is not filled from variables.
const (
	defaultMaxLogBytes = 10 << 20
	defaultStepTimeout = 30 * time.Minute
)

// withDefaults fills what was left empty, so that tests and the all-in-one server need name only what matters to them.
func (c Config) withDefaults() Config {
	if c.Environ == nil {
		c.Environ = os.Environ()
	}
	setDefault(&c.MaxLogBytes, defaultMaxLogBytes)
	setDefault(&c.StepTimeout, defaultStepTimeout)
	setDefault(&c.JobHeartbeat, time.Minute)
	setDefault(&c.Backpressure, BackpressurePause)
	setDefault(&c.SandboxNetwork, "isolated")
	setDefault(&c.ConcurrencyWait, time.Hour)
	setDefault(&c.Version, "dev")
	if c.AgentID == "" {
		c.AgentID = defaultAgentID()
	}
	return c
}

func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func defaultAgentID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "agent"
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return host + "-" + hex.EncodeToString(b[:])
}

// ConfigFromEnv reads the variables of an agent from a list of NAME=value. Every problem is in the error, one
// errors.Join member each, so that an operator mends them all at once. A variable KICI_* that nobody reads is a problem
// too, since it is mostly a misspelt one; with KICI_DEV=true it is passed over.
func ConfigFromEnv(environ []string) (Config, error) {
	r := &envReader{values: map[string]string{}}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			r.values[name] = value
		}
	}
	c := Config{
		OrchestratorURL:        r.url("KICI_ORCHESTRATOR_URL"),
		AgentID:                r.values["KICI_AGENT_ID"],
		Token:                  r.values["KICI_AGENT_TOKEN"],
		Labels:                 list(r.values["KICI_LABELS"]),
		Properties:             r.properties("KICI_PROPERTIES"),
		Roles:                  r.roles("KICI_ROLES"),
		Port:                   int(r.number("KICI_PORT", 8080, 0, 65535)),
		LogLevel:               r.level("KICI_LOG_LEVEL"),
		MaxLogBytes:            r.number("KICI_MAX_LOG_SIZE_BYTES", defaultMaxLogBytes, 1, 1<<53),
		StepTimeout:            r.millis("KICI_DEFAULT_STEP_TIMEOUT_MS", defaultStepTimeout, 1),
		JobHeartbeat:           r.millis("KICI_JOB_HEARTBEAT_INTERVAL_MS", time.Minute, 1),
		Backpressure:           r.oneOf("KICI_BACKPRESSURE_MODE", BackpressurePause, BackpressurePause, BackpressureDrop),
		Sandbox:                r.flag("KICI_SANDBOX"),
		SandboxNetwork:         r.oneOf("KICI_SANDBOX_NETWORK", "isolated", "isolated", "host"),
		ExecutionMode:          r.oneOf("KICI_EXECUTION_MODE", "", "container", "bare-metal", "firecracker"),
		ScalerManaged:          r.values["KICI_SCALER_MANAGED"] == "1",
		IdleTimeout:            r.millis("KICI_SCALER_IDLE_TIMEOUT", 5*time.Second, -1<<53),
		PendingDispatchTimeout: r.millis("KICI_SCALER_PENDING_DISPATCH_TIMEOUT", time.Minute, -1<<53),
		ConcurrencyWait:        r.millis("KICI_CONCURRENCY_WAIT_TIMEOUT_MS", time.Hour, 1000),
		OrchestratorHost:       r.flag("KICI_AGENT_IS_ORCHESTRATOR_HOST"),
		Environ:                environ,
	}
	r.flag("KICI_DOCKER_KEEP_FAILED") // belongs to the container sandbox; checked so that a bad value is not silent
	r.checkLabels(c)
	r.refuseUnknown()
	if len(r.problems) > 0 {
		return Config{}, errors.Join(r.problems...)
	}
	return c.withDefaults(), nil
}

// envReader collects problems instead of stopping at the first.
type envReader struct {
	values   map[string]string
	problems []error
}

func (r *envReader) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, args...))
}

func (r *envReader) url(name string) string {
	v := r.values[name]
	switch {
	case v == "":
		r.problem("%s is required: the WebSocket URL of the server, such as ws://host:4000/ws", name)
	case !strings.HasPrefix(v, "ws://") && !strings.HasPrefix(v, "wss://"):
		r.problem("%s must begin with ws:// or wss://, not %q", name, v)
	}
	return v
}

func (r *envReader) number(name string, fallback, least, most int64) int64 {
	v := r.values[name]
	if v == "" {
		return fallback
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most {
		r.problem("%s must be a whole number from %d to %d, not %q", name, least, most, v)
		return fallback
	}
	return n
}

func (r *envReader) millis(name string, fallback time.Duration, least int64) time.Duration {
	const most = 365 * 24 * 3600 * 1000
	return time.Duration(r.number(name, fallback.Milliseconds(), max(least, -most), most)) * time.Millisecond
}

func (r *envReader) flag(name string) bool {
	switch v := r.values[name]; v {
	case "true":
		return true
	case "", "false":
		return false
	default:
		r.problem("%s must be true or false, not %q", name, v)
		return false
	}
}

func (r *envReader) oneOf(name, fallback string, allowed ...string) string {
	v := r.values[name]
	if v == "" {
		return fallback
	}
	if !slices.Contains(allowed, v) {
		r.problem("%s must be one of %s, not %q", name, strings.Join(allowed, ", "), v)
	}
	return v
}

func (r *envReader) level(name string) slog.Level {
	var l slog.Level
	v := r.oneOf(name, "info", "debug", "info", "warn", "error")
	_ = l.UnmarshalText([]byte(v)) // a bad value is already a problem
	return l
}

// roles tells unset (all roles) from set to nothing (none).
func (r *envReader) roles(name string) *[]string {
	v, ok := r.values[name]
	if !ok {
		return nil
	}
	roles := list(v)
	for _, role := range roles {
		if !slices.Contains([]string{"builder", "init-runner", "all"}, role) {
			r.problem("%s knows the roles builder, init-runner and all, not %q", name, role)
		}
	}
	if slices.Contains(roles, "all") {
		return nil
	}
	return &roles
}

var numeric = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?\d+(\.\d+)?$`) })

func (r *envReader) properties(name string) map[string]any {
	var props map[string]any
	for _, item := range list(r.values[name]) {
		key, value, ok := strings.Cut(item, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			r.problem("%s: %q is not of the form name=value", name, item)
			continue
		}
		if props == nil {
			props = map[string]any{}
		}
		switch {
		case value == "true" || value == "false":
			props[key] = value == "true"
		case numeric().MatchString(value):
			props[key], _ = strconv.ParseFloat(value, 64) // the pattern admits numbers only
		default:
			props[key] = value
		}
	}
	return props
}

// list splits at commas and drops empty items.
func list(v string) []string {
	items := []string{}
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// checkLabels refuses labels in the name space of the machine's own. A scaler and a bring-up write the full set into
// the variable; the bring-up's token tells it apart by binding it to these labels.
func (r *envReader) checkLabels(c Config) {
	if c.ScalerManaged || slices.Contains(c.Labels, "kici:init") {
		return
	}
	for _, l := range c.Labels {
		if strings.HasPrefix(strings.ToLower(l), "kici:") {
			r.problem("KICI_LABELS: %q is reserved; labels that begin with kici: are added by the agent itself", l)
		}
	}
}

func (r *envReader) refuseUnknown() {
	if r.values["KICI_DEV"] == "true" {
		return
	}
	var unknown []string
	for name := range r.values {
		if strings.HasPrefix(name, "KICI_") && !knownName(name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		r.problem("%s is not a variable of the agent; correct or unset it", name)
	}
}

// knownName accepts the agent's variables and those of the programs that may share its shell.
func knownName(name string) bool {
	for _, prefix := range []string{"KICI_E2E_", "KICI_TEST_", "KICI_AGENT_ENV_", "KICI_CLUSTER_", "KICI_COLD_STORE_",
		"KICI_EVENT_ROUTER_", "KICI_PROVIDERS_", "KICI_STORAGE_", "KICI_PROVENANCE_", "KICI_BACKEND_", "KICI_DEPLOY_",
		"KICI_SERVER_", "KICI_SECRET_KEY", "KICI_QUEUE_", "KICI_SCALER_", "KICI_STALE_DETECTOR_", "KICI_LOG_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.HasSuffix(name, "_ENV_PROBE") || slices.Contains(agentNames, name) || slices.Contains(otherNames, name)
}

// agentNames are the variables of the agent.
var agentNames = strings.Fields(`
KICI_AGENT_ID KICI_AGENT_IS_ORCHESTRATOR_HOST KICI_AGENT_TOKEN KICI_BACKPRESSURE_MODE KICI_CACHE
KICI_CONCURRENCY_WAIT_TIMEOUT_MS KICI_DEFAULT_STEP_TIMEOUT_MS KICI_DEV KICI_DOCKER_KEEP_FAILED KICI_EXECUTION_MODE
KICI_GITHUB_TOKEN KICI_JOB_HEARTBEAT_INTERVAL_MS KICI_LABELS KICI_LOG_LEVEL KICI_MAX_LOG_SIZE_BYTES
KICI_ORCHESTRATOR_URL KICI_PORT KICI_PROPERTIES KICI_ROLES KICI_SANDBOX KICI_SANDBOX_NETWORK KICI_SCALER_IDLE_TIMEOUT
KICI_SCALER_MANAGED KICI_SCALER_PENDING_DISPATCH_TIMEOUT
`)

// otherNames are those of the server and its clients.
var otherNames = strings.Fields(`
KICI_ADMIN_TOKEN KICI_ADMIN_URL KICI_AGENT_AUTH KICI_AGENT_MAX_RECONNECT_DELAY_MS KICI_AGENT_TOKEN_TTL_MS
KICI_ARTIFACT_QUOTA_BYTES KICI_AUTO_MIGRATE KICI_BASE_PATH KICI_BOOTSTRAP_ADMIN_TOKEN KICI_CACHE_BUILD_TIMEOUT_MS
KICI_CACHE_MAX_TARBALL_BYTES KICI_CACHE_TTL_DAYS KICI_CONFIG KICI_DASHBOARD_URL KICI_DATABASE_URL KICI_DATA_DIR
KICI_DISPATCH_ACK_TIMEOUT_MS KICI_EVENT_LOG_MAX_PAYLOAD_BYTES KICI_GITHUB_APP_NAME_REFRESH_INTERVAL_MS
KICI_GLOBAL_WORKFLOWS_ENABLED KICI_HOST KICI_HOST_REBOOT_DEADLINE_MS KICI_INGEST_ORG_MAX_CONCURRENCY KICI_INSTANCE_ID
KICI_INSTANCE_MODE KICI_LOCKFILE_CACHE_MAX KICI_LOCKFILE_CACHE_TTL_MS KICI_LOCK_FILE_MAX_BYTES
KICI_MACHINE_LEDGER_DIR KICI_MAX_FANOUT_HOSTS KICI_MAX_GITHUB_PAYLOAD_BYTES KICI_MODE KICI_ORCHESTRATOR_HOST_AGENT_ID
KICI_ORCHESTRATOR_PROVENANCE_ISSUER KICI_PG_CUSTOMER_SECRETS KICI_PLATFORM_TOKEN KICI_PLATFORM_URL
KICI_REROUTE_SPAWN_WINDOW_MS KICI_ROSTER_GRACE_MS KICI_ROSTER_TTL_MS KICI_SKIP_S3_SENTINEL_VALIDATION
KICI_PLATFORM_INSTANCE_ID KICI_USER_CACHE_QUOTA_BYTES KICI_USER_CACHE_TTL_MS KICI_VECTORS KICI_WEBHOOK_DEDUP_TTL_MS KICI_WEBHOOK_PAYLOAD_DIR
KICI_WEBHOOK_PUBLIC_URL KICI_WORKER_CONCURRENCY
`)
