package chaos

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// pipe is a link with one connection through it.
type pipe struct {
	*link
	near net.Conn // the caller's end
	far  net.Conn // the server's end
}

func newPipe(t *testing.T) pipe {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	l, err := openLink(func() []string { return []string{"127.0.0.1:1", server.Addr().String()} }, &witness{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	p := pipe{link: l}
	if p.near, err = net.Dial("tcp", l.address()); err != nil {
		t.Fatal(err)
	}
	if p.far, err = server.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.near.Close(); p.far.Close() })
	p.pass(t, p.near, p.far) // both directions are up
	p.pass(t, p.far, p.near)
	return p
}

// pass sends a line through.
func (p pipe) pass(t *testing.T, from, to net.Conn) {
	t.Helper()
	if _, err := io.WriteString(from, "ping\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(to).ReadString('\n'); err != nil || line != "ping\n" {
		t.Fatalf("came through: %q, %v", line, err)
	}
}

func TestALineThatIsCutEndsForBoth(t *testing.T) {
	p := newPipe(t)
	p.cut()
	for _, end := range []net.Conn{p.near, p.far} {
		if _, err := end.Read(make([]byte, 1)); err == nil {
			t.Error("still open")
		}
	}
}

func TestALineThatIsHeldMovesAgain(t *testing.T) {
	p := newPipe(t)
	p.hold()
	if _, err := io.WriteString(p.near, "held\n"); err != nil {
		t.Fatal(err)
	}
	_ = p.far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := p.far.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("%d bytes came through a line that is held", n)
	}
	_ = p.far.SetReadDeadline(time.Time{})
	p.calm()
	if line, err := bufio.NewReader(p.far).ReadString('\n'); err != nil || line != "held\n" {
		t.Errorf("came through: %q, %v", line, err)
	}
}

func TestALineThatLosesGoesOnBehindTheGap(t *testing.T) {
	p := newPipe(t)
	p.lose()
	if _, err := io.WriteString(p.near, "lost\n"); err != nil {
		t.Fatal(err)
	}
	_ = p.far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := p.far.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("%d bytes came through a line that loses them", n)
	}
	_ = p.far.SetReadDeadline(time.Time{})
	p.calm()
	p.pass(t, p.near, p.far)
}

func TestALineThatIsHalfClosedGoesOnInTheOtherDirection(t *testing.T) {
	for _, towardsServer := range []bool{false, true} {
		p := newPipe(t)
		deaf, other := p.near, p.far
		if towardsServer {
			deaf, other = p.far, p.near
		}
		p.halfClose(towardsServer)
		if _, err := deaf.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("towards the server %v: read %v, want the end", towardsServer, err)
		}
		p.pass(t, deaf, other)
	}
}

// A real client and a real server speak through a link; the server acknowledges one line by its own message, two more by
// one for all, and never the last.
func TestTheWitnessNotesWhatTheServerAcknowledges(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(wire.MaxFrame)
		var ids []string
		for range 6 {
			_, raw, err := conn.Read(r.Context())
			if err != nil {
				t.Error(err)
				return
			}
			switch m := must(wire.DecodeFromAgent(raw)).(type) {
			case wire.LogChunk:
				ids = append(ids, m.MessageID)
			case wire.JobStatus:
				ids = append(ids, m.MessageID)
			}
		}
		for _, ack := range []wire.Ack{{MessageID: ids[0]}, {MessageID: ids[2], Through: true}, {MessageID: ids[4]}, {MessageID: "unknown"}} {
			if err := conn.Write(r.Context(), websocket.MessageText, must(wire.Encode(ack))); err != nil {
				t.Error(err)
			}
		}
	}))
	defer server.Close()
	w := &witness{}
	l, err := openLink(func() []string { return []string{strings.TrimPrefix(server.URL, "http://")} }, w)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	conn, _, err := websocket.Dial(t.Context(), "ws://"+l.address(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	say(t, conn, wire.AgentRegister{MessageID: "r", AgentID: "agent-1", Labels: []string{}, Platform: "linux", Arch: "x64", MaxConcurrency: 1})
	for i, line := range []string{"one", "two", "three", strings.Repeat("long ", 20_000)} {
		say(t, conn, wire.LogChunk{MessageID: string(rune('a' + i)), RunID: "run", JobID: "job", StepIndex: 1, Lines: []string{line}, Timestamp: 1})
	}
	say(t, conn, wire.JobStatus{MessageID: "e", RunID: "run", JobID: "job", State: ci.JobSuccess, Timestamp: 1})
	for range 4 {
		if _, _, err := conn.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	key := stepKey{"job", 1}
	want := ackedFacts{Lines: []ackedLine{{stepKey: key, Agent: "agent-1", Text: "one"}, {stepKey: key, Agent: "agent-1", Text: "two"}, {stepKey: key, Agent: "agent-1", Text: "three"}},
		Ends: []ackedEnd{{Job: "job", Agent: "agent-1", Status: ci.JobSuccess}}}
	if diff := cmp.Diff(want, w.seen(), cmp.AllowUnexported(ackedLine{}), cmpopts.IgnoreFields(ackedLine{}, "Sent", "At"), cmpopts.IgnoreFields(ackedEnd{}, "At")); diff != "" {
		t.Error(diff)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func say(t *testing.T, conn *websocket.Conn, m wire.Message) {
	t.Helper()
	if err := conn.Write(context.Background(), websocket.MessageText, must(wire.Encode(m))); err != nil {
		t.Fatal(err)
	}
}

// However the bytes are cut up on their way, the same messages are read.
func FuzzFrames(f *testing.F) {
	hello := "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"
	f.Add([]byte(hello+"\x81\x02hi\x01\x01a\x80\x01b\x89\x00\x81\x82\x01\x02\x03\x04ik"), 3)
	f.Add([]byte("HTTP/1.1 404 Not Found\r\n\r\nnothing"), 1)
	f.Add([]byte(hello+"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff"), 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		var whole, pieces []string
		a := &frames{message: func(text []byte) { whole = append(whole, string(text)) }}
		a.feed(data)
		b := &frames{message: func(text []byte) { pieces = append(pieces, string(text)) }}
		for step := max(cut%64, 1); len(data) > 0; {
			n := min(step, len(data))
			b.feed(data[:n])
			data = data[n:]
		}
		if diff := cmp.Diff(whole, pieces); diff != "" {
			t.Error(diff)
		}
	})
}

// A trap springs at the first frame of its kind: the frame is lost, or it is the last that passes.
func TestATrapCutsTheLineAtItsFrame(t *testing.T) {
	for _, lost := range []bool{true, false} {
		got := make(chan wire.Message, 10)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(got)
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.CloseNow()
			for {
				_, raw, err := conn.Read(r.Context())
				if err != nil {
					return
				}
				got <- must(wire.DecodeFromAgent(raw))
			}
		}))
		defer server.Close()
		address := strings.TrimPrefix(server.URL, "http://")
		l, err := openLink(func() []string { return []string{address} }, &witness{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		conn, _, err := websocket.Dial(t.Context(), "ws://"+l.address(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		sprung := l.lay(frameEnd, lost)
		say(t, conn, wire.JobStatus{MessageID: "a", RunID: "run", JobID: "job", State: ci.JobRunning, Timestamp: 1})
		if m := <-got; m.(wire.JobStatus).MessageID != "a" {
			t.Fatalf("came through: %v", m)
		}
		say(t, conn, wire.JobStatus{MessageID: "b", RunID: "run", JobID: "job", State: ci.JobSuccess, Timestamp: 1})
		if at := <-sprung; at != address {
			t.Errorf("sprang towards %s, not %s", at, address)
		}
		if _, _, err := conn.Read(t.Context()); err == nil {
			t.Error("the line is not cut")
		}
		if _, passed := <-got; passed == lost {
			t.Errorf("lost %v: the frame has passed: %v", lost, passed)
		}
	}
}
