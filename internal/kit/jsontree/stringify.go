package jsontree

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"kici/internal/kit/ecma"
)

// Stringify writes a JSON text compactly, byte for byte as ECMAScript's JSON.parse and JSON.stringify would. The error is
// a *SyntaxError.
func Stringify(raw []byte) ([]byte, error) {
	n, err := Parse(string(raw))
	if err != nil {
		return nil, err
	}
	return n.Append(make([]byte, 0, len(raw)), ""), nil
}

// Quote writes a text as a JSON text, escaping no more than JSON.stringify does.
func Quote(s string) string { return string(appendText(nil, s)) }

// Append adds the value to b as ECMAScript's JSON.stringify writes it, so that our bytes and those of author tools are the
// same. indent is the text of one level, "" for the compact form.
func (n *Node) Append(b []byte, indent string) []byte { return appendJSON(b, n, indent, 0) }

// appendJSON is Append at a level.
func appendJSON(b []byte, n *Node, indent string, at int) []byte {
	switch n.Kind {
	case Null:
		return append(b, "null"...)
	case Bool:
		return strconv.AppendBool(b, n.Truth)
	case Number:
		return append(b, jsonNumber(n.Number())...)
	case Text:
		return appendText(b, n.Text())
	}
	open, closing := byte('['), byte(']')
	if n.Kind == Object {
		open, closing = '{', '}'
	}
	b = append(b, open)
	for i := range n.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendBreak(b, indent, at+1)
		if n.Kind == Object {
			b = append(appendText(b, n.Items[i].Key), ':')
			if indent != "" {
				b = append(b, ' ')
			}
		}
		b = appendJSON(b, &n.Items[i], indent, at+1)
	}
	if len(n.Items) > 0 {
		b = appendBreak(b, indent, at)
	}
	return append(b, closing)
}

func appendBreak(b []byte, indent string, level int) []byte {
	if indent == "" {
		return b
	}
	b = append(b, '\n')
	for range level {
		b = append(b, indent...)
	}
	return b
}

// appendText escapes only quotes, backslashes, control characters and lone surrogates.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			if k := strings.IndexByte("\b\f\n\r\t", c); k >= 0 {
				b = append(b, '\\', "bfnrt"[k])
			} else {
				b = append(b, `\u00`...)
				b = append(b, hexDigits[c>>4], hexDigits[c&0xF])
			}
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			var size int
			b, size = appendWide(b, s[i:])
			i += size
			continue
		}
		i++
	}
	return append(b, '"')
}

const hexDigits = "0123456789abcdef"

// appendWide writes the first character of s, which is not ASCII.
func appendWide(b []byte, s string) (out []byte, size int) {
	r, size := utf8.DecodeRuneInString(s)
	if r != utf8.RuneError || size > 1 {
		return append(b, s[:size]...), size
	}
	if len(s) >= 3 && s[0] == 0xED && s[1]&0xE0 == 0xA0 && s[2]&0xC0 == 0x80 {
		surrogate := uint64(s[0]&0xF)<<12 | uint64(s[1]&0x3F)<<6 | uint64(s[2]&0x3F)
		return strconv.AppendUint(append(b, `\u`...), surrogate, 16), 3
	}
	return utf8.AppendRune(b, utf8.RuneError), 1
}

// jsonNumber is the shortest decimal form; infinities become null, as in JSON.stringify.
func jsonNumber(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return "null"
	}
	return ecma.FormatNumber(f)
}
