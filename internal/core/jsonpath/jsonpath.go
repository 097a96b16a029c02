// Package jsonpath looks into decoded JSON documents by paths of the jsonpath-plus dialect: the leading $ is optional, names
// need no quotes anywhere, and filters compare as JavaScript does. Paths and documents may be a stranger's: the work that
// they make is bounded.
package jsonpath

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxPath bounds a path, in bytes.
const maxPath = 4096

// ErrBudget says that a path was given up, whatever it may have found.
var ErrBudget = errors.New("path visits too much of the document")

// Path is a parsed JSON path.
type Path []segment

// segment selects among the children of a node, or with deep among those of it and all it contains.
type segment struct {
	deep      bool
	selectors []selector
}

// selector gives the selected children of a node one by one, until visit tells it to stop.
type selector interface {
	each(s *scope, visit func(any) (stop bool)) (stop bool)
}

type (
	nameSelector     string
	wildcardSelector struct{}
	sliceSelector    struct{ from, to, step *int }
	filterSelector   struct{ condition expression }
)

// paths keeps the paths seen before. It is bounded by number, and the length of each by maxPath.
var paths, _ = lru.New[string, Path](1024)

// Parse reads a path. The error says what of it is not understood.
func Parse(text string) (Path, error) {
	if p, ok := paths.Get(text); ok {
		return p, nil
	}
	r := pathReader{text: text}
	p, err := r.path()
	if err != nil {
		return nil, fmt.Errorf("read JSON path %q: %w", text, err)
	}
	paths.Add(text, p)
	return p, nil
}

// MaxVisits is how many values one search may look at: the document is a stranger's and may nest deeply, where a path with
// several .. visits a power of its size. Filters count by what they evaluate.
const MaxVisits = 1_000_000

// Search visits what the path selects in a document as encoding/json decodes it, until visit says stop, and tells whether it
// did. Its work is taken from left, what several searches may do together. The error is ErrBudget.
func (p Path) Search(document any, left *int, visit func(any) (stop bool)) (stopped bool, err error) {
	given := min(*left, MaxVisits)
	own := given
	s := scope{node: document, root: document, left: &own}
	stopped = p.walk(&s, visit)
	if *left -= given - own; own < 0 {
		return false, ErrBudget
	}
	return stopped, nil
}

// at is the scope of another node. It counts as a visit; once the work is done, every search stops.
func (s *scope) at(node any, then func(*scope) (stop bool)) (stop bool) {
	if *s.left--; *s.left < 0 {
		return true
	}
	return then(&scope{node: node, root: s.root, left: s.left})
}

func (p Path) walk(s *scope, visit func(any) bool) (stop bool) {
	if len(p) == 0 {
		return visit(s.node)
	}
	onward := func(child any) bool {
		return s.at(child, func(s *scope) bool { return p[1:].walk(s, visit) })
	}
	if !p[0].deep {
		return p[0].each(s, onward)
	}
	return s.descend(func(s *scope) bool { return p[0].each(s, onward) })
}

func (g segment) each(s *scope, visit func(any) bool) bool {
	for _, sel := range g.selectors {
		if sel.each(s, visit) {
			return true
		}
	}
	return false
}

// descend visits the node and everything in it.
func (s *scope) descend(visit func(*scope) bool) bool {
	if visit(s) {
		return true
	}
	return wildcardSelector{}.each(s, func(child any) bool {
		return s.at(child, func(s *scope) bool { return s.descend(visit) })
	})
}

// each of a name takes an object's member, or a list's element when the name is its index.
func (n nameSelector) each(s *scope, visit func(any) bool) bool {
	switch node := s.node.(type) {
	case map[string]any:
		if v, ok := node[string(n)]; ok {
			return visit(v)
		}
	case []any:
		i, err := strconv.Atoi(string(n))
		if err == nil && i >= 0 && i < len(node) && strconv.Itoa(i) == string(n) {
			return visit(node[i])
		}
	}
	return false
}

func (wildcardSelector) each(s *scope, visit func(any) bool) bool {
	switch node := s.node.(type) {
	case map[string]any:
		for _, v := range node {
			if visit(v) {
				return true
			}
		}
	case []any:
		for _, v := range node {
			if visit(v) {
				return true
			}
		}
	}
	return false
}

func (c sliceSelector) each(s *scope, visit func(any) bool) bool {
	list, ok := s.node.([]any)
	if !ok {
		return false
	}
	bound := func(at *int, otherwise int) int {
		if at == nil {
			return otherwise
		}
		if *at < 0 {
			return max(0, len(list)+*at)
		}
		return min(*at, len(list))
	}
	step := 1
	if c.step != nil {
		step = max(1, *c.step)
	}
	for i := bound(c.from, 0); i < bound(c.to, len(list)); i += step {
		if visit(list[i]) {
			return true
		}
	}
	return false
}

func (f filterSelector) each(s *scope, visit func(any) bool) bool {
	return wildcardSelector{}.each(s, func(child any) bool {
		return s.at(child, func(s *scope) bool { return truthy(s.of(f.condition)) && visit(child) })
	})
}

// pathReader parses a path.
type pathReader struct {
	text string
	at   int
}

func (r *pathReader) next(s string) bool {
	if strings.HasPrefix(r.text[r.at:], s) {
		r.at += len(s)
		return true
	}
	return false
}

func (r *pathReader) path() (Path, error) {
	if r.text == "" || len(r.text) > maxPath {
		return nil, errors.New("it is empty or too long")
	}
	var p Path
	if !r.next("$") && !strings.HasPrefix(r.text, ".") && !strings.HasPrefix(r.text, "[") {
		s, err := r.name()
		if err != nil {
			return nil, err
		}
		p = append(p, segment{selectors: s})
	}
	for r.at < len(r.text) {
		s, err := r.segment()
		if err != nil {
			return nil, err
		}
		p = append(p, s)
	}
	return p, nil
}

func (r *pathReader) segment() (segment, error) {
	deep := r.next("..")
	var s []selector
	var err error
	switch {
	case r.next("["):
		s, err = r.bracket()
	case deep, r.next("."):
		s, err = r.name()
	default:
		err = fmt.Errorf("a name must follow a dot at %q", r.text[r.at:])
	}
	return segment{deep: deep, selectors: s}, err
}

// name reads a name without quotes, or a star, after a dot.
func (r *pathReader) name() ([]selector, error) {
	end := strings.IndexAny(r.text[r.at:], ".[")
	if end < 0 {
		end = len(r.text) - r.at
	}
	text := r.text[r.at : r.at+end]
	r.at += end
	switch {
	case text == "*":
		return []selector{wildcardSelector{}}, nil
	case text == "":
		return nil, errors.New("a name is missing")
	case strings.ContainsAny(text, "^~`@()?,'\" \t\n"):
		return nil, fmt.Errorf("%q is not supported", text)
	}
	return []selector{nameSelector(text)}, nil
}

// bracket reads what stands in brackets: a filter, or a list of names, indices, slices and stars.
func (r *pathReader) bracket() ([]selector, error) {
	if r.next("?(") {
		x := expressionReader{text: r.text, at: r.at}
		condition, err := x.whole()
		if err != nil {
			return nil, err
		}
		if r.at = x.at; !r.next("]") {
			return nil, errors.New("a filter is not closed")
		}
		return []selector{filterSelector{condition}}, nil
	}
	var all []selector
	for {
		s, err := r.element()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		if r.next("]") {
			return all, nil
		}
		if !r.next(",") {
			return nil, errors.New("a bracket is not closed")
		}
	}
}

func (r *pathReader) element() (selector, error) {
	r.skipSpace()
	defer r.skipSpace()
	if r.at < len(r.text) && (r.text[r.at] == '\'' || r.text[r.at] == '"') {
		text, end, err := quoted(r.text, r.at)
		r.at = end
		return nameSelector(text), err
	}
	end := strings.IndexAny(r.text[r.at:], ",]")
	if end < 0 {
		return nil, errors.New("a bracket is not closed")
	}
	text := strings.TrimSpace(r.text[r.at : r.at+end])
	r.at += end
	switch {
	case text == "*":
		return wildcardSelector{}, nil
	case text == "" || strings.ContainsAny(text, "()?@^~`[\"'"):
		return nil, fmt.Errorf("[%s] is not supported", text)
	case strings.Contains(text, ":"):
		return slice(text)
	}
	return nameSelector(text), nil
}

func (r *pathReader) skipSpace() {
	for r.at < len(r.text) && r.text[r.at] == ' ' {
		r.at++
	}
}

func slice(text string) (selector, error) {
	parts := strings.Split(text, ":")
	if len(parts) > 3 {
		return nil, fmt.Errorf("[%s] is no slice", text)
	}
	var s sliceSelector
	for i, to := range []**int{&s.from, &s.to, &s.step}[:len(parts)] {
		if part := strings.TrimSpace(parts[i]); part != "" {
			n, err := strconv.Atoi(part)
			if err != nil {
				return nil, fmt.Errorf("[%s] is no slice", text)
			}
			*to = &n
		}
	}
	return s, nil
}

// quoted reads a text in single or double quotes and gives the place after it. A backslash makes the next character stand
// for itself.
func quoted(s string, at int) (text string, end int, err error) {
	quote := s[at]
	var b strings.Builder
	for i := at + 1; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return b.String(), i + 1, nil
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return "", len(s), errors.New("a quoted text is not closed")
}
