package glob

import (
	"strings"
	"unicode/utf16"
)

// op says what a node of an expression does.
type op byte

const (
	opChar  op = iota // one unit
	opSet             // one unit of a class
	opAny             // one unit other than a line terminator
	opBegin           // ^
	opEnd             // $
	opConcat
	opChoice
	opRepeat   // subs[0], low to high times; high < 0 is without end
	opLook     // subs[0] matches here, or does not when negated
	opGlobstar // globstarOne, by far the commonest loop, done in one go
)

// node is an expression.
type node struct {
	op        op
	unit      uint16
	set       *set
	subs      []*node
	low, high int
	negated   bool
}

// set is a class of UTF-16 units. ASCII has a bitmap of its own, as nearly all subjects are ASCII.
type set struct {
	ascii   [2]uint64
	ranges  []uint16 // pairs of first and last, for units from 128
	negated bool
}

func (s *set) add(first, last uint16) {
	for u := first; u <= last && u < 128; u++ {
		s.ascii[u>>6] |= 1 << (u & 63)
	}
	if last >= 128 {
		s.ranges = append(s.ranges, max(first, 128), last)
	}
}

func (s *set) has(u uint16) bool {
	if u < 128 {
		return s.ascii[u>>6]>>(u&63)&1 == 1 != s.negated
	}
	for i := 0; i < len(s.ranges); i += 2 {
		if s.ranges[i] <= u && u <= s.ranges[i+1] {
			return !s.negated
		}
	}
	return s.negated
}

// maxNesting keeps hostile nesting from using the stack up.
const maxNesting = 500

// reader parses the expressions that patterns stand for: the part of ECMAScript's syntax without flags that the
// translation uses. It gives up on anything else, invalid syntax included.
type reader struct {
	in    []uint16
	at    int
	depth int
}

func parseExpression(text string) (*node, bool) {
	r := &reader{in: utf16.Encode([]rune(text))}
	n, ok := r.choice()
	return n, ok && r.at == len(r.in)
}

func (r *reader) next(text string) bool {
	if len(r.in)-r.at < len(text) {
		return false
	}
	for i := range len(text) {
		if r.in[r.at+i] != uint16(text[i]) {
			return false
		}
	}
	r.at += len(text)
	return true
}

func (r *reader) choice() (*node, bool) {
	if r.depth++; r.depth > maxNesting {
		return nil, false
	}
	defer func() { r.depth-- }()
	var branches []*node
	for {
		branch, ok := r.concat()
		if !ok {
			return nil, false
		}
		branches = append(branches, branch)
		if !r.next("|") {
			break
		}
	}
	if len(branches) == 1 {
		return branches[0], true
	}
	return &node{op: opChoice, subs: branches}, true
}

func (r *reader) concat() (*node, bool) {
	n := &node{op: opConcat}
	for r.at < len(r.in) && r.in[r.at] != '|' && r.in[r.at] != ')' {
		term, ok := r.term()
		if !ok {
			return nil, false
		}
		n.subs = append(n.subs, term)
	}
	return n, true
}

func (r *reader) term() (*node, bool) {
	if r.next(globstarOne) {
		return &node{op: opGlobstar}, !r.quantifierAhead()
	}
	switch {
	case r.next("^"):
		return &node{op: opBegin}, !r.quantifierAhead()
	case r.next("$"):
		return &node{op: opEnd}, !r.quantifierAhead()
	case r.next("(?="), r.next("(?!"):
		negated := r.in[r.at-1] == '!'
		inside, ok := r.group()
		return &node{op: opLook, subs: []*node{inside}, negated: negated}, ok && !r.quantifierAhead()
	}
	atom, ok := r.atom()
	if !ok {
		return nil, false
	}
	return r.quantified(atom)
}

func (r *reader) atom() (*node, bool) {
	switch {
	case r.next("(?:"):
		return r.group()
	case r.next("(?"):
		return nil, false
	case r.next("("):
		return r.group()
	case r.next("["):
		return r.class()
	case r.next("."):
		return &node{op: opAny}, true
	case r.next(`\`):
		u, ok := r.escaped()
		return &node{op: opChar, unit: u}, ok
	}
	u := r.in[r.at]
	r.at++
	// A brace that begins no count stands for itself; a sign with nothing to repeat is no expression.
	if u == '*' || u == '+' || u == '?' || u == '{' && r.countAhead() {
		return nil, false
	}
	return &node{op: opChar, unit: u}, true
}

func (r *reader) group() (*node, bool) {
	inside, ok := r.choice()
	return inside, ok && r.next(")")
}

// escaped reads what follows a backslash. Letters and digits mean classes, references and more, except a few.
func (r *reader) escaped() (uint16, bool) {
	if r.at >= len(r.in) {
		return 0, false
	}
	u := r.in[r.at]
	r.at++
	if u == 'x' {
		return r.hex()
	}
	if u < 128 {
		if i := strings.IndexByte("tnvfr", byte(u)); i >= 0 {
			return uint16("\t\n\v\f\r"[i]), true
		}
	}
	return u, u >= 128 || !isWord(rune(u)) || u == '_'
}

func (r *reader) hex() (uint16, bool) {
	if len(r.in)-r.at < 2 {
		return 0, false
	}
	n := uint16(0)
	for range 2 {
		i := -1
		if u := r.in[r.at]; u < 128 {
			i = strings.IndexByte("0123456789abcdef", byte(u)|0x20)
		}
		if i < 0 || r.in[r.at] < '0' {
			return 0, false
		}
		n = n<<4 | uint16(i)
		r.at++
	}
	return n, true
}

func (r *reader) class() (*node, bool) {
	s := &set{negated: r.next("^")}
	for !r.next("]") {
		first, ok := r.member()
		if !ok {
			return nil, false
		}
		last := first
		if r.at+1 < len(r.in) && r.in[r.at] == '-' && r.in[r.at+1] != ']' {
			r.at++
			if last, ok = r.member(); !ok || last < first {
				return nil, false
			}
		}
		s.add(first, last)
	}
	return &node{op: opSet, set: s}, true
}

func (r *reader) member() (uint16, bool) {
	if r.at >= len(r.in) {
		return 0, false
	}
	if r.next(`\`) {
		return r.escaped()
	}
	r.at++
	return r.in[r.at-1], true
}

func (r *reader) quantifierAhead() bool {
	if r.at >= len(r.in) {
		return false
	}
	switch r.in[r.at] {
	case '*', '+', '?':
		return true
	case '{':
		r.at++
		ahead := r.countAhead()
		r.at--
		return ahead
	}
	return false
}

// countAhead tells whether what follows a brace makes it a count: digits at least.
func (r *reader) countAhead() bool {
	return r.at < len(r.in) && '0' <= r.in[r.at] && r.in[r.at] <= '9'
}

func (r *reader) quantified(atom *node) (*node, bool) {
	n := &node{op: opRepeat, subs: []*node{atom}, high: -1}
	switch {
	case r.next("*"):
	case r.next("+"):
		n.low = 1
	case r.next("?"), r.next("{0,1}"):
		n.high = 1
	default:
		// No other count comes out of the translation.
		return atom, !r.quantifierAhead()
	}
	r.next("?") // lazy: the same values match
	return n, !r.quantifierAhead()
}
