package regex

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// subject is what a text must be like for the RE2 form of a pattern to mean the same as the JavaScript form.
type subject struct {
	bmp       bool // no character beyond U+FFFF: without the flag u JavaScript sees two units where RE2 sees one
	ascii     bool // the flag i folds letters beyond ASCII by other rules in the two languages
	newlineLF bool // \n is the only line terminator: with the flag m RE2 knows no other
}

func (n subject) holdsFor(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\r' && n.newlineLF:
			return false
		case c < utf8.RuneSelf:
		case n.ascii, n.bmp && c >= 0xF0:
			return false
		case n.newlineLF && (strings.HasPrefix(s[i:], "\u2028") || strings.HasPrefix(s[i:], "\u2029")):
			return false
		}
	}
	return true
}

// RE2 spells out what JavaScript's escapes mean: its own \s lacks \v and every Unicode space, its dot other newlines.
const (
	spaces    = `\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	notNewley = `[^\n\r\x{2028}\x{2029}]`
	// syntax is what may follow a backslash to stand for itself under every flag.
	syntax = `^$\.*+?()[]{}|/`
)

// translator turns a pattern into RE2 syntax. Whatever it does not know for certain to be valid and to mean the same
// makes it give up; the sandbox then judges the pattern, so giving up is always safe.
type translator struct {
	src     string
	pos     int
	out     strings.Builder
	unicode bool // flag u: stricter syntax, characters instead of units
	multi   bool // flag m
	dotAll  bool // flag s
	fold    bool // flag i
	usesNL  bool // an anchor was written for lines
	depth   int
}

// translate gives the RE2 form of the pattern and what it asks of the text, or ok=false when there is none.
// Only whether something matches is kept: captures, greediness and match order change nothing about that.
func translate(source, flags string) (text string, needs subject, ok bool) {
	has := func(f string) bool { return strings.Contains(flags, f) }
	t := &translator{src: source, unicode: has("u"), multi: has("m"), dotAll: has("s"), fold: has("i")}
	if has("v") || t.fold && (t.unicode || !isASCII(source)) || !utf8.ValidString(source) {
		return "", subject{}, false
	}
	if !t.disjunction() || t.pos != len(t.src) {
		return "", subject{}, false
	}
	text = "(?:" + t.out.String() + ")"
	if has("y") {
		text = `\A` + text
	}
	if t.fold {
		text = "(?i)" + text
	}
	return text, subject{bmp: !t.unicode, ascii: t.fold, newlineLF: t.usesNL}, true
}

func (t *translator) disjunction() bool {
	// The bound keeps hostile nesting from using the stack up; the sandbox has its own.
	if t.depth++; t.depth > 200 {
		return false
	}
	defer func() { t.depth-- }()
	for t.pos < len(t.src) && t.src[t.pos] != ')' {
		if t.src[t.pos] == '|' {
			t.pos++
			t.out.WriteByte('|')
			continue
		}
		if !t.term() {
			return false
		}
	}
	return true
}

func (t *translator) term() bool {
	switch c := t.src[t.pos]; c {
	case '^':
		return t.anchor(`\A`, `(?m:^)`)
	case '$':
		return t.anchor(`\z`, `(?m:$)`)
	case '\\':
		if strings.HasPrefix(t.src[t.pos:], `\b`) || strings.HasPrefix(t.src[t.pos:], `\B`) {
			t.out.WriteString(t.src[t.pos : t.pos+2])
			t.pos += 2
			return !t.quantifierFollows()
		}
	case '*', '+', '?', '{', '}', ']':
		// Nothing to repeat, or a bracket that only lax syntax takes for itself.
		return false
	}
	return t.atom() && t.quantifier()
}

func (t *translator) anchor(text, line string) bool {
	t.pos++
	if t.multi {
		t.usesNL = true
		text = line
	}
	t.out.WriteString(text)
	// A repeated anchor is a syntax error in JavaScript and none in RE2.
	return !t.quantifierFollows()
}

func (t *translator) quantifierFollows() bool {
	return t.pos < len(t.src) && strings.IndexByte("*+?{", t.src[t.pos]) >= 0
}

func (t *translator) atom() bool {
	switch t.src[t.pos] {
	case '.':
		t.pos++
		if t.dotAll {
			t.out.WriteString(`(?s:.)`)
		} else {
			t.out.WriteString(notNewley)
		}
		return true
	case '(':
		return t.group()
	case '[':
		return t.class()
	case '\\':
		return t.atomEscape()
	}
	r, size := utf8.DecodeRuneInString(t.src[t.pos:])
	t.pos += size
	return t.literal(r)
}

// group takes plain and non-capturing groups; look-around, names and modifiers are the sandbox's.
func (t *translator) group() bool {
	t.pos++
	if strings.HasPrefix(t.src[t.pos:], "?:") {
		t.pos += 2
	} else if strings.HasPrefix(t.src[t.pos:], "?") {
		return false
	}
	t.out.WriteString("(?:")
	if !t.disjunction() || t.pos >= len(t.src) {
		return false
	}
	t.pos++ // the closing parenthesis, at which disjunction stops
	t.out.WriteByte(')')
	return true
}

func (t *translator) atomEscape() bool {
	if set, ok := t.setEscape(); ok {
		t.out.WriteString("[" + set + "]")
		return true
	}
	if set, ok := negatedSets[t.peek(2)]; ok {
		t.pos += 2
		t.out.WriteString(set)
		return true
	}
	r, ok := t.charEscape("")
	return ok && t.literal(r)
}

var negatedSets = map[string]string{`\D`: "[^0-9]", `\W`: "[^0-9A-Za-z_]", `\S`: "[^" + spaces + "]"}

// setEscape reads \d, \w or \s as the inside of a class.
func (t *translator) setEscape() (string, bool) {
	sets := map[string]string{`\d`: "0-9", `\w`: "0-9A-Za-z_", `\s`: spaces}
	set, ok := sets[t.peek(2)]
	if ok {
		t.pos += 2
	}
	return set, ok
}

func (t *translator) peek(n int) string { return t.src[t.pos:min(t.pos+n, len(t.src))] }

// charEscape reads an escape that stands for one character. Lax syntax lets all punctuation stand for itself, strict
// syntax only the signs that mean something, and those listed in more.
func (t *translator) charEscape(more string) (rune, bool) {
	if t.pos+1 >= len(t.src) {
		return 0, false
	}
	c := t.src[t.pos+1]
	if i := strings.IndexByte("tnvfr", c); i >= 0 {
		t.pos += 2
		return rune("\t\n\v\f\r"[i]), true
	}
	switch {
	case c == 'x':
		return t.hex(2)
	case c == 'u':
		return t.hex(4)
	case strings.IndexByte(syntax+more, c) >= 0, !t.unicode && c < utf8.RuneSelf && !isWord(c):
		t.pos += 2
		return rune(c), true
	}
	return 0, false
}

func (t *translator) hex(digits int) (rune, bool) {
	text := t.peek(2 + digits)
	if len(text) < 2+digits {
		return 0, false
	}
	n, err := strconv.ParseUint(text[2:], 16, 32)
	if err != nil || n >= 0xD800 && n < 0xE000 {
		return 0, false // a surrogate is half a character, which RE2 cannot say
	}
	t.pos += 2 + digits
	return rune(n), true
}

func (t *translator) literal(r rune) bool {
	if r > 0xFFFF && !t.unicode || t.fold && r >= utf8.RuneSelf {
		return false
	}
	fmt.Fprintf(&t.out, `\x{%x}`, r)
	return true
}

func (t *translator) quantifier() bool {
	if t.pos >= len(t.src) {
		return true
	}
	text, size := t.src[t.pos:t.pos+1], 1
	switch text {
	case "*", "+", "?":
	case "{":
		if text, size = repeat(t.src[t.pos:]); size == 0 {
			return false
		}
	default:
		return true
	}
	t.pos += size
	if t.pos < len(t.src) && t.src[t.pos] == '?' {
		t.pos++ // lazy: another match perhaps, but a match in the same cases
	}
	// Every atom is written as one unit, so the sign may simply follow it.
	t.out.WriteString(text)
	return !t.quantifierFollows()
}

// repeat gives the {n}, {n,} or {n,m} at the start of s as RE2 writes it, and its size in s: 0 when it is none with
// numbers in order and within RE2's limit of 1000. Leading zeros go, since with them RE2 takes the braces for text.
func repeat(s string) (text string, size int) {
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return "", 0
	}
	low, high, ranged := strings.Cut(s[1:end], ",")
	n, err := strconv.ParseUint(low, 10, 16)
	if err != nil || n > 1000 {
		return "", 0
	}
	if !ranged {
		return fmt.Sprintf("{%d}", n), end + 1
	}
	if high == "" {
		return fmt.Sprintf("{%d,}", n), end + 1
	}
	m, err := strconv.ParseUint(high, 10, 16)
	if err != nil || m < n || m > 1000 {
		return "", 0
	}
	return fmt.Sprintf("{%d,%d}", n, m), end + 1
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
