package logs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// TruncatedLine is the last line of a log that reached its cap.
const TruncatedLine = "[log truncated]"

// mark is the meta of the last line of a chunk.
type mark struct {
	Chunk     string `json:"chunk"`
	Lines     int64  `json:"lines"` // lines of the file up to and with this one
	Truncated bool   `json:"truncated,omitempty"`
}

var (
	lineStart = []byte(`{"ts":"`)
	metaStart = []byte(`","meta":{`)
	plainEnd  = []byte(`","meta":{}}`)
)

// keptBuffer is the largest buffer that is kept for the next chunk; a rare giant must not stay in memory.
const keptBuffer = 1 << 20

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func putBuffer(b *[]byte) {
	if cap(*b) <= keptBuffer {
		buffers.Put(b)
	}
}

// encode appends the stored form of a chunk to buf. It gives the number of lines and whether the log reached its cap:
// then the lines that fit are followed by the truncation line.
func encode(buf []byte, c Chunk, id string, at end, maxBytes int64) (data []byte, lines int64, cut bool) {
	head := appendHead(nil, c.At)
	reserve := int64(len(head)+len(TruncatedLine)+len(id)*6) + 100 // room that the truncation line itself needs
	for _, text := range c.Lines {
		begin := len(buf)
		buf = append(buf, head...)
		buf = appendEscaped(buf, text)
		buf = append(buf, plainEnd...)
		buf = append(buf, '\n')
		if at.size+int64(len(buf))+reserve > maxBytes {
			buf = append(buf[:begin], head...)
			buf = append(buf, TruncatedLine...)
			lines++
			cut = true
			break
		}
		lines++
	}
	if !cut {
		buf = buf[:len(buf)-len(plainEnd)-1] // the last line ends in the mark instead
	}
	return appendMark(buf, mark{Chunk: id, Lines: at.lines + lines, Truncated: cut}), lines, cut
}

func appendHead(buf []byte, at int64) []byte {
	buf = append(buf, lineStart...)
	buf = time.UnixMilli(at).UTC().AppendFormat(buf, "2006-01-02T15:04:05.000Z")
	return append(buf, `","level":"stdout","msg":"`...)
}

// appendMark ends the last line of a chunk.
func appendMark(buf []byte, m mark) []byte {
	buf = append(buf, metaStart...)
	buf = append(buf, `"chunk":"`...)
	buf = appendEscaped(buf, m.Chunk)
	buf = append(buf, `","lines":`...)
	buf = strconv.AppendInt(buf, m.Lines, 10)
	if m.Truncated {
		buf = append(buf, `,"truncated":true`...)
	}
	return append(buf, "}}\n"...)
}

// readMark reads the mark of a line, without its line break; ok is false for a line within a chunk and for anything that
// this package did not write. Text cannot forge a mark: every quote in it is escaped.
func readMark(line []byte) (m mark, ok bool) {
	if !bytes.HasPrefix(line, lineStart) || bytes.HasSuffix(line, plainEnd) {
		return mark{}, false
	}
	i := bytes.LastIndex(line, metaStart)
	if i < 0 || !bytes.HasSuffix(line, []byte("}}")) {
		return mark{}, false
	}
	object := line[i+len(metaStart)-1 : len(line)-1]
	if json.Unmarshal(object, &m) != nil || m.Chunk == "" || m.Lines <= 0 {
		return mark{}, false
	}
	return m, true
}

// plain tells which bytes stand for themselves within a JSON string.
var plain = func() (table [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\' && c != 0x7f
	}
	return table
}()

// appendEscaped appends s as the inside of a JSON string. Stretches of plain bytes, nearly all of any log, are copied
// as a whole; bytes that are no UTF-8 become the replacement character.
func appendEscaped(buf []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				buf = append(buf, s[from:i]...)
				buf = append(buf, "\uFFFD"...)
				from = i + 1
			}
			i += size
			continue
		}
		buf = append(buf, s[from:i]...)
		switch c {
		case '"', '\\':
			buf = append(buf, '\\', c)
		case '\n':
			buf = append(buf, '\\', 'n')
		case '\r':
			buf = append(buf, '\\', 'r')
		case '\t':
			buf = append(buf, '\\', 't')
		default:
			buf = append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(buf, s[from:]...)
}
