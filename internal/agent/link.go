package agent

import (
	"context"
	"errors"
	"fmt"
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
	metricsEvery   = 30 * time.Second
)

// A server without frame-ack throws frames away that come faster than this, so the agent stays below: messages and
// bytes a second, and how much may come at once.
const (
	legacyMessages, legacyMessageBurst = 90, 150
	legacyBytes, legacyByteBurst       = 450 << 10, 1500 << 10
)

// refusedError is a refusal for good: the token or the identity of the agent is wrong, and no reconnect mends that.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return "the server refused this agent: " + e.reason }

// session is one registered connection.
type session struct {
	conn     *websocket.Conn
	ack      wire.RegisterAck
	pace     *pace // nil with a server that slows us down instead of losing frames
	fastBeat bool
}

// connectLoop keeps the agent connected until ctx ends or the server refuses it for good.
func (a *Agent) connectLoop(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		registered, err := a.connectOnce(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var refused *refusedError
		if errors.As(err, &refused) {
			return err
		}
		if registered {
			attempt = 0
		}
		pause := a.pause(attempt, rand.Float64())
		a.log.Warn("connection ended, connecting again", "err", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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
func (a *Agent) connectOnce(ctx context.Context) (registered bool, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	conn, _, err := websocket.Dial(dialCtx, a.cfg.OrchestratorURL, &websocket.DialOptions{HTTPClient: a.client})
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(wire.MaxFrame)
	ack, err := a.handshake(ctx, conn)
	if err != nil {
		return false, refusal(err)
	}
	s := &session{conn: conn, ack: ack, fastBeat: slices.Contains(ack.Features, wire.FeatureFastBeat)}
	if !slices.Contains(ack.Features, wire.FeatureFrameAck) {
		s.pace = newPace()
	}
	return true, refusal(a.serve(ctx, s))
}

// refusal turns the close code of a refusal into its error.
func refusal(err error) error {
	if code := websocket.CloseStatus(err); code == wire.CloseUnauthorized {
		var closed websocket.CloseError
		errors.As(err, &closed)
		return &refusedError{reason: closed.Reason}
	}
	return err
}

// handshake authenticates, where there is a token, and registers.
func (a *Agent) handshake(ctx context.Context, conn *websocket.Conn) (wire.RegisterAck, error) {
	if a.cfg.Token != "" {
		if err := a.write(ctx, conn, wire.AuthRequest{Token: a.cfg.Token, ProtocolVersion: wire.Version}); err != nil {
			return wire.RegisterAck{}, err
		}
		if _, err := awaitFrame[wire.AuthSuccess](ctx, conn); err != nil {
			return wire.RegisterAck{}, fmt.Errorf("authenticate: %w", err)
		}
	}
	if err := a.write(ctx, conn, a.registration()); err != nil {
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
			return want, &refusedError{reason: m.Reason}
		}
	}
}

func (a *Agent) write(ctx context.Context, conn *websocket.Conn, m wire.Message) error {
	raw, err := wire.Encode(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	return conn.Write(ctx, websocket.MessageText, raw)
}

// serve runs a registered connection until it ends. The reader runs here; the writer and the beat end with it.
func (a *Agent) serve(ctx context.Context, s *session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waiting := a.online(s)
	defer a.offline(s)
	a.log.Info("registered", "features", s.ack.Features, "replaying", waiting)
	var parts sync.WaitGroup
	for _, run := range []func(context.Context, *session) error{a.sendLoop, a.beatLoop, a.pingLoop, a.forwardLoop} {
		parts.Go(func() {
			cancel(run(ctx, s))
			_ = s.conn.CloseNow() // the reader notices
		})
	}
	err := a.readLoop(ctx, s)
	cancel(err)
	parts.Wait()
	if cause := context.Cause(ctx); websocket.CloseStatus(err) < 0 && cause != nil {
		return cause // why this side ended it says more than that reading failed
	}
	return err
}

func (a *Agent) readLoop(ctx context.Context, s *session) error {
	for {
		_, raw, err := s.conn.Read(ctx)
		if err != nil {
			return err
		}
		m, err := wire.DecodeFromServer(raw)
		if err != nil {
			a.badFrame(err)
			continue
		}
		if failure, ok := m.(wire.AuthFailure); ok {
			return &refusedError{reason: failure.Reason}
		}
		a.receive(ctx, s, m)
	}
}

// badFrame logs a frame that was not understood, an unknown type only once: the server may be newer than the agent.
func (a *Agent) badFrame(err error) {
	var unknown *wire.UnknownTypeError
	if errors.As(err, &unknown) {
		if _, seen := a.unknown.LoadOrStore(unknown.Type, true); seen {
			return
		}
	}
	a.log.Warn("frame ignored", "err", err)
}

// sendLoop writes what the ledger holds, in its order.
func (a *Agent) sendLoop(ctx context.Context, s *session) error {
	for {
		e, raw, err := a.ledger.Take(ctx)
		if err != nil {
			if e != nil { // unreadable on disk: nothing can bring it back
				a.log.Error("a frame is lost", "err", err)
				a.ledger.Answered(e.ID)
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
		a.ledger.Wrote(e)
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

// beatLoop sends the signs of life and the metrics.
func (a *Agent) beatLoop(ctx context.Context, s *session) error {
	beat, jobBeat := 30*time.Second, a.cfg.JobHeartbeat
	if s.fastBeat {
		beat, jobBeat = 5*time.Second, min(jobBeat, 10*time.Second)
	}
	beats, jobBeats, metrics := time.NewTicker(beat), time.NewTicker(jobBeat), time.NewTicker(metricsEvery)
	defer beats.Stop()
	defer jobBeats.Stop()
	defer metrics.Stop()
	a.beatJob(s) // the server learns at once that the job has outlived the connection
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beats.C:
			a.ledger.Send(ledger.KeepNot, wire.Heartbeat{Timestamp: time.Now().UnixMilli()})
		case <-jobBeats.C:
			a.beatJob(s)
		case <-metrics.C:
			a.sendMetrics()
		}
	}
}

// pingLoop notices a server that is gone without a word: nothing of the protocol is answered at all times.
func (a *Agent) pingLoop(ctx context.Context, s *session) error {
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

// newClient is the HTTP client of connections and downloads.
func newClient() *http.Client {
	return &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
}
