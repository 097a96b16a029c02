package server

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kici/internal/kit/config"
	"kici/internal/kit/seal"
	"kici/internal/server/events"
	"kici/internal/server/provenance"
)

// Config is what an operator writes in a file, in variables and in flags.
type Config struct {
	DataDir  string `key:"data" env:"KICI_DATA_DIR" flag:"data" help:"Folder of the database, the keys and the logs. One server at a time."`
	Database struct {
		URL     string `key:"url" env:"KICI_DATABASE_URL" secret:"true" help:"postgres:// URL of a shared database. Without it the server keeps an SQLite file in the data folder."`
		Durable bool   `key:"durable" env:"KICI_DATABASE_DURABLE" default:"false" help:"Wait for the disk at every commit of the SQLite file. Without it a killed server loses nothing, but a power failure may take the last moments."`
	} `key:"database"`
	Server struct {
		Host      string `key:"host" env:"KICI_HOST" flag:"host" default:"127.0.0.1" help:"Address to listen on."`
		Port      int    `key:"port" env:"KICI_PORT,KICI_SERVER_PORT" flag:"port" default:"4000" max:"65535" help:"Port to listen on, 0 for any free one."`
		BasePath  string `key:"basePath" env:"KICI_BASE_PATH,KICI_SERVER_BASE_PATH" default:"/" help:"Prefix of all routes."`
		LogLevel  string `key:"logLevel" env:"KICI_LOG_LEVEL,KICI_SERVER_LOG_LEVEL" flag:"log-level" default:"info" enum:"debug|info|warn|error" help:"What the log holds."`
		LogDir    string `key:"logDir" env:"KICI_LOG_DIR" help:"Folder in which the log is kept, too: a file of JSON lines for each day."`
		LogSize   int64  `key:"logMaxSizeBytes" env:"KICI_LOG_MAX_SIZE" default:"500m" min:"0" unit:"bytes" help:"Largest file there. The day goes on in another one, with .1, .2 and so on behind its name. 0 for no bound."`
		LogDays   int    `key:"logRetentionDays" env:"KICI_LOG_RETENTION_DAYS" default:"7" help:"Days for which the files there are kept, 0 for ever."`
		LogFormat string `key:"logFormat" env:"KICI_LOG_FORMAT" default:"auto" enum:"auto|text|json" help:"Form of the log. auto is text on a terminal and JSON otherwise."`
	} `key:"server"`
	Instance struct {
		ID   string `key:"id" env:"KICI_CLUSTER_INSTANCE_ID,KICI_INSTANCE_ID" help:"Identity of this node. Without it the data folder keeps one."`
		Mode string `key:"mode" env:"KICI_MODE,KICI_INSTANCE_MODE" default:"independent" enum:"independent" help:"A server of this release stands by itself."`
	} `key:"instance"`
	AgentAuth         string        `key:"agentAuth" env:"KICI_AGENT_AUTH" default:"token" enum:"token|none" help:"none lets every agent register without a token."`
	MaxReconnectDelay time.Duration `key:"agentMaxReconnectDelayMs" env:"KICI_AGENT_MAX_RECONNECT_DELAY_MS" default:"60000" min:"100" unit:"ms" help:"Longest pause of an agent before it connects again. A job waits twice as long for its lost agent."`
	RebootDeadline    time.Duration `key:"hostRebootDeadlineMs" env:"KICI_HOST_REBOOT_DEADLINE_MS" default:"900000" min:"1000" max:"86400000" unit:"ms" help:"Within which a host is back from a reboot that a job asked for. Until then its agent gets no jobs."`
	OwnHost           string        `key:"orchestratorHostAgentId" env:"KICI_ORCHESTRATOR_HOST_AGENT_ID" help:"Id of the agent on the machine of this server. A job that asks for a reboot of that machine is refused."`
	Queue             struct {
		MaxDepth int           `key:"maxDepth" env:"KICI_QUEUE_MAX_DEPTH" default:"100000" min:"1" help:"Pending jobs above which no new run is admitted."`
		Pressure int           `key:"backpressureThreshold" env:"KICI_QUEUE_BACKPRESSURE_THRESHOLD" default:"100" min:"0" help:"Pending jobs above which the log warns that agents are missing, 0 never."`
		Timeout  time.Duration `key:"timeoutMs" env:"KICI_QUEUE_TIMEOUT_MS" default:"3600000" unit:"ms" help:"How long a job waits for an agent, 0 for ever."`
	} `key:"queue"`
	AckTimeout    time.Duration `key:"dispatchAckTimeoutMs" env:"KICI_DISPATCH_ACK_TIMEOUT_MS" default:"10000" min:"1000" unit:"ms" help:"Within which an agent must answer a dispatch."`
	StaleDetector struct {
		Heartbeat  time.Duration `key:"heartbeatIntervalMs" env:"KICI_JOB_HEARTBEAT_INTERVAL_MS" default:"60000" min:"1000" unit:"ms" help:"How often a running job gives a sign of life."`
		Multiplier int           `key:"thresholdMultiplier" env:"KICI_STALE_DETECTOR_THRESHOLD_MULTIPLIER" default:"2" min:"1" help:"Missed signs after which a job is given up."`
	} `key:"staleDetector"`
	Workers   int           `key:"workerConcurrency" env:"KICI_WORKER_CONCURRENCY" default:"5" min:"1" max:"64" help:"Deliveries worked on at a time."`
	DedupTTL  time.Duration `key:"webhookDedupTtlMs" env:"KICI_WEBHOOK_DEDUP_TTL_MS" default:"86400000" min:"60000" unit:"ms" help:"How long a delivery's id is remembered."`
	MaxLog    int64         `key:"maxLogSizeBytes" env:"KICI_MAX_LOG_SIZE_BYTES" default:"2g" min:"1024" unit:"bytes" help:"Largest log of one step."`
	RunMaxAge time.Duration `key:"runRetentionDays" env:"KICI_RUN_RETENTION_DAYS" default:"365" unit:"days" help:"How long a run is kept after its end, 0 for ever. With it go its logs, its artifacts and everything else of it. A run that was repeated is kept as long as its repetition."`
	StepLogs  struct {
		MaxAge   time.Duration `key:"ttlDays" env:"KICI_STEP_LOG_TTL_DAYS" default:"90" unit:"days" help:"How long the logs of a run are kept after its last line, 0 for ever. A run that has not ended keeps them."`
		MaxTotal int64         `key:"maxTotalBytes" env:"KICI_LOG_MAX_TOTAL_BYTES" default:"20g" unit:"bytes" help:"Bytes of all step logs of the node, files in the data folder and short ones in the database, 0 for no bound. Above it the logs of the runs that ended longest ago go, and so they do where the disk has no room for more."`
	} `key:"stepLogs"`
	Storage storageConfig `key:"storage"`

	CacheTTL        time.Duration  `key:"cacheTtlDays" env:"KICI_CACHE_TTL_DAYS" default:"30" unit:"days" help:"How long packed sources and dependencies are kept after their last use, 30 days at least."`
	CacheMaxTarball int64          `key:"cacheMaxTarballBytes" env:"KICI_CACHE_MAX_TARBALL_BYTES" default:"500m" min:"1048576" unit:"bytes" help:"Largest packed source, and largest set of dependencies."`
	UserCacheQuota  int64          `key:"userCacheQuotaBytes" env:"KICI_USER_CACHE_QUOTA_BYTES" default:"5g" min:"1" unit:"bytes" help:"Caches of jobs that an organisation keeps. Beyond it, what was used longest ago goes."`
	UserCacheTTL    time.Duration  `key:"userCacheTtlMs" env:"KICI_USER_CACHE_TTL_MS" default:"604800000" min:"1" unit:"ms" help:"How long a cache of a job is kept after its last use."`
	Artifacts       artifactConfig `key:"artifacts"`

	EventRouter struct {
		MaxChainDepth int           `key:"maxChainDepth" env:"KICI_EVENT_ROUTER_MAX_CHAIN_DEPTH" default:"10" min:"1" help:"Events that runs cause one after the other. One that would come after so many is refused."`
		PerMinute     int           `key:"rateLimitPerWorkflowPerMinute" env:"KICI_EVENT_ROUTER_RATE_LIMIT_PER_WORKFLOW_PER_MINUTE" default:"100" min:"1" help:"Events of one name that the jobs of one workflow may emit within a minute."`
		TTL           time.Duration `key:"eventTtlSeconds" env:"KICI_EVENT_ROUTER_EVENT_TTL_SECONDS" default:"604800" min:"60" unit:"s" help:"How long an event is kept."`
		Cleanup       time.Duration `key:"cleanupIntervalMs" env:"KICI_EVENT_ROUTER_CLEANUP_INTERVAL_MS" default:"3600000" min:"1000" unit:"ms" help:"How often events that are too old are removed."`
	} `key:"eventRouter"`

	ProvenanceIssuer string `key:"provenanceSigningIssuer" env:"KICI_ORCHESTRATOR_PROVENANCE_ISSUER" help:"URL under which everybody reaches this server, with the base path if there is one. With it, jobs get identity tokens and can attest what they make."`

	Secrets struct {
		Key            string `key:"key" env:"KICI_SECRET_KEY" secret:"true" help:"Master key: 64 hex digits, or base64 of 32 bytes. Without it the data folder keeps one."`
		KeyFile        string `key:"keyFile" env:"KICI_SECRET_KEY_FILE" help:"File that holds the master key."`
		KeyOld         string `key:"keyOld" env:"KICI_SECRET_KEY_OLD" secret:"true" help:"The master key before the present one."`
		KeyFileOld     string `key:"keyFileOld" env:"KICI_SECRET_KEY_FILE_OLD" help:"File that holds the master key before the present one."`
		BootstrapToken string `key:"bootstrapAdminToken" env:"KICI_BOOTSTRAP_ADMIN_TOKEN" secret:"true" help:"Admin token that is valid from the start, at least 32 characters."`
	} `key:"secrets"`
	Cluster struct {
		Address        string   `key:"address" env:"KICI_CLUSTER_ADDRESS" help:"Base URL under which the other nodes of a shared database reach this one, such as http://10.0.0.5:4000. Without it the address that it listens on."`
		TrustedProxies []string `key:"trustedProxies" env:"KICI_CLUSTER_TRUSTED_PROXIES" help:"Addresses or networks whose X-Forwarded-For is believed."`
	} `key:"cluster"`
}

// defaultConfigFile is read when it is there and no other is named.
const defaultConfigFile = "/etc/kici/orchestrator.yaml"

// LoadConfig reads the configuration: file, then environ, then flags, by key. The error lists everything that is wrong.
func LoadConfig(file string, environ []string, flags map[string]string) (Config, config.Report, error) {
	o := config.Options{File: file, FileRequired: true, Environ: environ, Flags: flags, Prefix: "KICI_",
		Lenient: variable(environ, "KICI_DEV") == "true", Ignored: foreign, Obsolete: withoutEffect, ObsoleteKeys: keysWithoutEffect}
	if o.File == "" {
		o.File = variable(environ, "KICI_CONFIG")
	}
	if o.File == "" {
		o.File, o.FileRequired = defaultConfigFile, false
	}
	var c Config
	report, err := config.Load(&c, o)
	return c, report, err
}

func variable(environ []string, name string) string {
	for _, entry := range environ {
		if len(entry) > len(name) && entry[len(name)] == '=' && entry[:len(name)] == name {
			return entry[len(name)+1:]
		}
	}
	return ""
}

// Check finds what concerns several settings, or needs more than a bound to be judged.
func (c *Config) Check() []config.Problem {
	var out []config.Problem
	for _, p := range c.Cluster.TrustedProxies {
		if _, err := parseProxy(p); err != nil {
			out = append(out, config.Problem{Setting: "cluster.trustedProxies", Wrong: fmt.Sprintf("%q is not an address", p), Right: "an IP address or a network such as 10.0.0.0/8"})
		}
	}
	if t := c.Secrets.BootstrapToken; t != "" && len(t) < 32 {
		out = append(out, config.Problem{Setting: "secrets.bootstrapAdminToken", Wrong: "it is shorter than 32 characters", Right: "at least 32 characters"})
	}
	if c.RunMaxAge > 0 && c.RunMaxAge < c.EventRouter.TTL {
		out = append(out, config.Problem{Setting: "runRetentionDays", Wrong: "it is shorter than events are kept, which may be told of the run", Right: "at least as long as eventRouter.eventTtlSeconds, or 0"})
	}
	if u, err := url.Parse(c.Cluster.Address); c.Cluster.Address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		out = append(out, config.Problem{Setting: "cluster.address", Wrong: fmt.Sprintf("%q is not a URL", c.Cluster.Address), Right: "a URL such as http://10.0.0.5:4000"})
	}
	if issuer := c.ProvenanceIssuer; issuer != "" && !provenance.GoodIssuer(issuer) {
		out = append(out, config.Problem{Setting: "provenanceSigningIssuer", Wrong: fmt.Sprintf("%q is not the URL of a server", issuer), Right: "a URL such as https://ci.example, with the base path if there is one"})
	}
	return append(out, c.Storage.check()...)
}

func parseProxy(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// Settings turns the configuration into what the server is given.
func (c Config) Settings() (Settings, error) {
	s := DefaultSettings()
	var err error
	if s.DataDir, err = dataDir(c.DataDir); err != nil {
		return s, err
	}
	s.DatabaseURL, s.Durable = c.Database.URL, c.Database.Durable
	s.Host, s.Port, s.BasePath = c.Server.Host, c.Server.Port, c.Server.BasePath
	s.NodeID, s.Workers, s.MaxLogBytes, s.AckTimeout = c.Instance.ID, c.Workers, c.MaxLog, c.AckTimeout
	s.RunMaxAge, s.LogMaxAge, s.LogMaxTotal = c.RunMaxAge, c.StepLogs.MaxAge, c.StepLogs.MaxTotal
	s.BootstrapToken = c.Secrets.BootstrapToken
	s.LogFiles = LogFiles{Dir: c.Server.LogDir, MaxSize: c.Server.LogSize, Days: c.Server.LogDays}
	s.Hub.NoAuth = c.AgentAuth == "none"
	s.Hub.RebootDeadline, s.Hub.OwnHost = c.RebootDeadline, c.OwnHost
	s.Inbox.DedupTTL = c.DedupTTL
	s.Storage = c.storage()
	s.Events = events.Settings{MaxChainDepth: c.EventRouter.MaxChainDepth, PerMinute: c.EventRouter.PerMinute, TTL: c.EventRouter.TTL, SweepEvery: c.EventRouter.Cleanup}
	s.ProvenanceIssuer = c.ProvenanceIssuer
	s.Engine.RecoveryWindow = 2 * c.MaxReconnectDelay
	s.Address, s.PressureAt = strings.TrimRight(c.Cluster.Address, "/"), c.Queue.Pressure
	s.Engine.QueueTimeout, s.Engine.QueueMaxDepth = c.Queue.Timeout, c.Queue.MaxDepth
	s.Engine.StaleAfter = c.StaleDetector.Heartbeat * time.Duration(c.StaleDetector.Multiplier)
	for _, p := range c.Cluster.TrustedProxies {
		prefix, err := parseProxy(p)
		if err != nil {
			return s, err
		}
		s.TrustedProxies = append(s.TrustedProxies, prefix)
	}
	if s.MasterKey, err = keyText(c.Secrets.Key, c.Secrets.KeyFile); err != nil {
		return s, err
	}
	s.MasterKeyOld, err = keyText(c.Secrets.KeyOld, c.Secrets.KeyFileOld)
	return s, err
}

// keyText is the key itself, else the content of its file.
func keyText(key, file string) (string, error) {
	if key != "" || file == "" {
		return key, nil
	}
	read, err := seal.ReadKeyFile(file)
	return read.Text, err
}

// dataDir is the configured folder, else kici below the user's data folder.
func dataDir(configured string) (string, error) {
	if configured != "" {
		return filepath.Abs(configured)
	}
	return DefaultDataDir()
}

// DefaultDataDir is $XDG_DATA_HOME/kici, by default ~/.local/share/kici.
func DefaultDataDir() (string, error) {
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "kici"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the data folder: %w (set --data)", err)
	}
	return filepath.Join(home, ".local", "share", "kici"), nil
}

// foreign are the variables of the agent, the command line and tests, which may share a shell with the server.
var foreign = []string{
	"KICI_ADMIN_URL", "KICI_ADMIN_TOKEN", "KICI_CONFIG", "KICI_DEV", "KICI_TEST_*", "KICI_VECTORS", "KICI_E2E_*", "KICI_AGENT_ENV_*",
	"KICI_AGENT_ID", "KICI_AGENT_TOKEN", "KICI_ORCHESTRATOR_URL", "KICI_LABELS", "KICI_PROPERTIES", "KICI_ROLES",
	"KICI_DEFAULT_STEP_TIMEOUT_MS", "KICI_BACKPRESSURE_MODE", "KICI_SANDBOX", "KICI_SANDBOX_NETWORK", "KICI_EXECUTION_MODE",
	"KICI_DOCKER_KEEP_FAILED", "KICI_SCALER_MANAGED", "KICI_SCALER_IDLE_TIMEOUT", "KICI_SCALER_PENDING_DISPATCH_TIMEOUT",
	"KICI_CONCURRENCY_WAIT_TIMEOUT_MS", "KICI_AGENT_IS_ORCHESTRATOR_HOST", "KICI_CACHE", "KICI_RUN_DIR", "KICI_LOCAL_LOCK_KILL_GRACE_MS",
	"KICI_DEPLOY_*", "KICI_PLATFORM_INSTANCE_ID",
}

// withoutEffect are variables that servers of this kind know and this release does not act on. They are warned about,
// so that an environment made for another release still starts and nobody believes that they work.
var withoutEffect = []string{
	"KICI_AUTO_MIGRATE", "KICI_CLUSTER_*", "KICI_SERVER_TLS_CERT_PATH",
	"KICI_PLATFORM_*", "KICI_DASHBOARD_URL", "KICI_WEBHOOK_*", "KICI_PROVENANCE_*", "KICI_ORCHESTRATOR_*", "KICI_SKIP_S3_SENTINEL_VALIDATION",
	"KICI_AGENT_TOKEN_TTL_MS", "KICI_ROSTER_*", "KICI_MAX_FANOUT_HOSTS",
	"KICI_STALE_DETECTOR_SCAN_INTERVAL_MS", "KICI_SCALER_*", "KICI_MACHINE_LEDGER_DIR", "KICI_REROUTE_*", "KICI_MAX_GITHUB_PAYLOAD_BYTES",
	"KICI_LOCK_FILE_MAX_BYTES", "KICI_EVENT_LOG_*", "KICI_EVENT_ROUTER_MAX_DISPATCH_ATTEMPTS",
	"KICI_EVENT_ROUTER_LEASE_*", "KICI_EVENT_ROUTER_RETRY_*", "KICI_GITHUB_*", "KICI_LOCKFILE_*", "KICI_CACHE_BUILD_TIMEOUT_MS",
	"KICI_INGEST_*", "KICI_GLOBAL_WORKFLOWS_ENABLED", "KICI_STORAGE_PATH", "KICI_COLD_STORE_*", "KICI_PG_CUSTOMER_SECRETS", "KICI_PROVIDERS_*",
}

// keysWithoutEffect are the same for the file.
var keysWithoutEffect = []string{
	"platform", "scaler", "agentTokenTtlMs", "rosterGraceMs", "rosterTtlMs", "lockfileCache",
	"staleDetector.scanIntervalMs", "pgCustomerSecrets", "webhookPayloadDir", "cacheBuildTimeoutMs", "eventLog", "server.tlsCertPath",
	"cluster.joinToken", "cluster.role", "cluster.peers", "cluster.coordinatorUrl", "cluster.peerHeartbeatIntervalMs",
	"cluster.peerMaxReconnectDelayMs", "cluster.peerStaleTimeoutMs", "cluster.raftElectionTimeoutMinMs",
	"cluster.raftElectionTimeoutMaxMs", "cluster.raftHeartbeatMs",
}
