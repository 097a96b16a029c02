package chaos

import (
	"bytes"
	"encoding/binary"
)

// maxKept bounds what is kept of one direction of a connection. Nothing on these wires is nearly as large.
const maxKept = 64 << 20

// frames reads WebSocket messages out of one direction of a connection as its bytes pass by, from the HTTP request or
// answer on. It is a witness only: what it does not understand it passes over.
type frames struct {
	// message is told of every text message.
	message func(text []byte)

	buf      []byte
	upgraded bool
	dull     bool // nothing more is to be read here
	partial  []byte
}

// feed takes the next bytes.
func (f *frames) feed(p []byte) {
	if f.dull {
		return
	}
	f.buf = append(f.buf, p...)
	if !f.upgraded && !f.skipHead() {
		return
	}
	for f.next() {
	}
	if len(f.buf)+len(f.partial) > maxKept {
		f.dull, f.buf, f.partial = true, nil, nil
	}
}

// skipHead passes over the HTTP head and reports whether WebSocket frames follow.
func (f *frames) skipHead() bool {
	head, rest, ok := bytes.Cut(f.buf, []byte("\r\n\r\n"))
	if !ok {
		return false
	}
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	if bytes.HasPrefix(line, []byte("HTTP/")) && !bytes.Contains(line, []byte(" 101 ")) {
		f.dull, f.buf = true, nil
		return false
	}
	f.buf, f.upgraded = rest, true
	return true
}

// next takes one frame from the buffer and reports whether there was a whole one.
func (f *frames) next() bool {
	payload, final, opcode, size := parseFrame(f.buf)
	if size == 0 {
		return false
	}
	const continuation, text = 0, 1
	if opcode == continuation || opcode == text {
		f.partial = append(f.partial, payload...)
		if final {
			f.message(f.partial)
			f.partial = f.partial[:0]
		}
	}
	f.buf = f.buf[size:]
	return true
}

// parseFrame reads the frame at the beginning, as RFC 6455 lays it out. A size of 0 says that it is not complete.
func parseFrame(b []byte) (payload []byte, final bool, opcode byte, size int) {
	if len(b) < 2 {
		return nil, false, 0, 0
	}
	final, opcode = b[0]&0x80 != 0, b[0]&0x0f
	masked, length, at := b[1]&0x80 != 0, uint64(b[1]&0x7f), 2
	switch {
	case length == 126 && len(b) >= 4:
		length, at = uint64(binary.BigEndian.Uint16(b[2:])), 4
	case length == 127 && len(b) >= 10:
		length, at = binary.BigEndian.Uint64(b[2:]), 10
	case length >= 126:
		return nil, false, 0, 0
	}
	var mask [4]byte
	if masked {
		if len(b) < at+4 {
			return nil, false, 0, 0
		}
		at += copy(mask[:], b[at:at+4])
	}
	if length > uint64(len(b)-at) {
		return nil, false, 0, 0
	}
	payload = bytes.Clone(b[at : at+int(length)])
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return payload, final, opcode, at + int(length)
}
