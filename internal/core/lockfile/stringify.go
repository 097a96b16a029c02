package lockfile

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// appendJSON writes the value as ECMAScript's JSON.stringify does, so that our bytes and those of author tools are the
// same. indent is the text of one level, "" for the compact form; at is the present level.
func appendJSON(b []byte, n *node, indent string, at int) []byte {
	switch n.kind {
	case kindNull:
		return append(b, "null"...)
	case kindBool:
		return strconv.AppendBool(b, n.truth)
	case kindNumber:
		return append(b, formatNumber(number(n))...)
	case kindText:
		return appendText(b, n.text())
	}
	open, closing := byte('['), byte(']')
	if n.kind == kindObject {
		open, closing = '{', '}'
	}
	b = append(b, open)
	for i := range n.items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendBreak(b, indent, at+1)
		if n.kind == kindObject {
			b = append(appendText(b, n.items[i].key), ':')
			if indent != "" {
				b = append(b, ' ')
			}
		}
		b = appendJSON(b, &n.items[i], indent, at+1)
	}
	if len(n.items) > 0 {
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
	if len(s) >= 3 && s[0] == 0xED && s[1] >= 0xA0 {
		surrogate := uint64(s[0]&0xF)<<12 | uint64(s[1]&0x3F)<<6 | uint64(s[2]&0x3F)
		return strconv.AppendUint(append(b, `\u`...), surrogate, 16), 3
	}
	return utf8.AppendRune(b, utf8.RuneError), 1
}

// number is the value of a number node; beyond the range of a double it is infinite, as in ECMAScript.
func number(n *node) float64 {
	f, err := strconv.ParseFloat(n.raw, 64)
	if err != nil && !math.IsInf(f, 0) {
		return math.NaN() // not reached: the parser admits only what ParseFloat reads
	}
	return f
}

// formatNumber is ECMAScript's shortest decimal form; infinities become null as in JSON.stringify.
func formatNumber(f float64) string {
	switch abs := math.Abs(f); {
	case math.IsInf(f, 0) || math.IsNaN(f):
		return "null"
	case f == 0:
		return "0"
	case abs >= 1e-6 && abs < 1e21:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	return mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
}
