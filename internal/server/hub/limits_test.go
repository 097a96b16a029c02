package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
)

func TestLargeMessages(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	p.send(chunk("j", 0, "1", strings.Repeat("x", 4<<20-200))) // above what the reference takes at once
	p.settle()
	if got := len(b.logs.lines()[0]); got != 4<<20-200 {
		t.Errorf("stored %d bytes", got)
	}
	p.send(chunk("j", 0, "2", strings.Repeat("x", 4<<20)))
	p.expectClose(wire.CloseInvalid, "Message too large")
}

func TestAFastPeerIsReadMoreSlowlyAndLosesNothing(t *testing.T) {
	b := newBench(t, func(d *Deps) { d.Settings.MessageRate, d.Settings.MessageBurst = 2000, 10 })
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	for i := range 200 {
		p.send(chunk("j", 0, fmt.Sprint(i), fmt.Sprint(i)))
	}
	p.settle()
	lines := b.logs.lines()
	for i, line := range lines {
		if line != fmt.Sprint(i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	if len(lines) != 200 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestAPeerThatIsTooFastForTooLongIsClosed(t *testing.T) {
	b := newBench(t, func(d *Deps) {
		// One message in a quarter of an hour, and no time at all for being slowed down.
		d.Settings.MessageRate, d.Settings.MessageBurst, d.Settings.ThrottleLimit = 0.001, 1, -1
	})
	p, _ := b.join(t, agent("a"))
	for range 20 {
		p.send(wire.Heartbeat{Timestamp: 1}) // free
	}
	for i := range 2 {
		p.send(wire.AgentStatus{MessageID: fmt.Sprint(i), AgentID: "a"})
	}
	p.expectClose(wire.CloseInvalid, "Sustained rate limit violation")
}

func TestAPeerThatDoesNotReadHarmsNobody(t *testing.T) {
	b := newBench(t, noAuth, func(d *Deps) { d.Settings.WriteTimeout = 100 * time.Millisecond })
	deaf, _ := b.join(t, agent("deaf"))
	deaf.settle()
	other, _ := b.join(t, agent("other"))
	id := b.connectionID(t, "deaf")
	big := wire.JobCancel{MessageID: "m", Reason: strings.Repeat("x", 1<<20)}
	for range maxOutboundFrames + 8 { // more than sockets and queue hold
		if !b.Send("deaf", big) {
			break
		}
	}
	b.awaitGone(t, id)
	b.engine.await(t, "lost deaf "+id)
	other.settle()
	if got := ready(b); !cmp.Equal(got, []string{"other"}) {
		t.Errorf("ready: %q", got)
	}
}
