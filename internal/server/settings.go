package server

import (
	"net/netip"
	"time"

	"kici/internal/server/cache"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/events"
	"kici/internal/server/hub"
	"kici/internal/server/inbox"
	"kici/internal/server/logs"
	"kici/internal/server/logs/retention"
)

// Settings are what a server can be told. DefaultSettings is a server without configuration.
type Settings struct {
	DataDir     string
	DatabaseURL string // "" is the SQLite file in the data folder
	Durable     bool   // SQLite waits for the disk at every commit
	Host        string
	Port        int // 0 takes any free one
	BasePath    string
	NodeID      string // "" keeps the one in the data folder
	Address     string // base URL under which other nodes reach this one; "" does not say

	// Poll is how often the queue and the outbox are looked at without a wake-up, should one be lost.
	Poll time.Duration
	// Beat is how often this node says that it is alive. After four beats without a word others take it for dead.
	Beat time.Duration
	// PressureAt is how many pending jobs are too many for the agents there are. 0 never says so.
	PressureAt int

	MasterKey      string // text of the master key; "" keeps the one in the data folder
	MasterKeyOld   string
	BootstrapToken string
	TrustedProxies []netip.Prefix

	LogFiles LogFiles // the server's own log

	Workers int // deliveries worked on at a time

	RunMaxAge   time.Duration // since the end of a run, 0 for ever
	MaxLogBytes int64         // of one step
	LogMaxAge   time.Duration // of the last line of a run, 0 for ever
	LogMaxTotal int64         // bytes of all logs in the data folder, 0 for no bound
	Storage     StorageSettings
	// ProvenanceIssuer names this server in the identity tokens of jobs, verbatim; "" issues none.
	ProvenanceIssuer string
	AckTimeout       time.Duration
	Engine           engine.Settings
	Hub              hub.Settings
	Inbox            inbox.Options
	Events           events.Settings
}

// LogFiles say how a server keeps its own log.
type LogFiles struct {
	Dir     string // "" keeps none
	MaxSize int64  // of a file, in bytes; 0 for no bound
	Days    int    // 0 keeps all
}

// DefaultSettings are those of a server without configuration, but for its data folder.
func DefaultSettings() Settings {
	return Settings{
		Host:        "127.0.0.1",
		Port:        4000,
		Poll:        time.Second,
		Beat:        3 * time.Second,
		PressureAt:  100,
		Workers:     5,
		RunMaxAge:   engine.DefaultRunMaxAge,
		MaxLogBytes: logs.DefaultMaxBytes,
		LogMaxAge:   retention.DefaultMaxAge,
		LogMaxTotal: retention.DefaultMaxTotal,
		Storage:     StorageSettings{Limits: cache.DefaultLimits()},
		AckTimeout:  10 * time.Second,
		Engine:      engine.DefaultSettings(),
		Hub:         hub.DefaultSettings(),
		Events:      events.DefaultSettings(),
	}
}

// dispatching are the dispatcher's part of the settings.
func (s Settings) dispatching(nodeID string) dispatch.Settings {
	return dispatch.Settings{NodeID: nodeID, Poll: s.Poll, AckTimeout: s.AckTimeout, MaxLogBytes: s.MaxLogBytes,
		QueueTimeout: s.Engine.QueueTimeout, PressureAt: s.PressureAt}
}
