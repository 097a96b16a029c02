package jsontree

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth bounds nesting. Real documents stay below 15; the bound keeps a hostile one from exhausting the stack.
const MaxDepth = 128

// SyntaxError is a place in the text that is not JSON.
type SyntaxError struct {
	Offset  int // bytes from the start
	Message string
	Deep    bool // nested too deeply, rather than malformed
}

func (e *SyntaxError) Error() string { return e.Message }

type parser struct {
	src   string
	pos   int
	depth int
	stack []Node // elements of the lists and objects being read, so that each list is stored once, at its size
	slab  []Node // where finished lists are stored, many to one allocation
}

const slabSize = 512

// Parse reads src as one JSON value. The error is a *SyntaxError.
func Parse(src string) (*Node, error) {
	p := parser{src: src}
	p.space()
	root, err := p.value("")
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos < len(p.src) {
		return nil, p.unexpected("the end")
	}
	return &root, nil
}

func (p *parser) space() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) unexpected(wanted string) error {
	if p.pos >= len(p.src) {
		return &SyntaxError{Offset: len(p.src), Message: "expected " + wanted + ", found the end of the text"}
	}
	r, _ := utf8.DecodeRuneInString(p.src[p.pos:])
	return &SyntaxError{Offset: p.pos, Message: fmt.Sprintf("expected %s, found %q", wanted, r)}
}

// value reads one value, the member of that name. It is returned rather than filled in, which keeps it off the heap.
func (p *parser) value(key string) (n Node, err error) {
	start := p.pos
	n.Key = key
	if p.pos >= len(p.src) {
		return n, p.unexpected("a value")
	}
	switch c := p.src[p.pos]; {
	case c == '{':
		n.Kind = Object
		n.Items, err = p.object()
	case c == '[':
		n.Kind = List
		n.Items, err = p.list()
	case c == '"':
		n.Kind = Text
		n.plain, n.Dirty, err = p.textValue()
	case c == '-' || c >= '0' && c <= '9':
		n.Kind = Number
		err = p.number()
	default:
		n.Kind, n.Truth, err = p.word()
	}
	n.Raw = p.src[start:p.pos]
	return n, err
}

func (p *parser) enter() error {
	if p.depth++; p.depth > MaxDepth {
		return &SyntaxError{Offset: p.pos, Deep: true, Message: fmt.Sprintf("nested more than %d levels deep", MaxDepth)}
	}
	p.pos++
	return nil
}

func (p *parser) leave(base int) []Node {
	p.depth--
	items := p.stack[base:]
	if len(items) == 0 {
		return nil
	}
	if len(items) > cap(p.slab)-len(p.slab) {
		p.slab = make([]Node, 0, max(slabSize, len(items)))
	}
	at := len(p.slab)
	p.slab = append(p.slab, items...)
	p.stack = p.stack[:base]
	return p.slab[at:len(p.slab):len(p.slab)]
}

func (p *parser) word() (kind Kind, truth bool, err error) {
	rest := p.src[p.pos:]
	switch {
	case strings.HasPrefix(rest, "null"):
		p.pos += 4
		return Null, false, nil
	case strings.HasPrefix(rest, "true"):
		p.pos += 4
		return Bool, true, nil
	case strings.HasPrefix(rest, "false"):
		p.pos += 5
		return Bool, false, nil
	}
	return Null, false, p.unexpected("a value")
}

func (p *parser) list() ([]Node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	base := len(p.stack)
	for p.space(); ; p.space() {
		if p.at(']') && len(p.stack) == base {
			p.pos++
			return p.leave(base), nil
		}
		n, err := p.value("")
		if err != nil {
			return nil, err
		}
		p.stack = append(p.stack, n)
		if done, err := p.next(']'); err != nil {
			return nil, err
		} else if done {
			return p.leave(base), nil
		}
	}
}

func (p *parser) object() ([]Node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	base := len(p.stack)
	for p.space(); ; p.space() {
		if p.at('}') && len(p.stack) == base {
			p.pos++
			return p.leave(base), nil
		}
		n, err := p.named()
		if err != nil {
			return nil, err
		}
		p.stack = append(p.stack, n)
		if done, err := p.next('}'); err != nil {
			return nil, err
		} else if done {
			return arrange(p.leave(base)), nil
		}
	}
}

// named reads a member of an object.
func (p *parser) named() (n Node, err error) {
	if !p.at('"') {
		return n, p.unexpected("a quoted name")
	}
	key, _, err := p.quoted()
	if err != nil {
		return n, err
	}
	p.space()
	if !p.at(':') {
		return n, p.unexpected("':'")
	}
	p.pos++
	p.space()
	return p.value(key)
}

func (p *parser) at(c byte) bool { return p.pos < len(p.src) && p.src[p.pos] == c }

// next reads the comma or the closing mark after an element.
func (p *parser) next(closing byte) (done bool, err error) {
	p.space()
	switch {
	case p.at(','):
		p.pos++
		return false, nil
	case p.at(closing):
		p.pos++
		return true, nil
	}
	return false, p.unexpected(fmt.Sprintf("',' or %q", closing))
}

func (p *parser) number() error {
	if p.at('-') {
		p.pos++
	}
	if p.at('0') {
		p.pos++
	} else if !p.digits() {
		return p.unexpected("a digit")
	}
	if p.at('.') {
		p.pos++
		if !p.digits() {
			return p.unexpected("a digit")
		}
	}
	if p.at('e') || p.at('E') {
		p.pos++
		if p.at('+') || p.at('-') {
			p.pos++
		}
		if !p.digits() {
			return p.unexpected("a digit")
		}
	}
	return nil
}

func (p *parser) digits() bool {
	start := p.pos
	for p.pos < len(p.src) && p.src[p.pos] >= '0' && p.src[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > start
}

// textValue reads a text that is a value; plain is nil when it has no escapes.
func (p *parser) textValue() (plain *string, dirty bool, err error) {
	start := p.pos
	text, dirty, err := p.quoted()
	if err != nil || len(text) == p.pos-start-2 {
		return nil, dirty, err // each escape is longer than what it stands for
	}
	decoded := text // only these go to the heap
	return &decoded, dirty, nil
}

// quoted reads a text. One without escapes is a part of the document itself.
func (p *parser) quoted() (text string, dirty bool, err error) {
	p.pos++
	start := p.pos
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '"':
			text = p.src[start:p.pos]
			p.pos++
			return text, false, nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", false, &SyntaxError{Offset: p.pos, Message: fmt.Sprintf("control character %q in a text", c)}
		}
		p.pos++
	}
	return "", false, p.unexpected("a closing quote")
}

// escaped continues quoted at the first backslash.
func (p *parser) escaped(start int) (text string, dirty bool, err error) {
	b := []byte(p.src[start:p.pos])
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '"':
			p.pos++
			return string(b), dirty, nil
		case c == '\\':
			p.pos++
			var one bool
			if b, one, err = p.escape(b); err != nil {
				return "", false, err
			}
			dirty = dirty || one
		case c < 0x20:
			return "", false, &SyntaxError{Offset: p.pos, Message: fmt.Sprintf("control character %q in a text", c)}
		default:
			b = append(b, c)
			p.pos++
		}
	}
	return "", false, p.unexpected("a closing quote")
}

func (p *parser) escape(b []byte) (out []byte, dirty bool, err error) {
	if p.pos >= len(p.src) {
		return nil, false, p.unexpected("a closing quote")
	}
	c := p.src[p.pos]
	if c == 'u' {
		return p.unicode(b)
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return nil, false, p.unexpected("an escape")
	}
	p.pos++
	return append(b, "\"\\/\b\f\n\r\t"[i]), false, nil
}

// unicode reads uXXXX, and a second escape when the two are a surrogate pair. A lone surrogate is kept in the three-byte
// form that UTF-8 forbids, so that hashing can write it back as it was.
func (p *parser) unicode(b []byte) (out []byte, dirty bool, err error) {
	r, err := p.hex4()
	if err != nil {
		return nil, false, err
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(b, r), r == 0, nil
	}
	if strings.HasPrefix(p.src[p.pos:], `\u`) {
		mark := p.pos
		p.pos++
		low, err := p.hex4()
		if err != nil {
			return nil, false, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return utf8.AppendRune(b, pair), false, nil
		}
		p.pos = mark // not its partner: read again as an escape of its own
	}
	return append(b, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F), true, nil
}

func (p *parser) hex4() (rune, error) {
	p.pos++ // the u
	var r rune
	for range 4 {
		if p.pos >= len(p.src) {
			return 0, p.unexpected("a hexadecimal digit")
		}
		d := strings.IndexByte(hexDigits, p.src[p.pos]|0x20)
		if d < 0 || p.src[p.pos] < '0' { // a control character would pass as a digit
			return 0, p.unexpected("a hexadecimal digit")
		}
		r = r<<4 | rune(d)
		p.pos++
	}
	return r, nil
}
