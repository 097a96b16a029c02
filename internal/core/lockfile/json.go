package lockfile

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The document is parsed into a small tree of our own, since the order of keys carries meaning, a bad document must name
// its line, and one pass over a file of several MiB has to stay cheap: texts without escapes share the document's memory.

type nodeKind byte

const (
	kindNull nodeKind = iota
	kindBool
	kindNumber
	kindText
	kindList
	kindObject
)

func (k nodeKind) String() string {
	return [...]string{"null", "a truth value", "a number", "text", "a list", "an object"}[k]
}

// node is one JSON value. Members of an object stand in ECMAScript order: array-index-like keys first and ascending, then
// the others as written; of a repeated key the first place and the last value count.
type node struct {
	kind  nodeKind
	lone  bool   // text holds a lone surrogate, in three-byte form
	truth bool   // of kindBool
	key   string // name of this member in its object
	text  string // of kindText decoded, of kindNumber as written
	raw   string // the value as written
	items []node // elements or members
}

// maxDepth bounds nesting. Real documents stay below 15; the bound keeps a hostile one from exhausting the stack.
const maxDepth = 128

// syntaxError is a place in the text that is not JSON.
type syntaxError struct {
	offset  int
	message string
	deep    bool // nested too deeply, rather than malformed
}

func (e *syntaxError) Error() string { return e.message }

type parser struct {
	src   string
	pos   int
	depth int
	stack []node // elements of the lists and objects being read, so that each list is allocated once, at its size
}

// parse reads src as one JSON value. The error is a *syntaxError.
func parse(src string) (*node, error) {
	p := parser{src: src}
	p.space()
	var root node
	if err := p.value(&root); err != nil {
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
		return &syntaxError{offset: len(p.src), message: "expected " + wanted + ", found the end of the text"}
	}
	r, _ := utf8.DecodeRuneInString(p.src[p.pos:])
	return &syntaxError{offset: p.pos, message: fmt.Sprintf("expected %s, found %q", wanted, r)}
}

func (p *parser) value(n *node) (err error) {
	start := p.pos
	if p.pos >= len(p.src) {
		return p.unexpected("a value")
	}
	switch c := p.src[p.pos]; {
	case c == '{':
		err = p.nested(n, p.object)
	case c == '[':
		err = p.nested(n, p.list)
	case c == '"':
		n.kind = kindText
		n.text, n.lone, err = p.quoted()
	case c == '-' || c >= '0' && c <= '9':
		n.kind = kindNumber
		err = p.number()
		n.text = p.src[start:p.pos]
	default:
		err = p.word(n)
	}
	n.raw = p.src[start:p.pos]
	return err
}

func (p *parser) nested(n *node, read func(*node) error) error {
	if p.depth++; p.depth > maxDepth {
		return &syntaxError{offset: p.pos, deep: true, message: fmt.Sprintf("nested more than %d levels deep", maxDepth)}
	}
	p.pos++
	err := read(n)
	p.depth--
	return err
}

func (p *parser) word(n *node) error {
	rest := p.src[p.pos:]
	switch {
	case strings.HasPrefix(rest, "null"):
		n.kind = kindNull
		p.pos += 4
	case strings.HasPrefix(rest, "true"):
		n.kind, n.truth = kindBool, true
		p.pos += 4
	case strings.HasPrefix(rest, "false"):
		n.kind = kindBool
		p.pos += 5
	default:
		return p.unexpected("a value")
	}
	return nil
}

func (p *parser) list(n *node) error {
	n.kind = kindList
	base := len(p.stack)
	for p.space(); ; p.space() {
		if p.at(']') && len(p.stack) == base {
			p.pos++
			return nil
		}
		if err := p.push(""); err != nil {
			return err
		}
		done, err := p.next(']')
		if err != nil {
			return err
		}
		if done {
			n.items = p.take(base)
			return nil
		}
	}
}

func (p *parser) object(n *node) error {
	n.kind = kindObject
	base := len(p.stack)
	for p.space(); ; p.space() {
		if p.at('}') && len(p.stack) == base {
			p.pos++
			return nil
		}
		if !p.at('"') {
			return p.unexpected("a quoted name")
		}
		key, _, err := p.quoted()
		if err != nil {
			return err
		}
		p.space()
		if !p.at(':') {
			return p.unexpected("':'")
		}
		p.pos++
		p.space()
		if err := p.push(key); err != nil {
			return err
		}
		done, err := p.next('}')
		if err != nil {
			return err
		}
		if done {
			n.items = arrange(p.take(base))
			return nil
		}
	}
}

func (p *parser) at(c byte) bool { return p.pos < len(p.src) && p.src[p.pos] == c }

func (p *parser) push(key string) error {
	n := node{key: key}
	if err := p.value(&n); err != nil {
		return err
	}
	p.stack = append(p.stack, n)
	return nil
}

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

func (p *parser) take(base int) []node {
	items := slices.Clone(p.stack[base:])
	p.stack = p.stack[:base]
	return items
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

// quoted reads a text. One without escapes is a part of the document itself.
func (p *parser) quoted() (text string, lone bool, err error) {
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
			return "", false, &syntaxError{offset: p.pos, message: fmt.Sprintf("control character %q in a text", c)}
		}
		p.pos++
	}
	return "", false, p.unexpected("a closing quote")
}

// escaped continues quoted at the first backslash.
func (p *parser) escaped(start int) (text string, lone bool, err error) {
	b := []byte(p.src[start:p.pos])
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '"':
			p.pos++
			return string(b), lone, nil
		case c == '\\':
			p.pos++
			var one bool
			if b, one, err = p.escape(b); err != nil {
				return "", false, err
			}
			lone = lone || one
		case c < 0x20:
			return "", false, &syntaxError{offset: p.pos, message: fmt.Sprintf("control character %q in a text", c)}
		default:
			b = append(b, c)
			p.pos++
		}
	}
	return "", false, p.unexpected("a closing quote")
}

func (p *parser) escape(b []byte) (out []byte, lone bool, err error) {
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
func (p *parser) unicode(b []byte) (out []byte, lone bool, err error) {
	r, err := p.hex4()
	if err != nil {
		return nil, false, err
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(b, r), false, nil
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

// arrange puts members in ECMAScript order and drops repeated keys.
func arrange(members []node) []node {
	members = dropRepeated(members)
	first := slices.IndexFunc(members, func(n node) bool { return isIndex(n.key) })
	if first < 0 {
		return members
	}
	slices.SortStableFunc(members, func(a, b node) int {
		ai, bi := isIndex(a.key), isIndex(b.key)
		switch {
		case ai && bi && len(a.key) != len(b.key):
			return len(a.key) - len(b.key)
		case ai && bi:
			return strings.Compare(a.key, b.key)
		case ai:
			return -1
		case bi:
			return 1
		}
		return 0
	})
	return members
}

func dropRepeated(members []node) []node {
	if !hasRepeated(members) {
		return members
	}
	place := make(map[string]int, len(members))
	kept := members[:0]
	for _, m := range members {
		if at, ok := place[m.key]; ok {
			kept[at] = m
			continue
		}
		place[m.key] = len(kept)
		kept = append(kept, m)
	}
	return kept
}

func hasRepeated(members []node) bool {
	if len(members) > 24 { // beyond this, comparing each with each costs more than a map
		seen := make(map[string]bool, len(members))
		for _, m := range members {
			seen[m.key] = true
		}
		return len(seen) < len(members)
	}
	for i := range members {
		for j := range i {
			if members[i].key == members[j].key {
				return true
			}
		}
	}
	return false
}

// isIndex tells whether an ECMAScript object takes the key as an array index: 0 to 2^32-2 in shortest decimal form.
func isIndex(key string) bool {
	if key == "" || len(key) > 10 || key[0] == '0' && len(key) > 1 {
		return false
	}
	for i := range len(key) {
		if key[i] < '0' || key[i] > '9' {
			return false
		}
	}
	return len(key) < 10 || key <= "4294967294"
}

// member returns the value of an object's member, or nil.
func (n *node) member(key string) *node {
	if n.kind != kindObject {
		return nil
	}
	for i := range n.items {
		if n.items[i].key == key {
			return &n.items[i]
		}
	}
	return nil
}
