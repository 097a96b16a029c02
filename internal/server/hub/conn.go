package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"kici/internal/core/wire"
	"kici/internal/kit/service"
	"kici/internal/server/auth"
)

// conn is one connection. Its serve goroutine reads, and leaves what it has read to whoever applies the backlog.
type conn struct {
	hub    *Hub
	ws     *websocket.Conn
	id     string
	remote string
	since  int64 // epoch milliseconds

	// The reader's.
	messages  *rate.Limiter
	bytes     *rate.Limiter
	throttled time.Time // since when without a pause, zero = not

	// Of whoever applies, one at a time.
	violations []time.Time
	owned      map[string]ownership

	agent atomic.Pointer[registration] // nil before it has registered

	// Guarded by hub.mu; whoever applies, and before it the handshake, alone writes the token and reads it freely.
	token  auth.AgentToken // zero without authentication
	ready  bool            // register.ack is sent and jobs are reconciled
	hold   string          // wire.RejectBusy or wire.RejectDraining: not offered work
	active int             // jobs that the agent said it has
	// Jobs that were taken away from the agent and that it still has to end, and whether what it says of them counts no more.
	// Until then it is offered nothing.
	withdrawn map[string]bool
	// rebootUntil is when the host is to be back from a reboot, epoch milliseconds; until then the agent is offered nothing.
	rebootUntil int64

	heard   atomic.Int64 // when the last frame came, after hub.epoch, in nanoseconds
	busy    atomic.Bool  // the reader is held back: silence is ours
	warned  bool         // of silence; the monitor's
	touched int64        // last time written to the fleet, nanoseconds after hub.epoch; the monitor's
	left    bool         // the agent closed it in order; the reader's, for its end
	done    chan struct{}

	given   given
	acks    acks
	backlog backlog
	lanes   lanes

	out     sync.Mutex
	room    *sync.Cond // the queue became shorter, or closing
	queue   []outbound
	queued  int // bytes in queue
	writing bool
	closing bool
}

func newConn(h *Hub, ws *websocket.Conn, id, remote string) *conn {
	s := h.Settings
	c := &conn{
		hub: h, ws: ws, id: id, remote: remote, since: h.Clock.Millis(), done: make(chan struct{}), lanes: newLanes(),
		messages: rate.NewLimiter(rate.Limit(s.MessageRate), s.MessageBurst),
		bytes:    rate.NewLimiter(rate.Limit(s.ByteRate), s.ByteBurst),
	}
	c.room, c.backlog.change = sync.NewCond(&c.out), sync.NewCond(&c.backlog.mu)
	c.hear()
	return c
}

// name is the agent's id, or what can be said of a connection that has none yet.
func (c *conn) name() string {
	if r := c.agent.Load(); r != nil {
		return r.id
	}
	return "(" + c.remote + ")"
}

// hear notes a sign of life.
func (c *conn) hear() { c.heard.Store(int64(c.hub.Clock().Sub(c.hub.epoch))) }

// serve is the life of a connection.
func (c *conn) serve() {
	defer close(c.done)
	defer c.hub.leave(c)
	defer c.acks.stop()
	if err := c.handshake(); err != nil {
		c.end(err)
		return
	}
	err := c.readLoop()
	_ = c.applied() // the hub takes leave of a connection once nothing more is applied of it
	c.end(err)
}

// end sees that the socket is closed, whoever began that.
func (c *conn) end(err error) {
	c.hub.Log.Debug("connection ended", "agent", c.name(), "remote", c.remote, "err", err)
	// The server itself never closes so. A write that failed meanwhile, since the agent was going, makes no difference.
	c.left = websocket.CloseStatus(err) == websocket.StatusNormalClosure
	c.close(wire.CloseGoingAway, "")
}

func (c *conn) readLoop() error {
	for {
		c.awaitRoom()
		m, size, err := c.next()
		if err != nil {
			return err
		}
		if c.isClosing() {
			return errClosed
		}
		if m != nil {
			if err := c.enqueue(m, size); err != nil {
				return err
			}
		}
		if err := c.throttle(m, size); err != nil {
			return err
		}
	}
}

// next reads and decodes one frame of a registered connection. A frame that is to be ignored gives nil.
func (c *conn) next() (wire.Message, int, error) {
	c.hear()
	c.busy.Store(false)
	m, size, err := c.read()
	c.busy.Store(true)
	c.hear()
	if err == nil {
		return m, size, nil
	}
	if ended := c.applied(); ended != nil { // what came before it counts
		return nil, size, ended
	}
	if invalid, ok := errors.AsType[*wire.InvalidError](err); ok {
		if invalid.Type == (wire.RunEvent{}).MessageType() || invalid.Type == (wire.JobContext{}).MessageType() {
			c.hub.Log.Debug("invalid frame dropped", "agent", c.name(), "err", err) // decoration, not worth a connection
			return nil, size, nil
		}
		c.hub.Log.Warn("invalid frame", "agent", c.name(), "err", err)
		c.answer(wire.ErrorFrame{Code: wire.CodeInvalidMessage, Message: wire.TextInvalidMessage})
		return nil, size, c.refuse(wire.CloseInvalid, wire.ReasonInvalid)
	}
	if unknown, ok := errors.AsType[*wire.UnknownTypeError](err); ok {
		c.hub.noteUnknown(unknown.Type, c.name())
		return nil, size, nil
	}
	if errors.Is(err, wire.ErrMalformed) {
		return nil, size, c.refuse(wire.CloseInvalid, wire.ReasonMalformed)
	}
	return nil, size, err
}

// refuse orders a close and gives the error with which the reader ends.
func (c *conn) refuse(code int, reason string) error {
	c.close(code, reason)
	return errRefused
}

// buffers are shared: a connection needs one only while a frame arrives.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled keeps one large frame from holding its memory for ever.
const maxPooled = 64 << 10

// read reads and decodes one frame, text or binary. Its errors are those of the decoder, of the socket, or errRefused.
func (c *conn) read() (wire.Message, int, error) {
	_, r, err := c.ws.Reader(c.hub.ctx)
	if err != nil {
		return nil, 0, err
	}
	c.hear()
	buf := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= maxPooled {
			buf.Reset()
			buffers.Put(buf)
		}
	}()
	limit := int64(c.hub.Settings.MaxMessage)
	n, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, 0, err
	}
	if n > limit {
		return nil, 0, c.refuse(wire.CloseInvalid, wire.ReasonTooLarge)
	}
	m, err := wire.DecodeFromAgent(buf.Bytes())
	return m, int(n), err
}

// throttle holds the reader back when the peer sends too fast; what it sends meanwhile waits in the network. A heartbeat
// is free.
func (c *conn) throttle(m wire.Message, size int) error {
	if _, ok := m.(wire.Heartbeat); ok {
		return nil
	}
	// The limiters run on the real clock, since the wait does.
	now := time.Now()
	wait := max(c.messages.ReserveN(now, 1).DelayFrom(now), c.bytes.ReserveN(now, size).DelayFrom(now))
	if wait <= 0 {
		c.throttled = time.Time{}
		return nil
	}
	if c.throttled.IsZero() {
		c.throttled = now
	}
	if now.Sub(c.throttled) > c.hub.Settings.ThrottleLimit {
		return c.refuse(wire.CloseInvalid, wire.ReasonRateLimit)
	}
	if !service.Sleep(c.hub.ctx, wait) {
		return context.Cause(c.hub.ctx)
	}
	return nil
}

// maxUnknown bounds the types that are remembered as logged. Beyond it unknown types are no longer logged at all.
const maxUnknown = 100

// noteUnknown logs an unknown message type once.
func (h *Hub) noteUnknown(typ, agent string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unknown[typ] || len(h.unknown) >= maxUnknown {
		return
	}
	h.unknown[typ] = true
	if len(typ) > 64 {
		typ = typ[:64]
	}
	h.Log.Info("unknown message type ignored", "type", typ, "agent", agent)
}
