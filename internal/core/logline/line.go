// Package logline is the stored form of a line of a step's log: one JSON object, with an index of the log in its meta. It
// writes such lines, reads them, and finds in them what people search for. It knows no files.
package logline

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"kici/internal/core/ci"
)

// Mark is the meta of the last line of a chunk. Marks are what the index of a log is made of.
type Mark struct {
	Chunk     string `json:"chunk"`
	Lines     int64  `json:"lines"` // lines of the log up to and with this one
	Truncated bool   `json:"truncated,omitempty"`
}

var (
	lineStart = []byte(`{"ts":"`)
	metaStart = []byte(`","meta":{`)
)

// End is how a line within a chunk ends, without its break.
const End = `","meta":{}}`

var plainEnd = []byte(End)

// AppendHead appends how a line begins, up to its text. The time is in epoch milliseconds; the lines of a chunk share it.
func AppendHead(buf []byte, at int64) []byte {
	buf = append(buf, lineStart...)
	buf = ci.Moment(at).AppendFormat(buf, "2006-01-02T15:04:05.000Z")
	return append(buf, `","level":"stdout","msg":"`...)
}

// AppendMark ends the last line of a chunk, its break included.
func AppendMark(buf []byte, m Mark) []byte {
	buf = append(buf, metaStart...)
	buf = append(buf, `"chunk":"`...)
	buf = AppendText(buf, m.Chunk)
	buf = append(buf, `","lines":`...)
	buf = strconv.AppendInt(buf, m.Lines, 10)
	if m.Truncated {
		buf = append(buf, `,"truncated":true`...)
	}
	return append(buf, "}}\n"...)
}

// ReadMark reads the mark of a line, without its line break; ok is false for a line within a chunk and for anything that
// AppendMark did not write. Text cannot forge a mark: every quote in it is escaped.
func ReadMark(line []byte) (m Mark, ok bool) {
	if !bytes.HasPrefix(line, lineStart) || bytes.HasSuffix(line, plainEnd) {
		return Mark{}, false
	}
	i := bytes.LastIndex(line, metaStart)
	if i < 0 || !bytes.HasSuffix(line, []byte("}}")) {
		return Mark{}, false
	}
	object := line[i+len(metaStart)-1 : len(line)-1]
	if json.Unmarshal(object, &m) != nil || m.Chunk == "" || m.Lines <= 0 {
		return Mark{}, false
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

// AppendText appends the text of a line: s as the inside of a JSON string. Stretches of plain bytes, nearly all of any log, are copied
// as a whole; bytes that are no UTF-8 become the replacement character.
func AppendText(buf []byte, s string) []byte {
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
