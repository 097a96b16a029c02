// Package link keeps an agent connected to its server: it dials, authenticates, registers, takes from the ledger what is to
// be sent, and hands over what comes.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
)

// Time limits of a connection.
const (
	handshakeLimit = 10 * time.Second // for each answer of the handshake
	writeLimit     = 60 * time.Second // for one frame; a server may delay its reading, but not for ever
	pingEvery      = 30 * time.Second
)

// A server without frame-ack throws frames away that come faster than this, so the agent stays below: messages and
// bytes a second, and how much may come at once.
const (
	legacyMessages, legacyMessageBurst = 90, 150
	legacyBytes, legacyByteBurst       = 450 << 10, 1500 << 10
)

// RefusedError is a refusal for good: the token or the identity of the agent is wrong, and no reconnect mends that.
type RefusedError struct{ reason string }

func (e *RefusedError) Error() string { return "the server refused this agent: " + e.reason }

// Link is the agent's side of its connections, of which there is one at a time.
type Link struct {
	URL, Token string // Token is "" where the server asks for none
	Client     *http.Client
	Ledger     *ledger.Ledger
	Log        *slog.Logger
	Pause      func(attempt int, chance float64) time.Duration // before connecting again; nil for the usual one

	Register func() wire.AgentRegister                     // makes the frame with which each connection begins
	Online   func(*Session) (waiting int)                  // a connection has been registered; how many frames wait for it
	Offline  func(*Session)                                // it has ended
	Receive  func(context.Context, *Session, wire.Message) // runs in the reader, so it may not take long
	Loops    []func(context.Context, *Session) error       // run as long as a connection; the end of one ends it

	unknown sync.Map // types of frames already complained about
}

// Session is one registered connection.
type Session struct {
	Ack  wire.RegisterAck
	conn *websocket.Conn
	pace *pace // nil with a server that slows us down instead of losing frames
}

// Has tells whether the server has the feature.
func (s *Session) Has(feature string) bool { return slices.Contains(s.Ack.Features, feature) }

// Close ends the connection in the agreed way.
func (s *Session) Close() { _ = s.conn.Close(wire.CloseNormal, wire.ReasonAgentLeaves) }

// Run keeps the agent connected until ctx ends or the server refuses it for good.
func (l *Link) Run(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		registered, err := l.connectOnce(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var refused *RefusedError
		if errors.As(err, &refused) {
			return err
		}
		if registered {
			attempt = 0
		}
		pause := l.pause(attempt)
		l.Log.Warn("connection ended, connecting again", "err", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *Link) pause(attempt int) time.Duration {
	if l.Pause == nil {
		return reconnectPause(attempt, rand.Float64())
	}
	return l.Pause(attempt, rand.Float64())
}

// reconnectPause grows by half with each failure up to a minute; chance spreads the agents of a restarted server.
func reconnectPause(attempt int, chance float64) time.Duration {
	pause := float64(time.Second)
	for range min(attempt, 20) {
		pause *= 1.5
	}
	return time.Duration(min(pause*(1+chance*0.5), float64(time.Minute)))
}

// connectOnce dials, registers and serves one connection. registered tells whether it came so far.
func (l *Link) connectOnce(ctx context.Context) (registered bool, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	conn, _, err := websocket.Dial(dialCtx, l.URL, &websocket.DialOptions{HTTPClient: l.Client})
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(wire.MaxFrame)
	ack, err := l.handshake(ctx, conn)
	if err != nil {
		return false, refusal(err)
	}
	s := &Session{conn: conn, Ack: ack}
	if !s.Has(wire.FeatureFrameAck) {
		s.pace = newPace()
	}
	return true, refusal(l.serve(ctx, s))
}

// refusal turns the close code of a refusal into its error.
func refusal(err error) error {
	if code := websocket.CloseStatus(err); code == wire.CloseUnauthorized {
		var closed websocket.CloseError
		errors.As(err, &closed)
		return &RefusedError{reason: closed.Reason}
	}
	return err
}

// handshake authenticates, where there is a token, and registers.
func (l *Link) handshake(ctx context.Context, conn *websocket.Conn) (wire.RegisterAck, error) {
	if l.Token != "" {
		if err := l.write(ctx, conn, wire.AuthRequest{Token: l.Token, ProtocolVersion: wire.Version}); err != nil {
			return wire.RegisterAck{}, err
		}
		if _, err := awaitFrame[wire.AuthSuccess](ctx, conn); err != nil {
			return wire.RegisterAck{}, fmt.Errorf("authenticate: %w", err)
		}
	}
	if err := l.write(ctx, conn, l.Register()); err != nil {
		return wire.RegisterAck{}, err
	}
	ack, err := awaitFrame[wire.RegisterAck](ctx, conn)
	if err != nil {
		return ack, fmt.Errorf("register: %w", err)
	}
	return ack, nil
}

// awaitFrame reads until a frame of the wanted type comes; what else a server may send before it is passed over.
func awaitFrame[M wire.Message](ctx context.Context, conn *websocket.Conn) (want M, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	for {
		_, raw, err := conn.Read(ctx)
		if err != nil {
			return want, err
		}
		m, err := wire.DecodeFromServer(raw)
		if err != nil {
			continue
		}
		switch m := m.(type) {
		case M:
			return m, nil
		case wire.AuthFailure:
			return want, &RefusedError{reason: m.Reason}
		}
	}
}

func (l *Link) write(ctx context.Context, conn *websocket.Conn, m wire.Message) error {
	raw, err := wire.Encode(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	return conn.Write(ctx, websocket.MessageText, raw)
}

// serve runs a registered connection until it ends. The reader runs here; the writer and the beat end with it.
func (l *Link) serve(ctx context.Context, s *Session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waiting := l.Online(s)
	defer l.Offline(s)
	l.Log.Info("registered", "features", s.Ack.Features, "replaying", waiting)
	var parts sync.WaitGroup
	for _, run := range append([]func(context.Context, *Session) error{l.sendLoop, l.pingLoop}, l.Loops...) {
		parts.Go(func() {
			cancel(run(ctx, s))
			_ = s.conn.CloseNow() // the reader notices
		})
	}
	err := l.readLoop(ctx, s)
	cancel(err)
	parts.Wait()
	if cause := context.Cause(ctx); websocket.CloseStatus(err) < 0 && cause != nil {
		return cause // why this side ended it says more than that reading failed
	}
	return err
}

func (l *Link) readLoop(ctx context.Context, s *Session) error {
	for {
		_, raw, err := s.conn.Read(ctx)
		if err != nil {
			return err
		}
		m, err := wire.DecodeFromServer(raw)
		if err != nil {
			l.badFrame(err)
			continue
		}
		if failure, ok := m.(wire.AuthFailure); ok {
			return &RefusedError{reason: failure.Reason}
		}
		l.Receive(ctx, s, m)
	}
}

// badFrame logs a frame that was not understood, an unknown type only once: the server may be newer than the agent.
func (l *Link) badFrame(err error) {
	var unknown *wire.UnknownTypeError
	if errors.As(err, &unknown) {
		if _, seen := l.unknown.LoadOrStore(unknown.Type, true); seen {
			return
		}
	}
	l.Log.Warn("frame ignored", "err", err)
}

// sendLoop writes what the ledger holds, in its order.
func (l *Link) sendLoop(ctx context.Context, s *Session) error {
	for {
		e, raw, err := l.Ledger.Take(ctx)
		if err != nil {
			if e != nil { // unreadable on disk: nothing can bring it back
				l.Log.Error("a frame is lost", "err", err)
				l.Ledger.Answered(e.ID)
				continue
			}
			return err
		}
		if s.pace != nil && e.Keep != ledger.KeepNot {
			if err := s.pace.wait(ctx, len(raw)); err != nil {
				return err
			}
		}
		writeCtx, cancel := context.WithTimeout(ctx, writeLimit)
		err = s.conn.Write(writeCtx, websocket.MessageText, raw)
		cancel()
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		l.Ledger.Wrote(e)
	}
}

// pace keeps below the limits of a server that drops what exceeds them.
type pace struct{ messages, bytes *rate.Limiter }

func newPace() *pace {
	return &pace{
		messages: rate.NewLimiter(legacyMessages, legacyMessageBurst),
		bytes:    rate.NewLimiter(legacyBytes, legacyByteBurst),
	}
}

func (p *pace) wait(ctx context.Context, size int) error {
	if err := p.messages.Wait(ctx); err != nil {
		return err
	}
	return p.bytes.WaitN(ctx, min(size, legacyByteBurst)) // a larger frame waits for the full burst
}

// pingLoop notices a server that is gone without a word: nothing of the protocol is answered at all times.
func (l *Link) pingLoop(ctx context.Context, s *Session) error {
	pings := time.NewTicker(pingEvery)
	defer pings.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pings.C:
			pingCtx, cancel := context.WithTimeout(ctx, 2*pingEvery)
			err := s.conn.Ping(pingCtx)
			cancel()
			if err != nil {
				return fmt.Errorf("the server does not answer: %w", err)
			}
		}
	}
}
