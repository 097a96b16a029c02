package label

import (
	"fmt"
	"strings"

	"kici/internal/core/glob"
	"kici/internal/kit/regex"
)

// Element turns a text that an author wrote in runsOn into the matcher for the lock file: a glob becomes an expression,
// anything else an exact label. A leading `!` is part of the label. The error is a glob whose expression could take
// exponential time (it says `ReDoS-prone`), or that is not a glob.
func Element(text string) (Matcher, error) {
	if !isGlob(text) {
		return Matcher{Kind: Exact, Value: text}, nil
	}
	source, err := glob.Source(text)
	if err != nil {
		return Matcher{}, fmt.Errorf("label glob %q: %w", text, err)
	}
	if regex.Guard(source, "") != nil {
		return Matcher{}, fmt.Errorf("label glob %q is ReDoS-prone: the expression that it becomes repeats what is repeated already", text)
	}
	return Matcher{Kind: Regex, Source: source}, nil
}

// Reading is what Element makes of a text, for a program that describes jobs in another language. Without a Matcher it
// says what is wrong.
type Reading struct {
	Matcher *Matcher `json:"matcher,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Read reads each text as Element does.
func Read(texts []string) []Reading {
	list := make([]Reading, len(texts))
	for i, text := range texts {
		if m, err := Element(text); err != nil {
			list[i].Error = err.Error()
		} else {
			list[i].Matcher = &m
		}
	}
	return list
}

// isGlob tells whether picomatch would see a glob in the text: a star, a question mark, a parenthesis, a closed bracket
// or braces with a choice. Escaped characters do not count.
func isGlob(text string) bool {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '*', '?', '(':
			return true
		case '[':
			end := closing(text, i, ']')
			return end > 0 // an open bracket swallows the rest, whatever it holds
		case '{':
			end := closing(text, i, '}')
			if end < 0 {
				return false
			}
			if inside := text[i:end]; strings.Contains(inside, ",") || strings.Contains(inside, "..") {
				return true
			}
		}
	}
	return false
}

func closing(text string, from int, mark byte) int {
	for i := from + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case mark:
			return i
		}
	}
	return -1
}
