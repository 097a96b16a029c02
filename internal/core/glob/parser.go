package glob

import (
	"slices"
	"strings"
)

// kind of a token. The rules look at what stands before, so they are many.
type kind byte

const (
	kindStart kind = iota
	kindText
	kindSlash
	kindDot
	kindDots
	kindStar
	kindGlobstar
	kindMaybeSlash
	kindBracket
	kindBrace
	kindParen
	kindComma
	kindPlus
	kindOther // openers of extended groups
)

// token is a piece of the pattern with the expression it stands for. The parser rewrites tokens as later ones show what
// they meant, and sometimes writes the whole output anew from them.
type token struct {
	kind      kind
	value     string
	output    string
	hasOutput bool // otherwise value is the output
	prev      *token

	posix       bool // bracket: holds a [:class:]
	star        bool // a run of three stars and more
	extended    bool // parenthesis of an extended group
	comma, dots bool // brace: what it was found to hold
	outputIndex int  // brace: length of the output before it
	tokensIndex int  // brace: number of tokens before it

	values, outputs grown
}

// grown makes a text longer sign by sign without copying it each time, or a long pattern would cost its square.
type grown struct{ b strings.Builder }

// add gives have and more. have is what the last call gave, unless the text was set otherwise since.
func (g *grown) add(have, more string) string {
	if g.b.String() != have { // at once where it is the same text in memory
		g.b.Reset()
		g.b.WriteString(have)
	}
	g.b.WriteString(more)
	return g.b.String()
}

func (t *token) addValue(s string) { t.value = t.values.add(t.value, s) }

func (t *token) text() string {
	if t.hasOutput {
		return t.output
	}
	return t.value
}

func (t *token) setOutput(s string) { t.output, t.hasOutput = s, true }

// extglob is an open extended group: !( ?( +( *(.
type extglob struct {
	sign   rune
	close  string
	parens int    // open parentheses before it
	inner  string // the pattern inside, as read so far
	inside grown
}

// end is what peek gives past the end of the pattern.
const end = rune(-1)

// parser translates a pattern into an expression. It follows picomatch (MIT licence, LICENSE.picomatch) in POSIX mode
// with default options, its oddities included: a glob decides whether a workflow runs, so what an author's tools say
// about it must be what happens.
type parser struct {
	in     []rune
	at     int // index of the sign under work, -1 before the first
	start  int // where the pattern proper starts, after ! and ./
	out    []byte
	tokens []*token
	bos    *token
	prev   *token

	braces   []*token
	extglobs []*extglob
	nesting  []byte // what is open: '(' or '{' or '['

	ahead ahead
	work  int // bytes written anew

	brackets, openBraces, parens int
	quoted                       bool
	negated                      bool
	rewrite                      bool // the output must be written anew from the tokens
}

// maxWork bounds what braces within braces may write anew, in bytes.
const maxWork = 1 << 24

// parse gives the inside of the expression and whether it is negated; shortcut allows the form for patterns without
// structure. The error is ErrTooLong.
func parse(pattern string, shortcut bool) (inside string, negated bool, err error) {
	if short, ok := replacements[pattern]; ok {
		pattern = short
	}
	p := &parser{in: []rune(strings.TrimPrefix(pattern, "./")), at: -1}
	p.ahead = look(p.in)
	if shortcut {
		if text, ok := simple(p.in); ok {
			return `^(?:` + text + `)$`, false, nil
		}
	}
	p.bos = &token{kind: kindStart, hasOutput: true}
	p.prev = p.bos
	p.tokens = []*token{p.bos}
	for p.at < len(p.in)-1 {
		if p.step(p.advance()); p.work > maxWork {
			return "", false, ErrTooLong
		}
	}
	p.finish()
	return string(p.out), p.negated, nil
}

func (p *parser) eos() bool { return p.at == len(p.in)-1 }

func (p *parser) peek(n int) rune {
	if i := p.at + n; i >= 0 && i < len(p.in) {
		return p.in[i]
	}
	return end
}

// advance moves to the next sign and gives it, "" past the end.
func (p *parser) advance() string {
	p.at++
	if p.at < len(p.in) {
		return string(p.in[p.at])
	}
	return ""
}

// ahead is what the rules ask about all that follows, found once for the whole pattern.
type ahead struct {
	lastBracket int // the last ]
	lastBreak   int // the last of \ / .
	parens      int // where nothing but ) is left
	lastGroup   int // the last < that could begin a look-behind or name a group
}

func look(in []rune) ahead {
	a := ahead{lastBracket: -1, lastBreak: -1, parens: len(in), lastGroup: -1}
	for a.parens > 0 && in[a.parens-1] == ')' {
		a.parens--
	}
	named := false // the signs from here on are those of a name and >
	for i := len(in) - 1; i >= 0; i-- {
		switch r := in[i]; {
		case r == ']':
			a.lastBracket = max(a.lastBracket, i)
		case r == '\\' || r == '/' || r == '.':
			a.lastBreak = max(a.lastBreak, i)
		case r == '<' && (named && in[i+1] != '>' || i+1 < len(in) && (in[i+1] == '!' || in[i+1] == '=')):
			a.lastGroup = max(a.lastGroup, i)
		}
		named = in[i] == '>' || named && isWord(in[i])
	}
	return a
}

// cut takes n bytes off the end of the output. None at all means everything, as slice(0, -0) does in the model.
func (p *parser) cut(n int) {
	if n == 0 {
		p.out = p.out[:0]
		return
	}
	p.out = p.out[:max(0, len(p.out)-n)]
}

func (p *parser) push(t *token) {
	if p.prev.kind == kindGlobstar {
		inBrace := p.openBraces > 0 && (t.kind == kindComma || t.kind == kindBrace)
		inGroup := t.extended || len(p.extglobs) > 0 && t.kind == kindParen
		if t.kind != kindSlash && t.kind != kindParen && !inBrace && !inGroup {
			// Two stars that turn out to be glued to other text act like one.
			p.cut(len(p.prev.output))
			p.prev.kind, p.prev.value = kindStar, "*"
			p.prev.setOutput(star)
			p.out = append(p.out, star...)
		}
	}
	if n := len(p.extglobs); n > 0 && t.kind != kindParen {
		g := p.extglobs[n-1]
		g.inner = g.inside.add(g.inner, t.value)
	}
	p.out = append(p.out, t.text()...)
	if p.prev.kind == kindText && t.kind == kindText {
		p.prev.setOutput(p.prev.outputs.add(cmpOr(p.prev.output, p.prev.value), t.value))
		p.prev.addValue(t.value)
		return
	}
	t.prev = p.prev
	p.tokens = append(p.tokens, t)
	p.prev = t
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// text pushes plain text; written pushes a token whose output differs from its value.
func (p *parser) text(value string) { p.push(&token{kind: kindText, value: value}) }

func (p *parser) written(k kind, value, output string) {
	p.push(&token{kind: k, value: value, output: output, hasOutput: true})
}

func (p *parser) open(sign byte, count *int) {
	*count++
	p.nesting = append(p.nesting, sign)
}

func (p *parser) shut(count *int) {
	*count--
	if n := len(p.nesting); n > 0 {
		p.nesting = p.nesting[:n-1]
	}
}

// step translates one sign. The order of the cases is the grammar.
func (p *parser) step(value string) {
	if value == "\x00" {
		return
	}
	if value == `\` {
		escaped, done := p.escapeSign()
		if done {
			return
		}
		value = escaped
	}
	switch {
	case p.brackets > 0 && (value != "]" || p.prev.value == "[" || p.prev.value == "[^"):
		p.insideBracket(value)
	case p.quoted && value != `"`:
		p.append(escape(value))
	case value == `"`:
		p.quoted = !p.quoted
	case value == "(":
		p.open('(', &p.parens)
		p.push(&token{kind: kindParen, value: value})
	case value == ")":
		p.closeParen()
	case value == "[":
		p.openBracket()
	case value == "]":
		p.closeBracket()
	case value == "{":
		p.openBrace()
	case value == "}":
		p.closeBrace()
	case value == "|":
		p.text(value)
	case value == ",":
		p.comma()
	case value == "/":
		p.slash()
	case value == ".":
		p.dot()
	case value == "?":
		p.question()
	case value == "!":
		p.exclamation()
	case value == "+":
		p.plus()
	case value == "@" && p.peek(1) == '(' && p.peek(2) != '?':
		p.push(&token{kind: kindOther, extended: true, value: value, hasOutput: true})
	case value == "@":
		p.text(value)
	case value == "*":
		p.starSign()
	default:
		p.plain(value)
	}
}

// append adds to the present token and to the output alike.
func (p *parser) append(value string) {
	p.prev.addValue(value)
	p.out = append(p.out, value...)
}

// escapeSign reads a backslash with what it escapes. done means that the sign is dealt with; otherwise the escape is
// part of a bracket.
func (p *parser) escapeSign() (value string, done bool) {
	switch p.peek(1) {
	case '/', '.', ';':
		return "", true // the backslash says nothing here
	case end:
		p.text(`\\`)
		return "", true
	}
	value = `\`
	run := 0
	for p.peek(run+1) == '\\' {
		run++
	}
	if run > 2 {
		p.at += run
		if run%2 != 0 {
			value += `\`
		}
	}
	value += p.advance()
	if p.brackets == 0 {
		p.text(value)
		return "", true
	}
	return value, false
}

func (p *parser) comma() {
	if n := len(p.braces); n > 0 && len(p.nesting) > 0 && p.nesting[len(p.nesting)-1] == '{' {
		p.braces[n-1].comma = true
		p.written(kindComma, ",", "|")
		return
	}
	p.written(kindComma, ",", ",")
}

func (p *parser) slash() {
	// A ./ at the start says nothing; dropping it lets ! and . that follow count as leading.
	if p.prev.kind == kindDot && p.at == p.start+1 {
		p.start = p.at + 1
		p.out = p.out[:0]
		p.tokens = p.tokens[:len(p.tokens)-1]
		p.prev = p.bos
		return
	}
	p.written(kindSlash, "/", `\/`)
}

func (p *parser) dot() {
	if p.openBraces > 0 && p.prev.kind == kindDot {
		if p.prev.value == "." {
			p.prev.setOutput(`\.`)
		}
		p.prev.kind = kindDots
		p.prev.setOutput(p.prev.output + ".")
		p.prev.value += "."
		if n := len(p.braces); n > 0 {
			p.braces[n-1].dots = true
		}
		return
	}
	if p.openBraces+p.parens == 0 && p.prev.kind != kindStart && p.prev.kind != kindSlash {
		p.written(kindText, ".", `\.`)
		return
	}
	p.written(kindDot, ".", `\.`)
}

// plain takes a run of signs that mean nothing in globs.
func (p *parser) plain(value string) {
	if value == "$" || value == "^" {
		value = `\` + value
	}
	rest := p.in[min(p.at+1, len(p.in)):]
	n := slices.IndexFunc(rest, func(r rune) bool { return strings.ContainsRune(`@![].,$*+?^{}()|\/`, r) })
	if n < 0 {
		n = len(rest)
	}
	p.at += n
	p.text(value + string(rest[:n]))
}

// finish closes what was left open, which then stands for itself, and settles the output.
func (p *parser) finish() {
	p.out = escapeLast(p.out, '[', p.brackets)
	p.out = escapeLast(p.out, '(', p.parens)
	p.out = escapeLast(p.out, '{', p.openBraces)
	if p.prev.kind == kindStar || p.prev.kind == kindBracket {
		p.written(kindMaybeSlash, "", `\/?`)
	}
	if !p.rewrite {
		return
	}
	p.out = p.out[:0]
	for _, t := range p.tokens {
		p.out = append(p.out, t.text()...)
	}
}
