package servertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coder/websocket"

	"kici/internal/core/wire"
)

// peerLimit bounds the wait for one frame.
const peerLimit = 20 * time.Second

// peerBacklog is how many frames a peer keeps for a test that does not read them yet. Beyond it the peer stops reading.
const peerBacklog = 1024

// Peer is one connection to a server's agent endpoint, driven frame by frame.
type Peer struct {
	t      testing.TB
	conn   *websocket.Conn
	frames chan []byte
	ended  chan struct{} // closed with the connection, after err is set
	err    error
}

// Dial connects to the newest server. The connection is cut when the test ends.
func (h *Home) Dial(t testing.TB) *Peer {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), h.AgentURL(), &websocket.DialOptions{CompressionMode: websocket.CompressionDisabled})
	must(t, err)
	conn.SetReadLimit(wire.MaxFrame)
	p := &Peer{t: t, conn: conn, frames: make(chan []byte, peerBacklog), ended: make(chan struct{})}
	go p.read()
	t.Cleanup(p.Cut)
	return p
}

// read keeps reading, so that pongs and closes are seen without a test asking for them.
func (p *Peer) read() {
	defer close(p.frames)
	defer close(p.ended)
	for {
		_, raw, err := p.conn.Read(context.Background())
		if err != nil {
			p.err = err
			return
		}
		p.frames <- raw
	}
}

// Send writes a frame.
func (p *Peer) Send(m wire.Message) {
	p.t.Helper()
	raw, err := wire.Encode(m)
	must(p.t, err)
	p.SendRaw(raw)
}

// SendRaw writes a frame as it is.
func (p *Peer) SendRaw(raw []byte) {
	p.t.Helper()
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, raw); err != nil {
		p.t.Fatalf("send: %v (%s)", err, p.ending())
	}
}

// Next gives the next frame. The test fails when the connection ends instead.
func (p *Peer) Next() wire.Message {
	p.t.Helper()
	m, err := wire.DecodeFromServer(p.NextRaw())
	must(p.t, err)
	return m
}

// NextRaw gives the next frame as it came. The test fails when the connection ends instead.
func (p *Peer) NextRaw() []byte {
	p.t.Helper()
	select {
	case raw, ok := <-p.frames:
		if !ok {
			p.t.Fatalf("the connection ended: %s", p.ending())
		}
		return raw
	case <-time.After(peerLimit):
		p.t.Fatal("no frame came")
	}
	return nil
}

// Take waits for the next frame until ctx ends or the connection does. Unlike Next it may be called from any goroutine.
func (p *Peer) Take(ctx context.Context) (wire.Message, bool) {
	select {
	case raw, ok := <-p.frames:
		if !ok {
			return nil, false
		}
		m, err := wire.DecodeFromServer(raw)
		if err != nil {
			p.t.Errorf("frame of the server: %v", err)
			return nil, false
		}
		return m, true
	case <-ctx.Done():
		return nil, false
	}
}

// Reached tells whether a frame has come that was not read.
func (p *Peer) Reached() bool { return len(p.frames) > 0 }

// Rest gives the frames that have come and were not read. Call it after Settle or Ending.
func (p *Peer) Rest() (rest []wire.Message) {
	p.t.Helper()
	for _, raw := range p.RestRaw() {
		m, err := wire.DecodeFromServer(raw)
		must(p.t, err)
		rest = append(rest, m)
	}
	return rest
}

// RestRaw is Rest with the frames as they came.
func (p *Peer) RestRaw() (rest [][]byte) {
	for {
		select {
		case raw, ok := <-p.frames:
			if !ok {
				return rest
			}
			rest = append(rest, raw)
		default:
			return rest
		}
	}
}

// Settle returns when the server has applied every frame sent so far: it answers a ping in its turn.
func (p *Peer) Settle() {
	p.t.Helper()
	if err := p.ping(); err != nil {
		p.t.Fatalf("the server does not answer: %v (%s)", err, p.ending())
	}
}

// SettleUnlessEnded is Settle for a connection that the server may have closed.
func (p *Peer) SettleUnlessEnded() {
	p.t.Helper()
	err := p.ping()
	if err == nil {
		return
	}
	select {
	case <-p.ended:
	case <-time.After(peerLimit):
		p.t.Fatalf("the server does not answer: %v", err)
	}
}

func (p *Peer) ping() error {
	ctx, cancel := context.WithTimeout(p.t.Context(), peerLimit)
	defer cancel()
	return p.conn.Ping(ctx)
}

// Ending waits until the connection has ended and gives the code and reason of the server's close.
func (p *Peer) Ending() (code int, reason string) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(peerLimit):
		p.t.Fatal("the connection goes on")
	}
	if e, ok := errors.AsType[websocket.CloseError](p.err); ok {
		return int(e.Code), e.Reason
	}
	return int(websocket.StatusAbnormalClosure), fmt.Sprint(p.err)
}

// ending describes the end for a failure, where there was one.
func (p *Peer) ending() string {
	select {
	case <-p.ended:
		return fmt.Sprint(p.err)
	default:
		return "it is open"
	}
}

// Leave closes the connection as an agent that goes.
func (p *Peer) Leave() {
	_ = p.conn.Close(websocket.StatusNormalClosure, wire.ReasonAgentLeaves) // the server may have closed it before
}

// Cut ends the connection without a word, as the death of the agent does.
func (p *Peer) Cut() {
	_ = p.conn.CloseNow() // it is closed then, whatever it says
}

// Hello registers the peer as that agent with the home's token.
func (p *Peer) Hello(h *Home, register wire.AgentRegister) wire.RegisterAck {
	p.t.Helper()
	p.Send(wire.AuthRequest{Token: h.Token, ProtocolVersion: wire.Version})
	if m, ok := p.Next().(wire.AuthSuccess); !ok {
		p.t.Fatalf("answer to the token: %#v", m)
	}
	if register.MessageID == "" {
		register.MessageID = "register"
	}
	p.Send(register)
	ack, ok := p.Next().(wire.RegisterAck)
	if !ok {
		p.t.Fatalf("answer to the registration: %#v", ack)
	}
	return ack
}
