// Package jsontree reads JSON into a small tree of its own. The order of keys survives, a bad document names its place, and
// one pass over a file of several MiB stays cheap: texts without escapes share the document's memory.
package jsontree

import (
	"math"
	"strconv"
)

// Kind is the JSON type of a value.
type Kind byte

// The kinds.
const (
	Null Kind = iota
	Bool
	Number
	Text
	List
	Object
)

// String is the kind as messages for authors name it.
func (k Kind) String() string {
	return [...]string{"null", "a truth value", "a number", "text", "a list", "an object"}[k]
}

// Node is one JSON value. Members of an object stand in ECMAScript order: array-index-like keys first and ascending, then
// the others as written; of a repeated key the first place and the last value count.
type Node struct {
	Kind  Kind
	Dirty bool    // a Text holds a lone surrogate, in three-byte form, or NUL
	Truth bool    // of a Bool
	Key   string  // name of this member in its object
	Raw   string  // the value as written
	Items []Node  // elements or members
	plain *string // of a Text: the decoded text where it has escapes; nil: it is what stands between the quotes
}

// Text is the value of a Text, "" for every other kind.
func (n *Node) Text() string {
	switch {
	case n.Kind != Text:
		return ""
	case n.plain != nil:
		return *n.plain
	}
	return n.Raw[1 : len(n.Raw)-1]
}

// Number is the value of a Number; beyond the range of a double it is infinite, as in ECMAScript.
func (n *Node) Number() float64 {
	f, err := strconv.ParseFloat(n.Raw, 64)
	if err != nil && !math.IsInf(f, 0) {
		return math.NaN() // not reached for a Number: the parser admits only what ParseFloat reads
	}
	return f
}

// Member is the value of an object's member, or nil.
func (n *Node) Member(key string) *Node {
	if n.Kind != Object {
		return nil
	}
	for i := range n.Items {
		if n.Items[i].Key == key {
			return &n.Items[i]
		}
	}
	return nil
}

// Falsy is ECMAScript's notion: null, false, 0 and the empty text.
func (n *Node) Falsy() bool {
	switch n.Kind {
	case Null:
		return true
	case Bool:
		return !n.Truth
	case Text:
		return n.Text() == ""
	case Number:
		return n.Number() == 0
	}
	return false
}
