// Package server is the orchestrator put together: it opens the rooms in their order, serves HTTP and WebSocket, runs
// the loops, and stops all of it in the reverse order.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"kici/internal/kit/seal"
	"kici/internal/kit/service"
	"kici/internal/kit/telemetry"
	"kici/internal/server/adminapi"
	"kici/internal/server/auth"
	"kici/internal/server/cache"
	"kici/internal/server/cluster"
	"kici/internal/server/contexts"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/events"
	"kici/internal/server/forge"
	"kici/internal/server/forge/generic"
	"kici/internal/server/forge/git"
	"kici/internal/server/forge/local"
	"kici/internal/server/hub"
	"kici/internal/server/inbox"
	"kici/internal/server/ingest"
	"kici/internal/server/live"
	"kici/internal/server/logs"
	"kici/internal/server/pipeline"
	"kici/internal/server/provenance"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// Server is one node.
type Server struct {
	settings Settings
	log      *slog.Logger
	clock    service.Clock
	started  time.Time
	node     *node
	telling  sync.Mutex // held while the node's row is written, so that the last one to write it knows best whether it drains
	db       *store.DB
	pulse    *cluster.Pulse
	bell     *cluster.Bell
	changed  *changedRuns
	metrics  *telemetry.Registry
	counters *counters
	tokens   *auth.Tokens
	secrets  *secrets.Store
	contexts *contexts.Store
	storage  storage
	cache    *cache.Cache
	keys     *seal.Keyring
	rotating sync.Mutex // held while the key is rotated
	logs     *logs.Store
	live     *live.Room
	git      *git.Reader
	sources  *forge.Sources
	inbox    *inbox.Inbox
	ingest   *ingest.Ingest
	pipeline *pipeline.Pipeline
	events   *events.Room
	proof    *provenance.Room
	engine   *engine.Engine
	dispatch *dispatch.Dispatcher
	hub      *hub.Hub
	pending  service.Poke // there may be something to give to an agent
	effects  service.Poke // there may be something to tell an agent
	spread   service.Poke // the same, on every node
	loops    *service.Group
	files    *telemetry.Files // of the log; nil when none are kept
	api      *adminapi.API
	http     *http.Server
	peers    *http.Client // asks other nodes
	listener net.Listener
}

// Open opens everything that a server needs, without serving yet. A first admin token is printed to out, once.
func Open(ctx context.Context, settings Settings, log *slog.Logger, out io.Writer) (s *Server, err error) {
	settings.BasePath = cleanBasePath(settings.BasePath)
	s = &Server{settings: settings, log: log, clock: time.Now, started: time.Now(), pending: service.NewPoke(), effects: service.NewPoke(), peers: newPeers()}
	if s.node, err = openNode(settings.DataDir, settings.NodeID); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	log = s.keepLog(log)
	s.db, err = store.Open(ctx, store.Options{URL: settings.DatabaseURL, Path: s.node.path(databaseFile), Durable: settings.Durable})
	if err != nil {
		return s, err
	}
	s.changed = newChangedRuns()
	s.pulse, s.bell = cluster.NewPulse(s.clock), cluster.NewBell(settings.DatabaseURL, s.db, s.node.id, log)
	if err := s.openRooms(ctx); err != nil {
		return s, err
	}
	err = s.tokens.EnsureOwner(ctx, auth.Bootstrap{Token: settings.BootstrapToken, File: s.node.path(tokenFile), Out: out})
	return s, err
}

// openRooms builds the rooms, each on those before it.
func (s *Server) openRooms(ctx context.Context) error {
	keys, err := s.keyring()
	if err != nil {
		return err
	}
	s.keys = keys
	s.metrics = telemetry.NewRegistry()
	s.counters = newCounters(s.metrics)
	if err := s.openStorage(ctx, keys); err != nil {
		return err
	}
	if err := s.openLogs(ctx); err != nil {
		return err
	}
	s.tokens = auth.New(s.db, s.clock, s.log)
	s.secrets = secrets.New(s.db, keys, s.clock)
	s.contexts = contexts.New(s.db, s.clock, s.secrets, engine.PendingHolds)
	s.sources = forge.NewSources(s.db, keys, s.clock)
	s.git = git.NewReader(git.Options{})
	s.openProvenance()
	if version, err := s.keyVersion(ctx); err != nil {
		return err
	} else if version > 0 {
		keys.SetVersion(version)
	}
	s.openExecution()
	s.openIntake()
	if err := s.openDispatch(); err != nil {
		return err
	}
	s.openAPI()
	s.expose()
	return nil
}

// keyring reads the master key: the configured one, else the one in the data folder, which is made at the first start.
func (s *Server) keyring() (*seal.Keyring, error) {
	text := s.settings.MasterKey
	if text == "" {
		file, err := seal.LoadOrCreateKeyFile(s.node.path(keyFile))
		if err != nil {
			return nil, err
		}
		if file.Warning != "" {
			s.log.Warn(file.Warning)
		}
		if file.Created {
			s.log.Info("master key made; keep a copy, secrets cannot be read without it", "file", s.node.path(keyFile))
		}
		text = file.Text
	}
	return seal.NewKeyring(text, s.settings.MasterKeyOld)
}

// openExecution builds what runs jobs. The pokes are the only way back: they carry nothing.
func (s *Server) openExecution() {
	settings := s.settings.Engine
	settings.NodeID = s.node.id
	s.live = live.New(live.Deps{DB: s.db, LogOf: s.liveLog, Clock: s.clock, Log: s.log})
	s.spread = s.bell.Line("effects", s.effects)
	s.events = events.New(events.Deps{DB: s.db, Clock: s.clock, Log: s.log, Settings: s.settings.Events,
		Wake: s.bell.Line("event_channel", service.NewPoke()), Dropped: s.counters.dropEvents})
	s.engine = engine.New(engine.Deps{DB: s.db, Clock: s.clock, Log: s.log, Settings: settings,
		Dispatch: s.bell.Line("dispatch", s.pending), Effects: s.spread, AsOf: s.pulse.AsOf, Events: s.events, Changed: s.runChanged,
		Contexts: s.contexts, Outputs: s.secrets, InstallJudged: s.counters.installJudged})
	limits := s.settings.Hub
	limits.NodeID = s.node.id
	s.hub = hub.New(hub.Deps{DB: s.db, Clock: s.clock, Log: s.log, Engine: s.engine, Tokens: s.tokens, Logs: watchedLogs{s.logs, s.live},
		Cache: s.cache, Concurrency: engine.Groups{Engine: s.engine}, Approvals: engine.Approvals{Engine: s.engine}, Events: s.events,
		BringUps:   bringUps{db: s.db, tokens: s.tokens, secrets: s.secrets, base: s.linkBase},
		Provenance: s.proof, Identities: s.identities(),
		Poke: s.pending, Arrived: s.effects, Pulse: s.pulse, Settings: limits})
}

// runChanged tells those who count runs and those who look at them.
func (s *Server) runChanged(runID string) {
	s.changed.note(runID)
	s.live.Changed(runID)
}

func (s *Server) openDispatch() (err error) {
	s.dispatch, err = dispatch.New(dispatch.Deps{DB: s.db, Clock: s.clock, Log: s.log, Hub: s.hub, Engine: s.engine,
		Secrets: jobSecrets{s.db, s.secrets, s.engine, s.contexts, s.counters}, Builds: packed{s.cache}, Settings: s.settings.dispatching(s.node.id), Poke: s.pending,
		AsOf: s.pulse.AsOf})
	return err
}

// openIntake builds what takes deliveries in.
func (s *Server) openIntake() {
	options := s.settings.Inbox
	options.NodeID = s.node.id
	poke := service.NewPoke()
	s.inbox = inbox.New(s.db, s.clock, poke, options)
	repositories := local.New(s.git)
	s.ingest = ingest.New(ingest.Deps{Sources: s.sources, Inbox: s.inbox, Refs: map[string]forge.Refs{forge.Local: repositories},
		Clock: s.clock, Log: s.log, TrustedProxies: s.settings.TrustedProxies,
		Received: s.counters.received, Duplicates: s.counters.duplicates, Shed: s.counters.shed})
	s.pipeline = pipeline.New(pipeline.Deps{DB: s.db, Inbox: s.inbox, Poke: poke, Sources: s.sources, Engine: s.engine, Log: s.log, Clock: s.clock,
		Builds: s.cache, Workers: s.settings.Workers, Received: s.counters.received, Processed: s.counters.processed, Matching: s.counters.matching,
		Providers: map[string]pipeline.Provider{
			forge.Local:   {Normaliser: repositories, LockFiles: repositories, Refs: repositories},
			forge.Generic: {Normaliser: generic.Normaliser{}},
		}})
}

// Start takes over what this node left behind, listens, and runs the loops.
func (s *Server) Start(ctx context.Context) error {
	if err := s.recover(ctx); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	s.loops = service.NewGroup(ctx, s.log)
	s.loops.Go("pipeline", s.pipeline.Run)
	s.loops.Go("dispatch", s.dispatch.Run)
	s.maintain("engine sweep", s.engine.Sweep)
	s.loops.Go("run effects", s.engine.Follow)
	s.loops.Go("agent effects", s.carry)
	s.loops.Go("node", s.beat)
	s.loops.Go("pulse", s.pulse.Run)
	s.loops.Go("queue depth", s.watchQueue)
	s.loops.Go("counts", s.count)
	s.bell.Start(s.loops)
	s.maintain("run retention", s.retainRuns)
	s.maintain("purge", s.purge)
	s.maintain("log upload", s.logs.Upload)
	s.maintain("log retention", s.sweepLogs)
	s.maintain("cache sweep", s.cache.Sweep)
	s.maintain("event sweep", s.events.Sweep)
	if err := s.hub.Start(ctx); err != nil {
		return err
	}
	s.proof.Check(ctx)
	s.serve()
	s.api.Booted()
	return s.node.announce(s.URL())
}

func (s *Server) listen(ctx context.Context) (err error) {
	var config net.ListenConfig
	address := net.JoinHostPort(s.settings.Host, strconv.Itoa(s.settings.Port))
	if s.listener, err = config.Listen(ctx, "tcp", address); err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	return nil
}

// URL is where the server answers, without a slash at the end.
func (s *Server) URL() string {
	return "http://" + s.listener.Addr().String() + s.settings.BasePath
}

// stopTime bounds how long open requests may take once the server stops.
const stopTime = 5 * time.Second

// Stop ends the server: no new requests, agents told to come back, loops ended, stores closed. Jobs go on at their
// agents, which report to the next start. A server whose Start failed is stopped as far as it had come.
func (s *Server) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	var err error
	if s.http != nil {
		s.hub.Stop(ctx)
		s.api.Stop() // whoever waits for a log line is answered
		err = s.http.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.http.Close() // a slow reader must not keep the server
		}
	} else if s.listener != nil {
		err = s.listener.Close()
	}
	if s.loops != nil {
		s.loops.Stop()
		s.flushLogs(ctx)
	}
	s.live.Stop()
	return errors.Join(err, s.close())
}

// close gives back what Open took, in the reverse order.
func (s *Server) close() error {
	var err error
	s.peers.CloseIdleConnections()
	if s.git != nil {
		s.git.Close()
	}
	if s.logs != nil {
		err = errors.Join(err, s.logs.Close())
	}
	if s.storage.files != nil {
		err = errors.Join(err, s.storage.files.Close())
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	if s.files != nil {
		err = errors.Join(err, s.files.Close())
	}
	return errors.Join(err, s.node.close())
}

// NodeID is this node's identity.
func (s *Server) NodeID() string { return s.node.id }

// AgentURL is where agents connect to.
func (s *Server) AgentURL() string { return "ws" + strings.TrimPrefix(s.URL(), "http") + "/ws" }

// AgentToken makes a token for an agent that this process starts itself. Tokens of the same name that were made before
// are revoked: their agents ended with the process.
func (s *Server) AgentToken(ctx context.Context, name string) (string, error) {
	known, err := s.tokens.AgentTokens(ctx, auth.AgentStatic)
	if err != nil {
		return "", err
	}
	for _, t := range known {
		if t.CreatedBy == name {
			if err := s.tokens.RevokeAgent(ctx, t.ID); err != nil {
				return "", err
			}
		}
	}
	token, _, err := s.tokens.CreateStatic(ctx, auth.NewAgentToken{CreatedBy: name})
	return token, err
}
