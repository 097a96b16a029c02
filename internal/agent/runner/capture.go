package runner

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// maxCapture bounds what is kept of one stream of one command. The log and what it is piped to get all of it all the same.
const maxCapture = 16 << 20

// capture reads one stream of a command: it keeps the text, streams its lines to the step's log, and passes it on.
type capture struct {
	out   *outgoing
	step  int
	quiet bool // the log gets nothing
	drop  bool // nothing is kept
	piped bool // once nobody reads it any more the command is to hear of that

	reads atomic.Int64 // how often something came
	busy  atomic.Bool  // something came and is not yet taken

	turn  sync.Mutex // held while a chunk is dealt with
	sinks []io.WriteCloser
	over  bool
	line  []byte // begun and not ended

	mu   sync.Mutex
	kept []byte
	cut  bool
}

// newCapture makes the capture of a stream; mode is that of the stream in the spec.
func newCapture(out *outgoing, spec spawnSpec, mode string) *capture {
	return &capture{out: out, step: spec.StepIndex, quiet: spec.Quiet || mode == "ignore", drop: mode == "ignore" || mode == "inherit"}
}

// read takes the stream to its end. While the agent does not read the log, the stream is not read either and the
// command waits: output is never dropped here.
func (c *capture) read(r *os.File) {
	defer r.Close()
	defer c.end()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		c.busy.Store(true)
		c.reads.Add(1)
		wanted := c.take(buf[:n])
		c.busy.Store(false)
		if err != nil || !wanted { // io.EOF, or the pipe is no more
			return
		}
	}
}

// end logs a line that was begun, and tells those to whom the stream is passed on.
func (c *capture) end() {
	c.turn.Lock()
	defer c.turn.Unlock()
	if len(c.line) > 0 && !c.quiet {
		c.out.log(c.step, string(c.line))
	}
	c.over = true
	c.closeSinks()
}

func (c *capture) closeSinks() {
	for _, w := range c.sinks {
		w.Close()
	}
	c.sinks = nil
}

// attach passes the stream on to one more, from its beginning as far as that was kept.
func (c *capture) attach(w io.WriteCloser) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	kept := c.kept
	c.mu.Unlock()
	if _, err := w.Write(kept); err != nil || c.over {
		w.Close()
		return
	}
	c.sinks = append(c.sinks, w)
}

// take keeps a chunk, logs the lines that it completes and passes it on. It is false when a piped stream has no reader
// left.
func (c *capture) take(chunk []byte) (wanted bool) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.keep(chunk)
	had := len(c.sinks)
	c.sinks = slices.DeleteFunc(c.sinks, func(w io.WriteCloser) bool {
		_, err := w.Write(chunk)
		if err != nil {
			w.Close()
		}
		return err != nil
	})
	if !c.quiet {
		c.logLines(chunk)
	}
	return !c.piped || had == 0 || len(c.sinks) > 0
}

func (c *capture) keep(chunk []byte) {
	if c.drop {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	room := maxCapture - len(c.kept)
	c.kept = append(c.kept, chunk[:min(room, len(chunk))]...)
	c.cut = c.cut || len(chunk) > room
}

func (c *capture) logLines(chunk []byte) {
	var lines []string
	for {
		at := bytes.IndexByte(chunk, '\n')
		if at < 0 {
			break
		}
		c.line = append(c.line, chunk[:at]...)
		lines = append(lines, string(bytes.TrimSuffix(c.line, []byte("\r"))))
		c.line, chunk = c.line[:0], chunk[at+1:]
	}
	if c.line = append(c.line, chunk...); len(c.line) > maxOutLine {
		lines = append(lines, string(c.line))
		c.line = c.line[:0]
	}
	if len(lines) > 0 {
		c.out.log(c.step, lines...)
	}
}

// text gives what was kept so far, also while something in the background still writes; as bytes, too, where it is no
// text.
func (c *capture) text() (text string, raw []byte, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !utf8.Valid(c.kept) {
		raw = bytes.Clone(c.kept)
	}
	return strings.ToValidUTF8(string(c.kept), "\ufffd"), raw, c.cut
}
