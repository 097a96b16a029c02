package hub

import (
	"context"
	"errors"
	"fmt"

	"github.com/coder/websocket"

	"kici/internal/core/wire"
)

// Bounds of what waits to be written to one connection. The reader stops at half of them, so only a flood of cancels to
// a peer that does not read reaches them; such a connection is cut, and its agent gets on its return what it missed.
const (
	maxOutboundFrames = 1024
	maxOutboundBytes  = 64 << 20
)

// errClosed says that a connection takes no more frames.
var errClosed = errors.New("connection is closed")

// outbound is a frame to write, or with raw nil the close that ends the connection.
type outbound struct {
	raw    []byte
	code   int
	reason string
}

// send queues a frame. It never waits. An error means that the connection is gone or going.
func (c *conn) send(m wire.Message) error {
	raw, err := wire.Encode(m)
	if err != nil {
		return err
	}
	c.out.Lock()
	defer c.out.Unlock()
	if c.closing {
		return errClosed
	}
	if len(c.queue) >= maxOutboundFrames || c.queued+len(raw) > maxOutboundBytes {
		c.closing = true
		c.room.Broadcast()
		c.hub.Log.Warn("agent does not read, connection cut", "agent", c.name(), "frames", len(c.queue))
		c.hub.open.Go(c.cut)
		return fmt.Errorf("send %s: %w", m.MessageType(), errClosed)
	}
	c.queued += len(raw)
	c.pushLocked(outbound{raw: raw})
	return nil
}

// answer queues a frame whose loss does no harm beyond that of the connection itself.
func (c *conn) answer(m wire.Message) {
	if err := c.send(m); err != nil && !errors.Is(err, errClosed) {
		c.hub.Log.Error("frame not sent", "agent", c.name(), "type", m.MessageType(), "err", err)
	}
}

// close ends the connection once everything queued before has been written. Frames that arrive from now on are not
// applied. The first close counts.
func (c *conn) close(code int, reason string) {
	c.out.Lock()
	defer c.out.Unlock()
	if c.closing {
		return
	}
	c.closing = true
	c.room.Broadcast()
	c.pushLocked(outbound{code: code, reason: wire.CloseReason(reason)})
}

func (c *conn) isClosing() bool {
	c.out.Lock()
	defer c.out.Unlock()
	return c.closing
}

// pushLocked appends to the queue and sees that somebody writes it. The writer lives only while there is something to
// write: ten thousand idle connections have none.
func (c *conn) pushLocked(o outbound) {
	c.queue = append(c.queue, o)
	if !c.writing {
		c.writing = true
		c.hub.work(c.write)
	}
}

// write is the one writer of the connection. It ends when the queue is empty.
func (c *conn) write() {
	for {
		c.out.Lock()
		batch := c.queue
		c.queue, c.queued = nil, 0
		if len(batch) == 0 {
			c.writing = false
			c.out.Unlock()
			return
		}
		c.room.Broadcast()
		c.out.Unlock()
		for _, o := range batch {
			if !c.writeOne(o) {
				return
			}
		}
	}
}

// writeOne writes a frame and reports whether another may follow.
func (c *conn) writeOne(o outbound) bool {
	if o.raw == nil {
		// An error means that the peer did not answer the close or was gone before; the connection has ended anyway.
		_ = c.ws.Close(websocket.StatusCode(o.code), o.reason)
		return false
	}
	ctx, cancel := context.WithTimeout(c.hub.ctx, c.hub.Settings.WriteTimeout)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, o.raw); err != nil {
		c.hub.Log.Debug("connection not writable", "agent", c.name(), "err", err)
		c.shut()
		c.cut()
		return false
	}
	return true
}

// shut lets no further frame in or out.
func (c *conn) shut() {
	c.out.Lock()
	defer c.out.Unlock()
	c.closing = true
	c.room.Broadcast()
}

// cut ends the connection at once.
func (c *conn) cut() {
	_ = c.ws.CloseNow() // it is closed then, whatever it says
}

// awaitRoom holds up the reader while the peer does not take what it is answered. The writer gives up on a peer that
// does not read, so the wait ends.
func (c *conn) awaitRoom() {
	c.out.Lock()
	defer c.out.Unlock()
	for !c.closing && (len(c.queue) > maxOutboundFrames/2 || c.queued > maxOutboundBytes/2) {
		c.room.Wait()
	}
}
