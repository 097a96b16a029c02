package glob

import (
	"strings"
)

// openExtglob begins !( ?( +( or *(. Its first token looks ahead for a character when nothing stands before it.
func (p *parser) openExtglob(sign rune) {
	g := &extglob{sign: sign, parens: p.parens}
	opening := "(?:"
	switch sign {
	case '!':
		opening, g.close = `(?:(?!(?:`, `))`+star+`)`
	default:
		g.close = ")" + string(sign)
	}
	p.open('(', &p.parens)
	k := kindOther
	if sign == '*' {
		k = kindStar
	}
	ahead := ""
	if len(p.out) == 0 {
		ahead = oneChar
	}
	p.written(k, string(sign), ahead)
	p.push(&token{kind: kindParen, extended: true, value: p.advance(), output: opening, hasOutput: true})
	p.extglobs = append(p.extglobs, g)
}

func (p *parser) closeParen() {
	if n := len(p.extglobs); n > 0 && p.parens == p.extglobs[n-1].parens+1 {
		g := p.extglobs[n-1]
		p.extglobs = p.extglobs[:n-1]
		p.closeExtglob(g)
		return
	}
	output := `\)`
	if p.parens != 0 {
		output = ")"
	}
	p.written(kindParen, ")", output)
	p.shut(&p.parens)
}

func (p *parser) closeExtglob(g *extglob) {
	output := g.close
	if g.sign == '!' {
		any := star
		if len(g.inner) > 1 && strings.Contains(g.inner, "/") {
			any = globstar
		}
		if any != star || p.eos() || p.ahead.parens <= p.at+1 {
			output = `)$))` + any
		}
		if strings.Contains(g.inner, "*") && p.extensionFollows() {
			// !(*.d).ts: what follows is part of what must not match.
			expression, _, _ := parse(string(p.in[p.at+1:]), false)
			output = `)` + expression + `)` + any + `)`
		}
	}
	p.push(&token{kind: kindParen, extended: true, value: ")", output: output, hasOutput: true})
	p.shut(&p.parens)
}

// extensionFollows tells whether all that is left is a dot and signs other than dots, slashes and backslashes.
func (p *parser) extensionFollows() bool {
	return p.peek(1) == '.' && p.ahead.lastBreak == p.at+1 && p.at+2 < len(p.in)
}

func (p *parser) question() {
	if p.prev.value != "(" && p.peek(1) == '(' && p.peek(2) != '?' {
		p.openExtglob('?')
		return
	}
	if p.prev.kind == kindParen {
		next := p.peek(1)
		output := "?"
		opens := next == '!' || next == '=' || next == '<' || next == ':'
		if p.prev.value == "(" && !opens || next == '<' && p.ahead.lastGroup <= p.at {
			output = `\?`
		}
		p.written(kindText, "?", output)
		return
	}
	output := notSlash
	if p.prev.kind == kindSlash || p.prev.kind == kindStart {
		output = qmarkNoDot
	}
	p.written(kindOther, "?", output)
}

// exclamation takes a ! that opens a group or leads the pattern; any other is plain text.
func (p *parser) exclamation() {
	if p.peek(1) == '(' {
		third := p.peek(3)
		if p.peek(2) != '?' || third != '!' && third != '=' && third != '<' && third != ':' {
			p.openExtglob('!')
			return
		}
	}
	if p.at != 0 {
		p.plain("!")
		return
	}
	count := 1
	for p.peek(1) == '!' && (p.peek(2) != '(' || p.peek(3) == '?') {
		p.advance()
		p.start++
		count++
	}
	if count%2 != 0 {
		p.negated = true
		p.start++
	}
}

func (p *parser) plus() {
	switch {
	case p.peek(1) == '(' && p.peek(2) != '?':
		p.openExtglob('+')
	case p.prev.value == "(":
		p.written(kindPlus, "+", `\+`)
	case p.prev.kind == kindBracket, p.prev.kind == kindParen, p.prev.kind == kindBrace, p.parens > 0:
		p.push(&token{kind: kindPlus, value: "+"})
	default:
		p.push(&token{kind: kindPlus, value: `\+`})
	}
}
