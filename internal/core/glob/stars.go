package glob

func (p *parser) starSign() {
	if p.prev.kind == kindGlobstar || p.prev.star {
		// Three stars and more are one.
		p.prev.kind, p.prev.star = kindStar, true
		p.prev.addValue("*")
		p.prev.setOutput(star)
		p.rewrite = true
		return
	}
	if p.peek(1) == '(' && p.peek(2) != '?' && p.peek(2) != end {
		p.openExtglob('*')
		return
	}
	if p.prev.kind == kindStar {
		p.secondStar()
		return
	}
	if p.at == p.start || p.prev.kind == kindSlash || p.prev.kind == kindDot {
		ahead := noDot
		if p.prev.kind == kindDot {
			ahead = noDotSlash
		}
		if p.peek(1) != '*' {
			ahead += oneChar
		}
		p.out = append(p.out, ahead...)
		p.prev.setOutput(p.prev.output + ahead)
	}
	p.written(kindStar, "*", star)
}

// secondStar makes a globstar of two stars that are a whole segment.
func (p *parser) secondStar() {
	prior := p.prev.prev
	atStart := prior.kind == kindSlash || prior.kind == kindStart
	inBrace := p.openBraces > 0 && (prior.kind == kindComma || prior.kind == kindBrace)
	if !atStart && prior.kind != kindParen && !inBrace {
		p.written(kindStar, "*", "")
		return
	}
	for p.peek(1) == '/' && p.peek(2) == '*' && p.peek(3) == '*' {
		if after := p.peek(4); after != end && after != '/' {
			break
		}
		p.at += 3
	}
	p.becomeGlobstar(prior)
}

// becomeGlobstar turns the present star into a globstar, whose form depends on what stands on either side. A slash next
// to it becomes optional together with it.
func (p *parser) becomeGlobstar(prior *token) {
	prev := p.prev
	before := prior.prev
	afterStar := before != nil && (before.kind == kindStar || before.kind == kindGlobstar)
	afterSlash := prior.kind == kindSlash && before.kind != kindStart
	slashNext := p.peek(1) == '/'
	both := len(prior.output) + len(prev.output)

	prev.kind = kindGlobstar
	prev.value += "*"
	switch {
	case prior.kind == kindStart && p.eos():
		p.out = p.out[:0]
		prev.setOutput(globstar)
	case afterSlash && !afterStar && p.eos():
		p.cut(both)
		prior.setOutput(`(?:` + prior.output)
		prev.setOutput(globstar + `|$)`)
		p.out = append(p.out, prior.output...)
	case afterSlash && slashNext:
		tail := ""
		if p.peek(2) != end {
			tail = `|$`
		}
		p.cut(both)
		prior.setOutput(`(?:` + prior.output)
		prev.setOutput(globstar + `\/|\/` + tail + `)`)
		p.out = append(p.out, prior.output...)
	case prior.kind == kindStart && slashNext:
		p.out = p.out[:0]
		prev.setOutput(`(?:^|\/|` + globstar + `\/)`)
	default:
		p.cut(len(prev.output))
		prev.setOutput(globstar)
		p.out = append(p.out, prev.output...)
		return
	}
	p.out = append(p.out, prev.output...)
	if slashNext {
		p.advance()
		p.push(&token{kind: kindSlash, value: "/", hasOutput: true})
	}
}
