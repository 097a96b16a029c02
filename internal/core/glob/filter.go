package glob

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// filter holds what every matching value begins and ends with, so that most values are turned away by comparing a few
// bytes. With the exact flag it decides alone.
type filter struct {
	prefix, suffix string
	inner          string // stands somewhere in every matching value
	slash          bool   // one more / may follow the suffix
	exact          bool   // a value that equals the prefix matches, others do not
}

func filterOf(n *node) filter {
	var f filter
	lead := leading{exact: true}
	lead.walk(n)
	if lead.exact {
		return filter{prefix: string(lead.out), exact: true}
	}
	var suffix []byte
	trailing(n, &suffix, &f.slash)
	slices.Reverse(suffix)
	f.prefix, f.suffix = string(lead.out), string(suffix)
	var run []byte
	longest(n, &run, &f.inner)
	keepLonger(run, &f.inner)
	if len(f.inner) <= max(len(f.prefix), len(f.suffix)) {
		f.inner = "" // most often it is one of the two
	}
	return f
}

func (f *filter) admits(s string) bool {
	if f.exact {
		return s == f.prefix
	}
	if !strings.HasPrefix(s, f.prefix) {
		return false
	}
	if !strings.HasSuffix(s, f.suffix) &&
		!(f.slash && len(s) > len(f.suffix) && s[len(s)-1] == '/' && strings.HasSuffix(s[:len(s)-1], f.suffix)) {
		return false
	}
	return f.inner == "" || strings.Contains(s, f.inner)
}

// leading collects the characters that an expression begins with. exact stays true while it consists of them alone.
type leading struct {
	out   []byte
	ended bool // an end of text stands before what comes
	exact bool
}

// walk adds what n begins with and tells whether what follows n may add to it. Assertions take no room, so they are passed
// over, but then, save for ^ and $ in their places, characters alone do not decide.
func (l *leading) walk(n *node) (further bool) {
	switch n.op {
	case opChar:
		l.exact = l.exact && !l.ended
		if appendASCII(&l.out, n.unit) {
			return true
		}
	case opBegin:
		l.exact = l.exact && len(l.out) == 0
		return true
	case opEnd:
		l.ended = true
		return true
	case opLook:
		l.exact = false
		return true
	case opConcat:
		for _, sub := range n.subs {
			if !l.walk(sub) {
				return false
			}
		}
		return true
	}
	l.exact = false
	return false
}

// trailing collects the characters that n ends with, the last one first, a single optional slash after them aside, and tells whether n
// consists of them alone.
func trailing(n *node, out *[]byte, slash *bool) (whole bool) {
	switch n.op {
	case opChar:
		return appendASCII(out, n.unit)
	case opBegin, opEnd, opLook:
		return true
	case opRepeat:
		if len(*out) == 0 && !*slash && n.low == 0 && n.high == 1 && n.subs[0].op == opChar && n.subs[0].unit == '/' {
			*slash = true
			return true
		}
	case opConcat:
		for i := len(n.subs) - 1; i >= 0; i-- {
			if !trailing(n.subs[i], out, slash) {
				return false
			}
		}
		return true
	}
	return false
}

// longest finds the longest run of characters that no choice or repetition touches.
func longest(n *node, run *[]byte, best *string) {
	switch n.op {
	case opConcat:
		for _, sub := range n.subs {
			longest(sub, run, best)
		}
		return
	case opChar:
		if appendASCII(run, n.unit) {
			return
		}
	}
	keepLonger(*run, best)
	*run = (*run)[:0]
}

func keepLonger(run []byte, best *string) {
	if len(run) > len(*best) {
		*best = string(run)
	}
}

func appendASCII(out *[]byte, u uint16) bool {
	if u >= utf8.RuneSelf {
		return false // half a character, maybe
	}
	*out = append(*out, byte(u))
	return true
}
