package compile

import (
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

// layOut gives a part of a script, whose tokens it begins and ends with, as it is with the whole of it laid out.
func layOut(script string, from, to int) string {
	tokens := scan(script)
	pair(tokens)
	l := layout{tokens: tokens}
	start := -1
	for i := range tokens {
		if tokens[i].start >= to {
			break
		}
		white := l.before(i)
		if tokens[i].start >= from && start < 0 {
			start = l.out.Len() + len(white)
		}
		l.out.WriteString(white + l.word(i))
		l.after(i)
	}
	if start < 0 {
		return script[from:to] // nothing that is a token
	}
	return l.out.String()[start:]
}

// layout is a script that is being written.
type layout struct {
	tokens []token
	out    strings.Builder
	within *bracket
	skip   bool // the token was written with the one before it
}

// before is the white space before a token. It also leaves the brackets that the token closes.
func (l *layout) before(i int) string {
	t := l.tokens[i]
	switch {
	case i == 0, l.skip:
		return ""
	case t.close != nil:
		closed := l.within
		l.within = closed.around
		return l.beside(closed, i == closed.first+1, l.indent())
	case l.tokens[i-1].open != nil:
		return l.beside(l.within, false, l.within.indent)
	case l.within != nil && l.within.lines() && l.within.role != block && l.tokens[i-1].kind == js.CommaToken:
		return line(l.within.indent)
	case t.newline && (l.within == nil || l.within.role == block) && !dependent(l.tokens, i):
		return l.statement(i)
	case t.space:
		return " "
	}
	return ""
}

// beside is the white space behind an opening bracket and before a closing one.
func (l *layout) beside(b *bracket, empty bool, indent int) string {
	switch {
	case empty:
		return ""
	case b.lines():
		return line(indent)
	case l.tokens[b.first].kind == js.OpenBraceToken:
		return " "
	}
	return ""
}

// statement is the white space before one: a line of its own, but for the only one of a case.
func (l *layout) statement(i int) string {
	if l.within == nil {
		return line(0)
	}
	switch last := l.tokens[i-1]; {
	case clauseHead(l.tokens[i]):
		l.within.clause = false
	case last.alone:
		return " "
	case last.kind == js.ColonToken && clauseColon(l.tokens, i-1):
		l.within.clause = true
	}
	return line(l.indent())
}

// indent is that of the line on which something of the current brackets is.
func (l *layout) indent() int {
	if l.within == nil {
		return 0
	}
	if l.within.clause {
		return l.within.indent + 1
	}
	return l.within.indent
}

func line(indent int) string { return "\n" + strings.Repeat("\t", indent) }

// after enters the brackets that a token opens.
func (l *layout) after(i int) {
	b := l.tokens[i].open
	if b == nil {
		return
	}
	b.indent = l.indent()
	if b.lines() {
		b.indent++
	}
	l.within = b
}

// word is the text of a token. esbuild writes undefined as `void 0`, and a string that holds double quotes in single ones.
func (l *layout) word(i int) string {
	t := l.tokens[i]
	switch {
	case l.skip:
		l.skip = false
		return ""
	case t.kind == js.VoidToken && i+1 < len(l.tokens) && l.tokens[i+1].text == "0":
		l.skip = true
		return "undefined"
	case t.kind == js.StringToken && t.text[0] == '\'':
		return `"` + strings.ReplaceAll(strings.ReplaceAll(t.text[1:len(t.text)-1], `\'`, `'`), `"`, `\"`) + `"`
	}
	return t.text
}
