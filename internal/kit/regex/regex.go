// Package regex runs JavaScript regular expressions on text that strangers wrote. A pattern in the part of the language
// that RE2 shares runs on Go's regexp in linear time; every other one (look-around, back-references, what depends on
// UTF-16) runs in a sandboxed JavaScript engine with a time limit.
package regex

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
)

// MaxInput bounds a subject, in bytes: larger than any comment or label, small enough to hand to the sandbox.
const MaxInput = 1 << 20

// maxSource bounds a pattern, in bytes.
const maxSource = 1 << 16

// Errors that callers tell apart. ErrTimeout says nothing about the text: an expression that was cut short has neither
// matched nor failed to.
var (
	ErrTimeout = errors.New("regular expression took too long")
	ErrUnsafe  = errors.New("regular expression is ReDoS-prone")
	ErrInput   = errors.New("text is too long for a regular expression")
)

// SyntaxError says that a pattern or its flags are not JavaScript.
type SyntaxError struct {
	Source, Flags string
	Message       string // of the parser
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid regular expression /%s/%s: %s", e.Source, e.Flags, e.Message)
}

// Regexp is a compiled expression, safe for concurrent use.
type Regexp struct {
	source, flags string
	linear        *regexp.Regexp // nil when the pattern is outside the shared part
	needs         subject        // what a text must be like for linear to mean the same
}

// compiled keeps what was compiled before, least recently used out first: the same few patterns of a fleet and its
// workflows come with every event. Long patterns are not kept, which bounds its memory to some megabytes.
var compiled, _ = lru.New[string, *Regexp](2048)

const maxCachedSource = 1024

// Compile prepares the expression. Its errors are *SyntaxError, or that of a sandbox that could not be started.
func Compile(source, flags string) (*Regexp, error) {
	key := flags + "/" + source
	if r, ok := compiled.Get(key); ok {
		return r, nil
	}
	r, err := compile(source, flags)
	if err != nil {
		return nil, err
	}
	if len(source) <= maxCachedSource {
		compiled.Add(key, r)
	}
	return r, nil
}

func compile(source, flags string) (*Regexp, error) {
	if len(source) > maxSource {
		return nil, &SyntaxError{Source: source[:40] + "…", Flags: flags, Message: "pattern is too long"}
	}
	if !validFlags(flags) {
		return nil, &SyntaxError{Source: source, Flags: flags, Message: "invalid flags"}
	}
	r := &Regexp{source: source, flags: flags}
	if text, needs, ok := translate(source, flags); ok {
		linear, err := regexp.Compile(text)
		if err == nil {
			r.linear, r.needs = linear, needs
			return r, nil
		}
		// RE2 bounds repetition and size, JavaScript does not: the sandbox takes it.
	}
	if err := sandboxCompile(source, flags); err != nil {
		return nil, err
	}
	return r, nil
}

// validFlags accepts each of JavaScript's flags at most once, and not both Unicode modes together.
func validFlags(flags string) bool {
	for i, f := range flags {
		if !strings.ContainsRune("dgimsuvy", f) || strings.ContainsRune(flags[:i], f) {
			return false
		}
	}
	return !strings.Contains(flags, "u") || !strings.Contains(flags, "v")
}

// Search compiles the expression and tells whether it finds something in s. Errors are those of Compile and Match.
func Search(source, flags, s string) (bool, error) {
	r, err := Compile(source, flags)
	if err != nil {
		return false, err
	}
	return r.Match(s)
}

// Match tells whether the expression finds something in s. As with RegExp.prototype.test on a fresh object, the flag y
// anchors the search at the start and g changes nothing. A search that runs out of time is ErrTimeout, never a match.
func (r *Regexp) Match(s string) (bool, error) { return r.MatchAny([]string{s}, nil) }

// MatchAny tells whether the expression finds something in any of the texts. They are searched together within the time of
// one search, and their length together is bounded by MaxInput unless the expression runs in linear time. The time is taken
// from the allowance, where there is one.
func (r *Regexp) MatchAny(texts []string, a *Allowance) (bool, error) {
	var odd []string // what the linear form does not serve
	size := 0
	for _, s := range texts {
		switch {
		case len(s) > MaxInput:
			return false, ErrInput
		case r.linear == nil || !r.needs.holdsFor(s):
			odd = append(odd, s)
			size += len(s)
		case r.linear.MatchString(s):
			return true, nil
		}
	}
	switch {
	case len(odd) == 0:
		return false, nil
	case size > MaxInput:
		return false, ErrInput
	}
	return sandboxMatch(r.source, r.flags, odd, a)
}

// String is the expression as JavaScript writes it.
func (r *Regexp) String() string { return "/" + r.source + "/" + r.flags }
