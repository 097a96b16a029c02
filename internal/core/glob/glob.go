// Package glob matches names of branches, tags, repositories and files against glob patterns as picomatch does with
// its default options: the whole value, case-sensitively, with leading dots hidden from wildcards. Matching is bounded
// by steps, so a hostile pattern or value costs milliseconds at most.
package glob

import (
	"errors"
	"fmt"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/kit/regex"
)

// Errors of patterns and of matching.
var (
	ErrEmpty   = errors.New("glob pattern is empty")
	ErrTooLong = fmt.Errorf("glob pattern is longer than %d characters", maxPattern)
	ErrBudget  = errors.New("glob pattern needs too many steps on this value")
)

// Pattern is a compiled glob, safe for concurrent use.
type Pattern struct {
	text string

	// Exactly one of these decides, after the text itself and the filter.
	prog  *program
	js    *regex.Regexp // patterns that hold JavaScript regular expression syntax
	never bool          // the pattern stands for an expression that is none

	filter filter
}

// compiled keeps patterns seen before, least recently used out first, since the same patterns come with every event.
// Long patterns are not kept, which bounds it to some megabytes.
var compiled, _ = lru.New[string, *Pattern](8192)

const maxCachedPattern = 512

// Compile prepares a pattern. Its errors are ErrEmpty and ErrTooLong, and what starting a sandbox may fail with; odd
// patterns are no error, they match in odd ways or nothing.
func Compile(pattern string) (*Pattern, error) {
	if p, ok := compiled.Get(pattern); ok {
		return p, nil
	}
	p, err := compile(pattern)
	if err != nil {
		return nil, err
	}
	if len(pattern) <= maxCachedPattern {
		compiled.Add(strings.Clone(pattern), p)
	}
	return p, nil
}

func compile(pattern string) (*Pattern, error) {
	inside, negated, err := source(pattern)
	if err != nil {
		return nil, err
	}
	p := &Pattern{text: pattern}
	whole := wrap(inside, negated)
	if tree, ok := parseExpression(whole); ok {
		p.prog = compileProgram(tree)
		p.filter = filterOf(tree)
		return p, nil
	}
	p.js, err = regex.Compile(whole, "")
	var syntax *regex.SyntaxError
	if errors.As(err, &syntax) {
		p.never = true
		return p, nil
	}
	return p, err
}

// nothing is an expression that never matches; it stands for patterns whose translation is no expression.
const nothing = `$^`

// Source is the ECMAScript expression that the pattern stands for, without flags. Label globs travel in lock files in
// this form. Its errors are those of Compile.
func Source(pattern string) (string, error) {
	inside, negated, err := source(pattern)
	if err != nil {
		return "", err
	}
	whole := wrap(inside, negated)
	if !valid(whole) {
		return nothing, nil
	}
	return printable(whole), nil
}

// Match compiles the pattern and tests s.
func Match(pattern, s string) (bool, error) {
	p, err := Compile(pattern)
	if err != nil {
		return false, err
	}
	return p.Test(s)
}

// Match tells whether s matches. A value that cannot be decided within the step budget does not; Test tells the two
// apart.
func (p *Pattern) Match(s string) bool {
	ok, err := p.Test(s)
	return err == nil && ok
}

// Test tells whether s matches. The empty value never does, a value equal to the pattern always. Its error is ErrBudget,
// or one of package regex.
func (p *Pattern) Test(s string) (bool, error) { return p.TestWithin(s, &Budget{Steps: maxSteps}) }

// Budget bounds what matches take together: the steps of the matcher, and the time of those patterns that are JavaScript.
// Each match has its own bound besides. It serves one goroutine at a time.
type Budget struct {
	Steps    int
	Searches *regex.Allowance
}

// TestWithin is Test on a budget.
func (p *Pattern) TestWithin(s string, b *Budget) (bool, error) {
	switch {
	case s == "":
		return false, nil
	case s == p.text:
		return true, nil
	case p.never, !p.filter.admits(s):
		return false, nil
	case p.filter.exact:
		return true, nil
	case p.js != nil:
		return p.js.MatchAny([]string{s}, b.Searches)
	}
	return p.prog.match(s, &b.Steps)
}

// Prefix is what every matching value begins with, the pattern's own text aside, which always matches. Sorted values can be
// searched by it.
func (p *Pattern) Prefix() string { return p.filter.prefix }

// Suffix is what every matching value ends with, one more slash and the pattern's own text aside.
func (p *Pattern) Suffix() string {
	if p.filter.exact {
		return p.filter.prefix
	}
	return p.filter.suffix
}

// String is the pattern as written.
func (p *Pattern) String() string { return p.text }

// valid tells whether text is an expression at all.
func valid(text string) bool {
	if _, ok := parseExpression(text); ok {
		return true
	}
	_, err := regex.Compile(text, "")
	return err == nil
}
