package glob

import (
	"slices"
	"strings"

	"kici/internal/kit/ecma"
)

var posixClasses = map[string]string{
	"alnum": `a-zA-Z0-9`, "alpha": `a-zA-Z`, "ascii": `\x00-\x7F`, "blank": ` \t`, "cntrl": `\x00-\x1F\x7F`,
	"digit": `0-9`, "graph": `\x21-\x7E`, "lower": `a-z`, "print": `\x20-\x7E `,
	"punct": `\-!"#$%&'()\*+,./:;<=>?@[\]^_` + "`" + `{|}~`, "space": ` \t\r\n\v\f`, "upper": `A-Z`,
	"word": `A-Za-z0-9_`, "xdigit": `A-Fa-f0-9`,
}

func (p *parser) openBracket() {
	if p.ahead.lastBracket <= p.at {
		p.push(&token{kind: kindBracket, value: `\[`})
		return
	}
	p.open('[', &p.brackets)
	p.push(&token{kind: kindBracket, value: "["})
}

// insideBracket adds one sign to the class that is being read.
func (p *parser) insideBracket(value string) {
	if value == ":" && p.posixClass() {
		return
	}
	if value == "[" && p.peek(1) != ':' || value == "-" && p.peek(1) == ']' {
		value = `\` + value
	}
	if value == "]" { // the first member
		value = `\]`
	}
	p.append(value)
}

// posixClass ends a [:class:] at its second colon, replacing the name by what it stands for.
func (p *parser) posixClass() bool {
	inner := tail(p.prev.value)
	if !strings.Contains(inner, "[") {
		return false
	}
	p.prev.posix = true
	if !strings.Contains(inner, ":") {
		return false
	}
	open := strings.LastIndexByte(p.prev.value, '[')
	members, ok := posixClasses[p.prev.value[min(open+2, len(p.prev.value)):]]
	if !ok {
		return false
	}
	p.prev.value = p.prev.value[:open] + members
	p.rewrite = true
	p.advance()
	if p.bos.output == "" && len(p.tokens) > 1 && p.tokens[1] == p.prev {
		p.bos.setOutput(oneChar)
	}
	return true
}

func (p *parser) closeBracket() {
	if p.prev.kind == kindBracket && len(p.prev.value) == 1 || p.brackets == 0 {
		p.written(kindText, "]", `\]`)
		return
	}
	p.shut(&p.brackets)
	value := "]"
	inner := tail(p.prev.value)
	if !p.prev.posix && strings.HasPrefix(inner, "^") && !strings.Contains(inner, "/") {
		value = "/]" // a negated class does not cross slashes
	}
	p.append(value)
	if strings.ContainsAny(inner, special) {
		return
	}
	// A class without signs matches its own text, too: who writes [ab] may have meant a file of that name.
	p.cut(len(p.prev.value))
	p.prev.value = `(?:` + escape(p.prev.value) + `|` + p.prev.value + `)`
	p.out = append(p.out, p.prev.value...)
}

// tail is s without its first character.
func tail(s string) string {
	for i := range s {
		if i > 0 {
			return s[i:]
		}
	}
	return ""
}

func (p *parser) openBrace() {
	p.open('{', &p.openBraces)
	b := &token{
		kind: kindBrace, value: "{", output: "(", hasOutput: true, outputIndex: len(p.out), tokensIndex: len(p.tokens),
	}
	p.braces = append(p.braces, b)
	p.push(b)
}

func (p *parser) closeBrace() {
	n := len(p.braces)
	if n == 0 {
		p.written(kindText, "}", "}")
		return
	}
	brace := p.braces[n-1]
	value, output := "}", ")"
	if brace.dots {
		output = p.rangeOf()
		p.rewrite = true
	}
	if !brace.comma && !brace.dots {
		// Braces around a single thing stand for themselves.
		brace.value = `\{`
		brace.setOutput(`\{`)
		value, output = `\}`, `\}`
		p.out = p.out[:min(brace.outputIndex, len(p.out))]
		for _, t := range p.tokens[min(brace.tokensIndex, len(p.tokens)):] {
			text := cmpOr(t.output, t.value)
			p.out = append(p.out, text...)
			p.work += 1 + len(text)
		}
	}
	p.written(kindBrace, value, output)
	p.shut(&p.openBraces)
	p.braces = p.braces[:n-1]
}

// rangeOf takes the tokens of {a..b} back and gives a class of its ends, so that 1..10 is the class 0 to 1. Where that is
// no class, the ends with anything between them.
func (p *parser) rangeOf() string {
	var ends []string
	for i := len(p.tokens) - 1; i >= 0; i-- {
		t := p.tokens[i]
		p.tokens = p.tokens[:i]
		if t.kind == kindBrace {
			break
		}
		if t.kind != kindDots {
			ends = append(ends, t.value)
		}
	}
	slices.SortFunc(ends, ecma.Compare)
	class := "[" + strings.Join(ends, "-") + "]"
	if valid(class) {
		return class
	}
	for i := range ends {
		ends[i] = escape(ends[i])
	}
	return strings.Join(ends, "..")
}
