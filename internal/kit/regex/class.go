package regex

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// class translates a bracketed set. The empty sets [] and [^] have no RE2 form.
func (t *translator) class() bool {
	t.pos++
	t.out.WriteByte('[')
	if t.peek(1) == "^" {
		t.pos++
		t.out.WriteByte('^')
	}
	if t.peek(1) == "]" {
		return false
	}
	for t.pos < len(t.src) {
		if t.src[t.pos] == ']' {
			t.pos++
			t.out.WriteByte(']')
			return true
		}
		if !t.classRange() {
			return false
		}
	}
	return false
}

// classRange translates one member, or a range of two. A set escape at either end of a dash means three things in lax
// syntax and is an error in strict, so it is left to the sandbox.
func (t *translator) classRange() bool {
	if set, ok := t.setEscape(); ok {
		t.out.WriteString(set)
		return t.peek(1) != "-" || t.peek(2) == "-]"
	}
	low, ok := t.classChar()
	if !ok {
		return false
	}
	if t.peek(1) != "-" || t.peek(2) == "-]" || len(t.peek(2)) < 2 {
		return t.member(low, low)
	}
	t.pos++
	high, ok := t.classChar()
	return ok && low <= high && t.member(low, high)
}

func (t *translator) member(low, high rune) bool {
	limit := rune(0xFFFF)
	switch {
	case t.fold:
		limit = utf8.RuneSelf - 1
	case t.unicode:
		limit = utf8.MaxRune
	}
	if high > limit || low <= 0xDFFF && high >= 0xD800 {
		return false // a range over the surrogates holds halves of characters
	}
	fmt.Fprintf(&t.out, `\x{%x}-\x{%x}`, low, high)
	return true
}

func (t *translator) classChar() (rune, bool) {
	if t.pos >= len(t.src) {
		return 0, false
	}
	if t.src[t.pos] != '\\' {
		r, size := utf8.DecodeRuneInString(t.src[t.pos:])
		t.pos += size
		return r, true
	}
	if strings.HasPrefix(t.src[t.pos:], `\b`) {
		t.pos += 2
		return '\b', true
	}
	return t.charEscape("-")
}
