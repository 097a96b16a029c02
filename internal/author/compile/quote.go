package compile

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// A lock file quotes a function as the script has it that a compiler has made of the author's file. To write what other
// compilers write, its text must be laid out as theirs is: with tabs as deep as the function stands in its file, objects of
// several members and lists of three and more with one a line, strings in double quotes. Ours comes from esbuild, which
// has already settled all of the rest in the same way.

// quote gives the text of a function as it stands in a script that was laid out. Where a function of this text stands at
// several places it is the first behind a line of the script, counted from 1, else the first of all. A script without it
// gives "".
func (s laidOut) quote(line int, function string) string {
	wanted, ok := scan(function)
	if !ok || len(wanted) == 0 {
		return ""
	}
	found := -1
	for i, t := range s.tokens {
		if (found < 0 || t.row >= line) && begins(s.tokens[i:], wanted) {
			if found = i; t.row >= line {
				break
			}
		}
	}
	if found < 0 {
		return ""
	}
	return s.text[s.tokens[found].from:s.tokens[found+len(wanted)-1].to]
}

// begins tells whether the tokens begin with others, whatever white space is between.
func begins(tokens, others []token) bool {
	return len(tokens) >= len(others) && slices.EqualFunc(tokens[:len(others)], others, func(a, b token) bool { return a.kind == b.kind && a.text == b.text })
}

// token is a word or sign of a script.
type token struct {
	kind     js.TokenType
	text     string
	raw      string   // of a part of a template, as the author wrote it; "" is the text
	row      int      // line of the script, from 1
	from, to int      // bytes of the script that was laid out
	newline  bool     // a line ends before it
	space    bool     // something white stands before it
	open     *bracket // that it opens
	close    *bracket // that it closes
	in       *bracket // around it
	alone    bool     // the colon of a case with one statement, which stands on its line
}

// bracket is a pair of them with what they hold.
type bracket struct {
	role   role
	around *bracket
	first  int // token that opens it
	last   int // token that closes it
	commas int // in it, not in others that it holds

	// While a script is laid out:
	indent int  // of the lines in it
	clause bool // those of a case are being written, which stand one deeper
}

// role is what a pair of brackets is for.
type role int

const (
	group   role = iota // of a call, a condition or an expression, and the gaps of a template
	params              // of a function
	block               // of statements or of members of a class
	members             // a value
	list                // a value
	pattern             // of names that get a value
)

// lines tells whether each member has a line of its own.
func (b *bracket) lines() bool {
	switch b.role {
	case block:
		return b.last > b.first+1
	case members:
		return b.commas > 0
	case list:
		return b.commas > 1
	}
	return false
}

// scan splits a script, without its comments. It is not ok where the script has something that is no token.
func scan(script string) (tokens []token, ok bool) {
	lexer := js.NewLexer(parse.NewInputString(script))
	newline, space, row := false, false, 1
	for {
		kind, data := lexer.Next()
		if (kind == js.DivToken || kind == js.DivEqToken) && expressionBegins(tokens) {
			kind, data = lexer.RegExp()
		}
		switch kind {
		case js.ErrorToken:
			return tokens, lexer.Err() == io.EOF
		case js.LineTerminatorToken, js.CommentLineTerminatorToken:
			newline, space = true, true
		case js.WhitespaceToken, js.CommentToken:
			space = true
		default:
			tokens = append(tokens, token{kind: kind, text: string(data), row: row, newline: newline, space: space})
			newline, space = false, false
		}
		row += bytes.Count(data, []byte("\n"))
	}
}

// expressionBegins tells whether what follows begins an expression, and does not go on with one.
func expressionBegins(tokens []token) bool {
	if len(tokens) == 0 {
		return true
	}
	switch last := tokens[len(tokens)-1]; last.kind {
	case js.CloseParenToken, js.CloseBracketToken, js.CloseBraceToken, js.StringToken, js.TemplateToken, js.TemplateEndToken, js.RegExpToken,
		js.PrivateIdentifierToken, js.ThisToken, js.NullToken, js.TrueToken, js.FalseToken, js.SuperToken, js.IncrToken, js.DecrToken:
		return false
	default:
		return last.kind == js.OfToken || !js.IsNumeric(last.kind) && !js.IsIdentifier(last.kind)
	}
}

// addRaw gives the parts of templates their text in the author's source: esbuild writes out what was escaped there. Where
// the two do not have the same parts, they stay as they are.
func addRaw(tokens []token, source string) {
	written, ok := scan(strings.ReplaceAll(source, "\r\n", "\n"))
	raw, parts := templateParts(written), templateParts(tokens)
	if !ok || len(raw) != len(parts) {
		return
	}
	for i, part := range parts {
		if w := raw[i]; w.kind != part.kind || !strings.Contains(w.text, `\`) && w.text != part.text {
			return
		}
	}
	for i, part := range parts {
		part.raw = raw[i].text
	}
}

func templateParts(tokens []token) (parts []*token) {
	for i := range tokens {
		switch tokens[i].kind {
		case js.TemplateToken, js.TemplateStartToken, js.TemplateMiddleToken, js.TemplateEndToken:
			parts = append(parts, &tokens[i])
		}
	}
	return parts
}

// pair finds the brackets of a script and what each is for.
func pair(tokens []token) {
	var around *bracket
	for i := range tokens {
		t := &tokens[i]
		if closes(t.kind) && around != nil {
			around.last, t.close = i, around
			around = around.around
		}
		t.in = around
		if opens(t.kind) {
			t.open = &bracket{around: around, first: i, last: len(tokens)}
			around = t.open
		}
		if t.kind == js.CommaToken && around != nil {
			around.commas++
		}
	}
	for i := range tokens {
		if b := tokens[i].open; b != nil {
			b.role = roleOf(tokens, i, b)
		}
	}
	for i := range tokens {
		if tokens[i].kind == js.ColonToken && clauseColon(tokens, i) {
			tokens[i].alone = statements(tokens, i) == 1
		}
	}
}

// statements counts those of a case that have lines of their own.
func statements(tokens []token, colon int) (n int) {
	in := tokens[colon].in
	for i := colon + 1; i < len(tokens) && (in == nil || i < in.last) && !(tokens[i].in == in && clauseHead(tokens[i])); i++ {
		if tokens[i].in == in && tokens[i].newline && tokens[i].close == nil && !dependent(tokens, i) {
			n++
		}
	}
	return n
}

// dependent tells whether a token begins a statement that is part of another, which stands on the line of that one.
func dependent(tokens []token, i int) bool {
	if i == 0 {
		return false
	}
	last := tokens[i-1]
	if last.close != nil && last.close.first > 0 && last.kind == js.CloseParenToken {
		switch tokens[last.close.first-1].kind {
		case js.IfToken, js.ForToken, js.WhileToken:
			return true
		}
	}
	return last.kind == js.ElseToken || last.kind == js.DoToken
}

// clauseHead tells whether a token begins a case, where it begins a statement.
func clauseHead(t token) bool { return t.kind == js.CaseToken || t.kind == js.DefaultToken }

func opens(kind js.TokenType) bool {
	switch kind {
	case js.OpenBraceToken, js.OpenParenToken, js.OpenBracketToken, js.TemplateStartToken, js.TemplateMiddleToken:
		return true
	}
	return false
}

func closes(kind js.TokenType) bool {
	switch kind {
	case js.CloseBraceToken, js.CloseParenToken, js.CloseBracketToken, js.TemplateMiddleToken, js.TemplateEndToken:
		return true
	}
	return false
}

// roleOf tells what the brackets are for that open at a token.
func roleOf(tokens []token, at int, b *bracket) role {
	before := js.SemicolonToken
	if at > 0 {
		before = tokens[at-1].kind
	}
	switch tokens[at].kind {
	case js.OpenParenToken:
		return roleOfParen(tokens, b, before)
	case js.OpenBraceToken:
		return roleOfBrace(tokens, at, b, before)
	case js.OpenBracketToken:
		switch {
		case names(b, before):
			return pattern
		case expressionBegins(tokens[:at]):
			return list
		}
	}
	return group
}

// names tells whether brackets hold names that get a value: those of a parameter or of a declaration.
func names(b *bracket, before js.TokenType) bool {
	if b.around != nil && (b.around.role == params || b.around.role == pattern) {
		return before != js.EqToken
	}
	return before == js.ConstToken || before == js.LetToken || before == js.VarToken
}

func roleOfParen(tokens []token, b *bracket, before js.TokenType) role {
	after := js.SemicolonToken
	if b.last+1 < len(tokens) {
		after = tokens[b.last+1].kind
	}
	switch {
	case after == js.ArrowToken:
		return params
	case after != js.OpenBraceToken:
		return group
	}
	switch before {
	case js.IfToken, js.ForToken, js.WhileToken, js.SwitchToken, js.WithToken, js.AwaitToken:
		return group
	}
	return params
}

func roleOfBrace(tokens []token, at int, b *bracket, before js.TokenType) role {
	if names(b, before) {
		return pattern
	}
	switch before {
	case js.ArrowToken, js.CloseParenToken, js.SemicolonToken, js.ElseToken, js.DoToken, js.TryToken, js.FinallyToken, js.StaticToken, js.CatchToken:
		return block
	case js.OpenBraceToken, js.CloseBraceToken:
		return block // of statements, which no value begins
	case js.ColonToken:
		if clauseColon(tokens, at-1) {
			return block
		}
		return members
	}
	if !expressionBegins(tokens[:at]) {
		return block // of a class, after its name or the one that it extends
	}
	return members
}

// clauseColon tells whether a colon ends the head of a case, or a label.
func clauseColon(tokens []token, colon int) bool {
	depth := 0
	for i := colon - 1; i >= 0; i-- {
		switch t := tokens[i]; {
		case t.close != nil && t.open == nil:
			depth++
		case t.open != nil && t.close == nil:
			if depth == 0 {
				return t.open.role == block && i == colon-2 // a label is one word
			}
			depth--
		case depth > 0:
		case t.kind == js.CaseToken, t.kind == js.DefaultToken:
			return true
		case t.kind == js.QuestionToken, t.kind == js.CommaToken:
			return false
		case t.kind == js.SemicolonToken:
			return i == colon-2
		}
	}
	return colon == 1
}
