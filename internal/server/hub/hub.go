// Package hub holds the connections of agents to this node: it authenticates and registers them, applies their frames in
// the order in which they came, and writes what the server has for them. It decides nothing about jobs; the engine does.
package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"kici/internal/core/wire"
	"kici/internal/kit/service"
	"kici/internal/server/auth"
	"kici/internal/server/cluster"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/logs"
	"kici/internal/server/store"
)

// Engine decides what the words of agents mean for their jobs. Every call has committed when it returns without error,
// and a replay is a silent success. engine.ErrNotOwner is the only error that is not trouble of the server.
type Engine interface {
	Owned(ctx context.Context, agentID, jobID string) (engine.Owned, error)
	Acked(ctx context.Context, agentID, runID, jobID string) (engine.Ack, error)
	Rejected(ctx context.Context, agentID, jobID, reason string) error
	JobReported(ctx context.Context, agentID string, m wire.JobStatus) error
	// Reported takes what an agent says of the state of a job of its and of its steps, all or nothing.
	Reported(ctx context.Context, agentID string, job engine.Owned, words ...wire.Message) error
	ReportedAlong(ctx context.Context, agentID string, job engine.Owned, along func(context.Context, *store.Tx) error, words ...wire.Message) error
	JobBeat(ctx context.Context, agentID string, m wire.JobHeartbeat) error
	// Connected settles what the database has with an agent against what it says it still holds. fresh tells that the
	// connection is a new one.
	Connected(ctx context.Context, agentID string, inFlight []wire.InFlightJob, fresh bool) (cancel []wire.JobCancel, err error)
	// Lost takes the end of an agent's connection. left tells that the agent closed it in order: all that it had to say has
	// been heard.
	Lost(ctx context.Context, agentID, connectionID string, left bool) error
}

// Tokens looks up the tokens that agents present.
type Tokens interface {
	// Agent gives auth.ErrInvalidToken or auth.ErrTokenState for a token that will never do; another error is temporary.
	Agent(ctx context.Context, token string) (auth.AgentToken, error)
	// ConsumeTx uses up a single-use token and reports whether this call did.
	ConsumeTx(ctx context.Context, tx *store.Tx, id string) (bool, error)
}

// Logs stores the lines of steps: durable on return, and a replay of a message id changes nothing.
type Logs interface {
	Append(ctx context.Context, c logs.Chunk) error
	AppendAlong(ctx context.Context, c logs.Chunk, write func(logs.Along) error) (stored bool)
}

// Scalers knows the agents that the server started by itself.
type Scalers interface {
	Spawned(ctx context.Context, agentID string) (s Spawn, ok bool, err error)
}

// Spawn is how the server came to start an agent.
type Spawn struct {
	Scaler          string   // name of the pool
	Backend         string   // container, process, …
	MandatoryLabels []string // what a job must name to run on it
	PendingJob      bool     // a job bound to it will be dispatched now
}

// Settings are the limits and times of connections.
type Settings struct {
	NodeID string
	// NoAuth lets every agent register without a token.
	NoAuth          bool
	AuthTimeout     time.Duration // from open to auth.request
	RegisterTimeout time.Duration // from auth.success, or from open without tokens, to agent.register

	MaxConnections int // beyond it new connections are refused with 503
	MaxMessage     int // bytes of one message; a larger one closes the connection
	// A connection that sends faster than these is read more slowly; nothing is dropped. One that is slowed down without
	// a pause for longer than ThrottleLimit is closed.
	MessageRate   float64 // a second
	MessageBurst  int
	ByteRate      float64 // a second
	ByteBurst     int     // at least MaxMessage
	ThrottleLimit time.Duration

	MonitorEvery   time.Duration // how often connections are looked at
	UnhealthyAfter time.Duration // silence that is worth a log line
	DeadAfter      time.Duration // silence that ends the connection
	FastDeadAfter  time.Duration // the same for agents with fast-beat
	WriteTimeout   time.Duration // a peer that takes longer to read one message is closed
	ApplyTimeout   time.Duration // the longest that one frame may take in the store

	Violations      int           // frames about other agents' jobs within ViolationWindow that end the connection
	ViolationWindow time.Duration //
	RosterTTL       time.Duration // how long an ephemeral agent that has gone is remembered

	RebootDeadline time.Duration // within which a host is back from a reboot for which its agent names no time
	OwnHost        string        // id of the agent on the machine of this server, which no job may reboot; "" = none
}

// DefaultSettings are those of a server without configuration.
func DefaultSettings() Settings {
	return Settings{
		AuthTimeout: 5 * time.Second, RegisterTimeout: 10 * time.Second,
		MaxConnections: 50_000, MaxMessage: wire.MaxAgentFrame,
		MessageRate: 2000, MessageBurst: 10_000, ByteRate: 32 << 20, ByteBurst: 64 << 20, ThrottleLimit: time.Minute,
		MonitorEvery: 5 * time.Second, UnhealthyAfter: 90 * time.Second, DeadAfter: 180 * time.Second, FastDeadAfter: 20 * time.Second,
		WriteTimeout: 30 * time.Second, ApplyTimeout: 30 * time.Second,
		Violations: 5, ViolationWindow: time.Minute, RosterTTL: 30 * time.Minute,
		RebootDeadline: 15 * time.Minute,
	}
}

// Deps are what a hub needs.
type Deps struct {
	DB       *store.DB
	Clock    service.Clock
	Log      *slog.Logger
	Engine   Engine
	Tokens   Tokens // may be nil with Settings.NoAuth
	Logs     Logs
	Scalers  Scalers      // nil: the server starts no agents
	Poke     service.Poke // of the dispatcher: an agent may have room
	Arrived  service.Poke // of who carries effects to agents: one has connected
	Pulse    *cluster.Pulse
	Settings Settings

	// What jobs may ask for. Nil answers that there is none.
	Cache       Cache
	Concurrency Concurrency
	Approvals   Approvals
	Events      Events
	BringUps    BringUps
	Provenance  Provenance
	Identities  Identities
	Pools       func() []Pool // of this node and others; must be quick
}

// Hub is the agents' side of this node. It is an http.Handler for the WebSocket endpoint.
type Hub struct {
	Deps
	epoch     time.Time // of the monotonic times in connections
	telemetry *telemetry
	ctx       context.Context
	cancel    context.CancelFunc
	loops     *service.Group
	open      sync.WaitGroup // a connection's goroutines
	crew      crew

	// registering serialises what makes and ends an agent's presence, so that the end of an old connection can never
	// follow the beginning of a new one. An agent has one of them by its id; others that share it wait for a moment.
	registering [256]sync.Mutex

	mu        sync.Mutex
	stopping  bool
	conns     map[*conn]struct{}
	agents    map[string]*conn // current connection by agent id
	byID      map[string]*conn // the same by connection id
	sorted    []*conn          // of agents, by name
	metrics   map[string]snapshot
	unsettled map[string]departure // lost connections whose loss the store did not take
	unknown   map[string]bool      // unknown message types that were logged
	failing   map[string]attempts  // frames that could not be applied, by agent and message id
	warned    bool                 // that agents need no token

	forgotten time.Time // when agents were last removed from the fleet; the monitor's
}

// New makes a hub. It serves connections between Start and Stop.
func New(d Deps) *Hub {
	d.Settings.ByteBurst = max(d.Settings.ByteBurst, d.Settings.MaxMessage)
	ctx, cancel := context.WithCancel(context.Background())
	return &Hub{
		Deps: d, epoch: d.Clock(), telemetry: newTelemetry(), ctx: ctx, cancel: cancel, loops: service.NewGroup(ctx, d.Log),
		crew:  crew{tasks: make(chan func())},
		conns: map[*conn]struct{}{}, agents: map[string]*conn{}, byID: map[string]*conn{},
		metrics: map[string]snapshot{}, unsettled: map[string]departure{}, unknown: map[string]bool{},
	}
}

// Start marks the agents that this node had before it started as disconnected, and begins to watch connections.
func (h *Hub) Start(ctx context.Context) error {
	if err := h.abandon(ctx); err != nil {
		return err
	}
	h.loops.Go("agent telemetry", func(ctx context.Context) error {
		return service.Every(ctx, h.Log, "agent telemetry", time.Second, h.telemetry.poke, h.storeTelemetry)
	})
	h.loops.Go("agent monitor", func(ctx context.Context) error {
		return service.Every(ctx, h.Log, "agent monitor", h.Settings.MonitorEvery, nil, h.watch)
	})
	return nil
}

// Stop hears what agents have sent, closes every connection with 1001 and returns when the last one has ended; when ctx ends
// first, connections are cut. Agents keep their jobs: they come back to this node or to another, so nothing is lost with
// them here.
func (h *Hub) Stop(ctx context.Context) {
	h.mu.Lock()
	h.stopping = true
	open := h.allLocked()
	h.mu.Unlock()
	hearOut(ctx, open)
	for _, c := range open {
		c.close(wire.CloseGoingAway, wire.ReasonShutdown)
	}
	h.loops.Stop()
	ended := make(chan struct{})
	go func() {
		h.open.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	h.cancel()
	<-ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := h.storeTelemetry(ctx); err != nil {
		h.Log.Warn("last moments of runs not stored", "err", err)
	}
	if err := h.abandon(ctx); err != nil {
		h.Log.Warn("agents of this node stay marked as connected until it starts again", "err", err)
	}
}

// hearTime bounds how long a hub that stops hears what was on its way.
const hearTime = time.Second

// hearOut waits until what agents have sent by now is applied: their answers to a ping come after it. Those with frame-ack send
// again what was not, so they are not waited for.
func hearOut(ctx context.Context, open []*conn) {
	ctx, cancel := context.WithTimeout(ctx, hearTime)
	defer cancel()
	var heard sync.WaitGroup
	for _, c := range open {
		if c.agent.Load() != nil && !c.has(wire.FeatureFrameAck) {
			heard.Go(func() { _ = c.ws.Ping(ctx) }) // who does not answer has nothing to say, or is gone
		}
	}
	heard.Wait()
}

// farewell bounds the last write of a hub that stops.
const farewell = 2 * time.Second

// abandon marks the agents of this node as disconnected.
func (h *Hub) abandon(ctx context.Context) error {
	return h.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return fleet.Abandon(ctx, tx, h.Settings.NodeID, h.Clock.Millis())
	})
}

func (h *Hub) allLocked() []*conn {
	open := make([]*conn, 0, len(h.conns))
	for c := range h.conns {
		open = append(open, c)
	}
	return open
}

// ServeHTTP upgrades a request to a connection, which lives on after it returns. Requests that a browser makes for
// another site's page are refused: without tokens any page could register an agent.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.admits() {
		http.Error(w, "no more connections are accepted", http.StatusServiceUnavailable)
		return
	}
	var c *conn
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled,
		OnPingReceived: func(context.Context, []byte) bool { return c.pinged() }})
	if err != nil {
		h.Log.Debug("connection not upgraded", "remote", r.RemoteAddr, "err", err) // Accept has answered
		return
	}
	// The hub's own limit is lower and has its own answer.
	ws.SetReadLimit(wire.MaxFrame)
	c = newConn(h, ws, uuid.NewString(), r.RemoteAddr)
	if !h.enter(c) { // the hub began to stop, or was full, between the question and the upgrade
		_ = ws.Close(websocket.StatusCode(wire.CloseGoingAway), wire.ReasonShutdown) // whatever it says, it is closed then
	}
}

func (h *Hub) admits() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admitsLocked()
}

func (h *Hub) admitsLocked() bool { return !h.stopping && len(h.conns) < h.Settings.MaxConnections }

// enter begins to serve a connection, unless there are too many or the hub stops.
func (h *Hub) enter(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.admitsLocked() {
		return false
	}
	h.conns[c] = struct{}{}
	// A goroutine of its own lets that of the request end, with all that it holds.
	h.open.Go(c.serve)
	return true
}

// errRefused says that a peer was closed for what it sent. The close itself has been ordered already.
var errRefused = errors.New("connection refused")
