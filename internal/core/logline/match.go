package logline

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// ErrQuery says that a search cannot be made as it was asked for.
var ErrQuery = errors.New("bad search")

// Bounds of what is searched for. An expression of that many instructions takes a few milliseconds for a line of a
// megabyte.
const (
	maxQuery   = 1000 // bytes
	maxProgram = 5000 // instructions of a compiled expression
)

// Matcher tells where in a text the wanted begins, or −1. The text is only lent. A matcher is for one user at a time.
type Matcher func(text []byte) int

// Compile makes the matcher of a text or, instead, of an RE2 expression. With fold, upper and lower case are the same.
// errors.Is(err, ErrQuery) holds for its errors.
func Compile(text, pattern string, fold bool) (Matcher, error) {
	switch {
	case text == "" && pattern == "":
		return nil, fmt.Errorf("%w: it needs a text or an expression", ErrQuery)
	case text != "" && pattern != "":
		return nil, fmt.Errorf("%w: it takes a text or an expression, not both", ErrQuery)
	case len(text)+len(pattern) > maxQuery:
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrQuery, maxQuery)
	case pattern != "":
		return expression(pattern, fold)
	case fold:
		return foldedText(text), nil
	}
	wanted := []byte(text)
	return func(text []byte) int { return bytes.Index(text, wanted) }, nil
}

// expression compiles an RE2 expression, whose time is linear in the text whatever its form.
func expression(pattern string, fold bool) (Matcher, error) {
	flags := syntax.Perl
	if fold {
		flags |= syntax.FoldCase
	}
	parsed, err := syntax.Parse(pattern, flags)
	if err != nil {
		return nil, fmt.Errorf("%w: the expression is not RE2: %w", ErrQuery, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxProgram {
		return nil, fmt.Errorf("%w: the expression is too large; repeat less", ErrQuery)
	}
	if fold {
		pattern = "(?i:" + pattern + ")"
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("%w: the expression is not RE2: %w", ErrQuery, err)
	}
	return func(text []byte) int {
		if found := compiled.FindIndex(text); found != nil {
			return found[0]
		}
		return -1
	}, nil
}

// foldedText finds a text in either case. The place is that in the folded text, which differs from the place in the text
// itself by a few bytes at most for rare letters; it only chooses what is shown of a very long line.
func foldedText(wanted string) Matcher {
	needle := appendFolded(nil, []byte(wanted))
	var folded []byte
	return func(text []byte) int {
		folded = appendFolded(folded[:0], text)
		return bytes.Index(folded, needle)
	}
}

// appendFolded appends text with every letter replaced by one that stands for all its cases.
func appendFolded(buf, text []byte) []byte {
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			buf = append(buf, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		buf = utf8.AppendRune(buf, foldRune(r))
		i += size
	}
	return buf
}

// foldRune is the lower case of the smallest rune that Unicode folds together with r.
func foldRune(r rune) rune {
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return unicode.ToLower(least)
}
