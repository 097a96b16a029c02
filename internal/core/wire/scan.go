package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a frame, so that a hostile one cannot exhaust the stack. A deeper frame is malformed.
const maxDepth = 512

// decoder reads one JSON text of valid UTF-8. It is written by hand because frames of logs come by the million: strings
// are slices of the one text, members without a place in the struct are only skipped, and null is told from absent.
type decoder struct {
	s     string
	pos   int
	depth int
	clean bool // replace NUL, which PostgreSQL refuses
}

func (d *decoder) malformed(what string) error {
	return fmt.Errorf("%w: %s at byte %d", ErrMalformed, what, d.pos)
}

// peek skips white space and gives the next byte without taking it, 0 at the end.
func (d *decoder) peek() byte {
	for d.pos < len(d.s) {
		switch c := d.s[d.pos]; c {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return c
		}
	}
	return 0
}

func (d *decoder) take(c byte) bool {
	if d.peek() != c || d.pos >= len(d.s) {
		return false
	}
	d.pos++
	return true
}

// members walks an object: each is called behind the colon and must take the value.
func (d *decoder) members(each func(name string) error) error {
	return d.list('{', '}', func() error {
		if d.peek() != '"' {
			return d.malformed("expected a member name")
		}
		name, err := d.str()
		if err != nil {
			return err
		}
		if !d.take(':') {
			return d.malformed("expected a colon")
		}
		return each(name)
	})
}

// elements walks an array: each must take the value.
func (d *decoder) elements(each func() error) error { return d.list('[', ']', each) }

func (d *decoder) list(open, end byte, each func() error) error {
	if !d.take(open) {
		return d.malformed("expected a " + string(open))
	}
	if d.depth++; d.depth > maxDepth {
		return d.malformed("nested too deeply")
	}
	defer func() { d.depth-- }()
	if d.take(end) {
		return nil
	}
	for {
		if err := each(); err != nil {
			return err
		}
		if d.take(end) {
			return nil
		}
		if !d.take(',') {
			return d.malformed("expected a comma")
		}
	}
}

// messageType finds the member type of the top-level object and gives "" with an *InvalidError when there is none. The
// first one counts; it stands in front in every frame that is made by a program we know.
func (d *decoder) messageType() (string, error) {
	if d.peek() != '{' {
		return "", d.malformed("expected an object")
	}
	found, name := false, ""
	err := d.members(func(member string) error {
		if member != "type" {
			return d.skip()
		}
		if d.peek() != '"' {
			return &InvalidError{Field: "type", Problem: "expected a string"}
		}
		var err error
		if name, err = d.str(); err != nil {
			return err
		}
		found = true
		return errFound
	})
	switch {
	case found:
		return name, nil
	case err != nil:
		return "", err
	}
	return "", &InvalidError{Field: "type", Problem: "is required"}
}

// errFound ends the walk of messageType; it never leaves it.
var errFound = fmt.Errorf("found")

// skipAll checks that the whole text is one JSON value.
func (d *decoder) skipAll() error {
	d.pos, d.depth = 0, 0
	if err := d.skip(); err != nil {
		return err
	}
	return d.end()
}

func (d *decoder) end() error {
	if d.peek(); d.pos < len(d.s) {
		return d.malformed("unexpected text after the object")
	}
	return nil
}

// skip takes one value of any kind.
func (d *decoder) skip() error {
	switch c := d.peek(); c {
	case '{':
		return d.members(func(string) error { return d.skip() })
	case '[':
		return d.elements(d.skip)
	case '"':
		return d.skipString()
	case 't':
		return d.word("true")
	case 'f':
		return d.word("false")
	case 'n':
		return d.word("null")
	default:
		_, err := d.number()
		return err
	}
}

func (d *decoder) word(w string) error {
	if !strings.HasPrefix(d.s[d.pos:], w) {
		return d.malformed("unexpected text")
	}
	d.pos += len(w)
	return nil
}

// number takes a number of JSON's grammar. One beyond the range of a float64 is infinite, which no member allows.
func (d *decoder) number() (float64, error) {
	start := d.pos
	digits := func() bool {
		from := d.pos
		for d.pos < len(d.s) && d.s[d.pos]-'0' < 10 {
			d.pos++
		}
		return d.pos > from
	}
	at := func(set string) bool {
		if d.pos < len(d.s) && strings.IndexByte(set, d.s[d.pos]) >= 0 {
			d.pos++
			return true
		}
		return false
	}
	at("-")
	zero := d.pos < len(d.s) && d.s[d.pos] == '0'
	from := d.pos
	ok := digits() && (!zero || d.pos == from+1)
	if at(".") {
		ok = ok && digits()
	}
	if at("eE") {
		at("+-")
		ok = ok && digits()
	}
	if !ok {
		return 0, d.malformed("unexpected text")
	}
	f, _ := strconv.ParseFloat(d.s[start:d.pos], 64) // the grammar is checked: what is left is a value out of range
	return f, nil
}

// plain tells the bytes of a string that stand for themselves: no quote, backslash or control character.
var plain = func() (t [256]bool) {
	for i := 0x20; i < 256; i++ {
		t[i] = i != '"' && i != '\\'
	}
	return t
}()

func (d *decoder) skipString() error {
	i := d.pos + 1
	for i < len(d.s) {
		switch c := d.s[i]; {
		case plain[c]:
			i++
		case c == '"':
			d.pos = i + 1
			return nil
		case c == '\\':
			n := escapeLen(d.s[i:])
			if n == 0 {
				return d.malformed("bad escape in a string")
			}
			i += n
		default:
			return d.malformed("control character in a string")
		}
	}
	return d.malformed("unterminated string")
}

// str takes a string. Without escapes it is a slice of the text.
func (d *decoder) str() (string, error) {
	start := d.pos + 1
	i := start
	for i < len(d.s) && plain[d.s[i]] {
		i++
	}
	if i < len(d.s) && d.s[i] == '"' {
		d.pos = i + 1
		return d.s[start:i], nil
	}
	if err := d.skipString(); err != nil {
		return "", err
	}
	return d.unescape(d.s[start : d.pos-1]), nil
}

// escapeLen is the length of the escape at the start of s, 0 when it is none.
func escapeLen(s string) int {
	if len(s) < 2 {
		return 0
	}
	if s[1] != 'u' {
		if strings.IndexByte(`"\/bfnrt`, s[1]) < 0 {
			return 0
		}
		return 2
	}
	if len(s) < 6 {
		return 0
	}
	if _, err := strconv.ParseUint(s[2:6], 16, 16); err != nil {
		return 0
	}
	return 6
}

var shortEscapes = map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', '"': '"', '\\': '\\', '/': '/'}

// unescape resolves the escapes of a string that skipString has checked. A lone surrogate becomes U+FFFD.
func (d *decoder) unescape(s string) string {
	out := make([]byte, 0, len(s))
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			return string(append(out, s...))
		}
		out = append(out, s[:i]...)
		s = s[i:]
		if s[1] != 'u' {
			out = append(out, shortEscapes[s[1]])
			s = s[2:]
			continue
		}
		r := hexRune(s)
		s = s[6:]
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if strings.HasPrefix(s, `\u`) {
				low = hexRune(s)
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				s = s[6:]
			}
		}
		if r == 0 && d.clean {
			r = utf8.RuneError
		}
		out = utf8.AppendRune(out, r)
	}
}

func hexRune(s string) rune {
	n, _ := strconv.ParseUint(s[2:6], 16, 16) // escapeLen has checked it
	return rune(n)
}

// raw takes a value of any kind as it stands.
func (d *decoder) raw() ([]byte, error) {
	d.peek()
	start := d.pos
	if err := d.skip(); err != nil {
		return nil, err
	}
	out := []byte(d.s[start:d.pos])
	if d.clean {
		replaceNUL(out)
	}
	return out, nil
}

// replaceNUL replaces escaped NULs in a valid JSON text, where a backslash stands in strings only.
func replaceNUL(raw []byte) {
	const nul, replacement = `\u0000`, `\ufffd`
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if strings.HasPrefix(string(raw[i:min(i+len(nul), len(raw))]), nul) {
			copy(raw[i:], replacement)
		}
		i++ // the character behind a backslash is no backslash of its own
	}
}
