package chaos

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// link is a loopback address behind which stands one of the servers, with a line between them that can be disturbed. A
// connection goes to a server that accepts it and stays there.
type link struct {
	listener net.Listener
	servers  func() []string // addresses to try, in order
	witness  *witness        // nil for a line on which nobody reads along
	done     sync.WaitGroup

	mu      sync.Mutex
	lines   map[*line]struct{}
	stall   chan struct{} // closed when the line moves again; nil while it does
	swallow bool
	trap    *trap // nil when none is laid
	closed  bool
}

// trap cuts a line at a frame of its choice: before it has passed, or behind it.
type trap struct {
	frame  string
	lost   bool
	sprung chan string // is told the server's address, once
}

// line is one connection and its way on.
type line struct{ near, far *net.TCPConn }

// dialTime bounds the attempt to reach a server. A stopped one accepts all the same: the kernel does it for it.
const dialTime = time.Second

// openLink begins to listen.
func openLink(servers func() []string, w *witness) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a loopback address: %w", err)
	}
	l := &link{listener: listener, servers: servers, witness: w, lines: map[*line]struct{}{}}
	l.done.Go(l.accept)
	return l, nil
}

// address is host and port.
func (l *link) address() string { return l.listener.Addr().String() }

// close ends the link and every connection, and returns when nothing of it is left.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	_ = l.listener.Close() // accept ends with it
	l.calm()
	l.cut()
	l.done.Wait()
}

func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.done.Go(func() { l.serve(conn.(*net.TCPConn)) })
	}
}

func (l *link) serve(near *net.TCPConn) {
	far := l.reach()
	if far == nil {
		abort(near)
		return
	}
	one := &line{near: near, far: far}
	if !l.enter(one) {
		abort(near)
		abort(far)
		return
	}
	up, down := deaf, deaf
	if l.witness != nil {
		talk := l.witness.listen()
		up, down = talk.agentSays, talk.serverSays
	}
	var both sync.WaitGroup
	both.Go(func() { l.carry(one, near, far, up) })
	both.Go(func() { l.carry(one, far, near, down) })
	both.Wait()
	l.leave(one)
	abort(near)
	abort(far)
}

func (l *link) reach() *net.TCPConn {
	for _, address := range l.servers() {
		if conn, err := net.DialTimeout("tcp", address, dialTime); err == nil {
			return conn.(*net.TCPConn)
		}
	}
	return nil
}

func (l *link) enter(one *line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.lines[one] = struct{}{}
	return true
}

func (l *link) leave(one *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lines, one)
}

// deaf names no frame.
func deaf([]byte) string { return "" }

// carry copies one direction until it ends, and passes the end on. name names the frames that go by.
func (l *link) carry(one *line, from, to *net.TCPConn, name func(text []byte) (frame string)) {
	var caught *trap
	seen := &frames{dull: l.witness == nil, message: func(text []byte) {
		if frame := name(text); caught == nil {
			caught = l.spring(one, frame)
		}
	}}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			seen.feed(buf[:n])
			if l.gate() {
				continue
			}
			if !pass(to, buf[:n], caught) {
				l.sever(one)
				return
			}
		}
		if err != nil {
			_ = to.CloseWrite() // the other direction may go on
			return
		}
	}
}

// pass writes what was read, unless a trap holds it back, and tells whether the line goes on.
func pass(to *net.TCPConn, p []byte, caught *trap) bool {
	if caught != nil && caught.lost {
		return false
	}
	_, err := to.Write(p)
	return err == nil && caught == nil
}

// spring gives the trap that was laid for such a frame, and takes it away.
func (l *link) spring(one *line, frame string) *trap {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.trap
	if t == nil || t.frame != frame {
		return nil
	}
	l.trap = nil
	t.sprung <- one.far.RemoteAddr().String()
	return t
}

// lay sets a trap, in place of one that was set before. Its channel is told when it springs.
func (l *link) lay(frame string, lost bool) <-chan string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trap = &trap{frame: frame, lost: lost, sprung: make(chan string, 1)}
	return l.trap.sprung
}

// gate waits while the link is stalled, and tells whether what was read is lost.
func (l *link) gate() (lost bool) {
	l.mu.Lock()
	stall, lost := l.stall, l.swallow
	l.mu.Unlock()
	if stall != nil {
		<-stall
	}
	return lost
}

// sever ends one connection at once.
func (l *link) sever(one *line) {
	abort(one.near)
	abort(one.far)
}

// abort closes a connection with a reset, as a crash does.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // of no effect on one that is closed
	_ = conn.Close()
}

// cut ends every connection with a reset.
func (l *link) cut() { l.each(l.sever) }

// halfClose ends one direction of every connection: the server hears no more of the agent, or the agent of the server.
func (l *link) halfClose(towardsServer bool) {
	l.each(func(one *line) {
		if towardsServer {
			_ = one.far.CloseWrite() // of no effect on one that has ended
		} else {
			_ = one.near.CloseWrite()
		}
	})
}

func (l *link) each(do func(*line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.lines {
		do(one)
	}
}

// hold stops the bytes on their way until calm.
func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stall == nil {
		l.stall = make(chan struct{})
	}
}

// lose lets every byte vanish until calm, which must be followed by a cut.
func (l *link) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swallow = true
}

// calm ends hold and lose, and takes a trap away.
func (l *link) calm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stall != nil {
		close(l.stall)
		l.stall = nil
	}
	l.swallow, l.trap = false, nil
}
