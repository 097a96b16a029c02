package compile

import (
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

// laidOut is a script that was laid out, with its tokens and where in the text they are.
type laidOut struct {
	text   string
	tokens []token
}

// layOut lays out a script that was made of a source, "" for a part of one. A script that cannot be read to its end stays
// as it is, and no function is found in it.
func layOut(script, source string) laidOut {
	tokens, ok := scan(script)
	if !ok {
		return laidOut{text: script}
	}
	l := layout{tokens: tokens}
	pair(l.tokens)
	if source != "" {
		addRaw(l.tokens, source)
	}
	for i := range l.tokens {
		l.out.WriteString(l.before(i))
		l.tokens[i].from = l.out.Len()
		l.out.WriteString(l.word(i))
		l.tokens[i].to = l.out.Len()
		l.after(i)
	}
	return laidOut{l.out.String(), l.tokens}
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
	case t.raw != "":
		return t.raw
	case t.kind == js.VoidToken && i+1 < len(l.tokens) && l.tokens[i+1].text == "0":
		l.skip = true
		return "undefined"
	case t.kind == js.StringToken && t.text[0] == '\'':
		return `"` + strings.ReplaceAll(strings.ReplaceAll(t.text[1:len(t.text)-1], `\'`, `'`), `"`, `\"`) + `"`
	}
	return t.text
}
