package jsonpath

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"kici/internal/kit/ecma"
)

// undefined is JavaScript's value of what is not there.
type undefined struct{}

// expression is the condition of a filter, as JavaScript evaluates it. It cannot fail: a member of nothing is undefined.
type expression interface {
	value(s *scope) any
}

// scope is what a condition is evaluated on. Each part of it takes one of what is left of the search's work, and texts by
// their length: a list made text over and over would be more work than visiting it.
type scope struct {
	node, root any // @ and $
	left       *int
}

// charge pays for a text of so many bytes.
func (s *scope) charge(bytes int) { *s.left -= bytes / 64 }

func (s *scope) of(x expression) any {
	if *s.left--; *s.left < 0 {
		return undefined{} // the search has ended with an error already
	}
	return x.value(s)
}

type (
	literal struct{ v any }
	member  struct{ of, name expression } // name gives text or a number
	nodeRef struct{ root bool }
	unary   struct {
		op rune // ! or -
		of expression
	}
	operator struct {
		op          string
		left, right expression
	}
)

func (l literal) value(*scope) any { return l.v }

func (n nodeRef) value(s *scope) any {
	if n.root {
		return s.root
	}
	return s.node
}

func (m member) value(s *scope) any {
	of := s.of(m.of)
	name := s.text(s.of(m.name))
	switch of := of.(type) {
	case map[string]any:
		if v, ok := of[name]; ok {
			return v
		}
	case []any:
		if name == "length" {
			return float64(len(of))
		}
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(of) {
			return of[i]
		}
	case string:
		if name == "length" {
			s.charge(len(of))
			return float64(ecma.Length(of))
		}
	}
	return undefined{}
}

func (u unary) value(s *scope) any {
	v := s.of(u.of)
	if u.op == '!' {
		return !truthy(v)
	}
	return -s.number(v)
}

func (o operator) value(s *scope) any {
	left := s.of(o.left)
	switch {
	case o.op == "&&" && !truthy(left), o.op == "||" && truthy(left):
		return left
	}
	right := s.of(o.right)
	switch o.op {
	case "===":
		return Equal(left, right)
	case "!==":
		return !Equal(left, right)
	case "==":
		return s.looselyEqual(left, right)
	case "!=":
		return !s.looselyEqual(left, right)
	case "<", "<=", ">", ">=":
		return s.ordered(o.op, left, right)
	case "+":
		if isTextual(left) || isTextual(right) {
			text := s.text(left) + s.text(right)
			s.charge(len(text))
			return text
		}
		return s.number(left) + s.number(right)
	case "-":
		return s.number(left) - s.number(right)
	case "*":
		return s.number(left) * s.number(right)
	case "/":
		return s.number(left) / s.number(right)
	case "%":
		return math.Mod(s.number(left), s.number(right))
	}
	return right // && and ||
}

func truthy(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case float64:
		return v != 0 && !math.IsNaN(v)
	case string:
		return v != ""
	}
	return true
}

// Equal compares scalars as === does. Objects and lists equal nothing, themselves included: a filter has no way to name one
// twice that would make a difference.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case undefined, bool, float64, string:
		return !isObject(b) && a == b
	}
	return false
}

func (s *scope) looselyEqual(a, b any) bool {
	nothing := func(v any) bool { return v == nil || v == any(undefined{}) }
	switch {
	case isObject(a) && isObject(b):
		return false
	case isObject(a):
		a = s.text(a)
	case isObject(b):
		b = s.text(b)
	}
	if nothing(a) || nothing(b) {
		return nothing(a) && nothing(b)
	}
	if _, ok := a.(string); ok {
		if _, ok := b.(string); ok {
			return a == b
		}
	}
	return s.number(a) == s.number(b)
}

func (s *scope) ordered(op string, a, b any) bool {
	if isTextual(a) && isTextual(b) {
		x, y := s.text(a), s.text(b)
		s.charge(min(len(x), len(y)))
		return compares(op, float64(ecma.Compare(x, y)), 0)
	}
	return compares(op, s.number(a), s.number(b))
}

func compares(op string, a, b float64) bool {
	switch op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}

func isObject(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func isTextual(v any) bool {
	_, ok := v.(string)
	return ok || isObject(v)
}

func (s *scope) text(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case undefined:
		return "undefined"
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return ecma.FormatNumber(v)
	case string:
		return v
	case []any:
		return s.join(v)
	}
	return "[object Object]"
}

// join is the text of a list: its elements with commas between, null for nothing.
func (s *scope) join(list []any) string {
	if *s.left -= len(list); *s.left < 0 {
		return ""
	}
	parts := make([]string, len(list))
	for i, e := range list {
		if e != nil {
			parts[i] = s.text(e)
		}
	}
	text := strings.Join(parts, ",")
	s.charge(len(text))
	return text
}

func (s *scope) number(v any) float64 {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 1
		}
		return 0
	case float64:
		return v
	case undefined:
		return math.NaN()
	}
	n, ok := ecma.ParseNumber(s.text(v))
	if !ok {
		return math.NaN()
	}
	return n
}

// expressionReader parses conditions by precedence climbing.
type expressionReader struct {
	text  string
	at    int
	depth int
}

// precedence of the operators, longer spellings first where one begins another.
var precedence = []struct {
	op    string
	level int
}{
	{"===", 3}, {"!==", 3}, {"==", 3}, {"!=", 3}, {"<=", 4}, {">=", 4}, {"<", 4}, {">", 4}, {"&&", 2}, {"||", 1},
	{"+", 5}, {"-", 5}, {"*", 6}, {"/", 6}, {"%", 6},
}

// whole reads up to the parenthesis that closes the filter.
func (r *expressionReader) whole() (expression, error) {
	x, err := r.binary(1)
	if err != nil {
		return nil, err
	}
	if !r.next(")") {
		return nil, fmt.Errorf("filter is not supported from %q", r.text[r.at:])
	}
	return x, nil
}

func (r *expressionReader) next(s string) bool {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
	if strings.HasPrefix(r.text[r.at:], s) {
		r.at += len(s)
		return true
	}
	return false
}

func (r *expressionReader) binary(level int) (expression, error) {
	// The bound keeps a path of parentheses from using the stack up.
	if r.depth++; r.depth > 100 {
		return nil, errors.New("filter nests too deeply")
	}
	defer func() { r.depth-- }()
	left, err := r.unary()
	if err != nil {
		return nil, err
	}
	for {
		op, found := r.operator(level)
		if op == "" {
			return left, nil
		}
		right, err := r.binary(found + 1)
		if err != nil {
			return nil, err
		}
		left = operator{op, left, right}
	}
}

func (r *expressionReader) operator(level int) (op string, found int) {
	for _, p := range precedence {
		if p.level >= level && r.next(p.op) {
			return p.op, p.level
		}
	}
	return "", 0
}

func (r *expressionReader) unary() (expression, error) {
	for _, op := range "!-" {
		if !r.next(string(op)) {
			continue
		}
		if r.depth++; r.depth > 100 {
			return nil, errors.New("filter nests too deeply")
		}
		of, err := r.unary()
		r.depth--
		return unary{op, of}, err
	}
	x, err := r.primary()
	for err == nil {
		switch {
		case r.next("."):
			name := r.word()
			if name == "" {
				return nil, errors.New("a name must follow the dot in a filter")
			}
			x = member{x, literal{name}}
		case r.next("["):
			var name expression
			if name, err = r.binary(1); err == nil && !r.next("]") {
				err = errors.New("a bracket in a filter is not closed")
			}
			x = member{x, name}
		default:
			return x, nil
		}
	}
	return nil, err
}

func (r *expressionReader) primary() (expression, error) {
	switch {
	case r.next("("):
		return r.whole()
	case r.next("@"):
		if w := r.word(); w != "" {
			return nil, fmt.Errorf("filter variable @%s is not supported", w)
		}
		return nodeRef{}, nil
	case r.next("$"):
		return nodeRef{root: true}, nil
	case r.next("'"), r.next(`"`):
		text, end, err := quoted(r.text, r.at-1)
		r.at = end
		return literal{text}, err
	}
	if n := r.number(); n != "" {
		v, ok := ecma.ParseNumber(n)
		if !ok {
			return nil, fmt.Errorf("filter holds the number %q", n)
		}
		return literal{v}, nil
	}
	words := map[string]any{"true": true, "false": false, "null": nil, "undefined": undefined{}}
	w := r.word()
	if v, ok := words[w]; ok {
		return literal{v}, nil
	}
	return nil, fmt.Errorf("filter is not supported from %q", w+r.text[r.at:])
}

func (r *expressionReader) word() string {
	return r.run(func(c byte) bool {
		return c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
	})
}

func (r *expressionReader) number() string {
	return r.run(func(c byte) bool { return c == '.' || '0' <= c && c <= '9' })
}

func (r *expressionReader) run(of func(byte) bool) string {
	begin := r.at
	for r.at < len(r.text) && of(r.text[r.at]) {
		r.at++
	}
	return r.text[begin:r.at]
}
