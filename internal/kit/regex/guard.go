package regex

import (
	"fmt"
	"strings"
)

// maxQuantifiers is how many quantifiers a guarded pattern may hold in all.
const maxQuantifiers = 25

// Guard refuses patterns that look prone to catastrophic backtracking: quantifiers nested in one another, or more than
// 25 of them. It is a heuristic on the shape of the pattern, and part of the contract with authors since it decides
// whether a lock file is taken. Nil means safe, an error that is ErrUnsafe that it is not, *SyntaxError that the pattern
// is no expression at all.
func Guard(source, flags string) error {
	if _, err := Compile(source, flags); err != nil {
		return err
	}
	// Sets of the flag v nest in ways of their own, so the scan does not understand them either.
	g := guard{src: source, lost: strings.Contains(flags, "v")}
	depth := g.disjunction()
	// What the scan does not understand is accepted: a quantified look-ahead, for one.
	if g.lost || g.pos != len(source) {
		return nil
	}
	if depth > 1 || g.count > maxQuantifiers {
		return fmt.Errorf("%w: /%s/%s", ErrUnsafe, source, flags)
	}
	return nil
}

// guard scans a pattern that is known to be valid and measures how deep quantifiers nest.
type guard struct {
	src   string
	pos   int
	count int
	nest  int // open groups, bounded
	lost  bool
}

// disjunction gives the greatest depth up to the closing parenthesis or the end.
func (g *guard) disjunction() int {
	depth := 0
	if g.nest++; g.nest > 1000 {
		g.lost = true
	}
	for g.pos < len(g.src) && g.src[g.pos] != ')' && !g.lost {
		depth = max(depth, g.term())
	}
	g.nest--
	return depth
}

func (g *guard) term() int {
	depth, assertion := 0, false
	switch g.src[g.pos] {
	case '\\':
		g.pos += 2
	case '[':
		g.class()
	case '(':
		depth, assertion = g.group()
	default:
		g.pos++
	}
	if !g.quantifier() {
		return depth
	}
	if assertion {
		g.lost = true
	}
	g.count++
	return depth + 1
}

// group skips the opening, whatever its kind, and measures the inside. Look-around counts as an assertion.
func (g *guard) group() (depth int, assertion bool) {
	g.pos++
	rest := g.src[g.pos:]
	switch {
	case strings.HasPrefix(rest, "?:"):
		g.pos += 2
	case strings.HasPrefix(rest, "?="), strings.HasPrefix(rest, "?!"):
		g.pos, assertion = g.pos+2, true
	case strings.HasPrefix(rest, "?<="), strings.HasPrefix(rest, "?<!"):
		g.pos, assertion = g.pos+3, true
	case strings.HasPrefix(rest, "?<"):
		g.pos += strings.IndexByte(rest, '>') + 1
	case strings.HasPrefix(rest, "?"):
		g.lost = true // modifiers
	}
	depth = g.disjunction()
	g.pos++
	return depth, assertion
}

func (g *guard) class() {
	for g.pos < len(g.src) && g.src[g.pos] != ']' {
		if g.src[g.pos] == '\\' {
			g.pos++
		}
		g.pos++
	}
	g.pos++
}

// quantifier skips one, lazy or not, and tells whether there was one. A brace that is none stands for itself.
func (g *guard) quantifier() bool {
	if g.pos >= len(g.src) {
		return false
	}
	size := 1
	switch g.src[g.pos] {
	case '*', '+', '?':
	case '{':
		if size = braces(g.src[g.pos:]); size == 0 {
			return false
		}
	default:
		return false
	}
	g.pos += size
	if g.pos < len(g.src) && g.src[g.pos] == '?' {
		g.pos++
	}
	return true
}

// braces gives the length of the {n}, {n,} or {n,m} at the start of s, or 0.
func braces(s string) int {
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return 0
	}
	low, high, _ := strings.Cut(s[1:end], ",")
	if low == "" || strings.Trim(low+high, "0123456789") != "" {
		return 0
	}
	return end + 1
}
