package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Kind is what a YAML node is.
type Kind int

// The kinds of nodes: the core schema of YAML 1.2.
const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	List
	Map
)

// String is the kind in words for people.
func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a number with a fraction", "text", "a list", "a mapping"}[k]
}

// Node is a part of a YAML document.
type Node struct {
	Kind   Kind
	Line   int     // in the file, from 1
	Text   string  // scalars: as written, without quotes
	Bool   bool    // Bool
	Int    int64   // Int
	Float  float64 // Int and Float
	Items  []Node  // List
	Fields []Field // Map, in the order of the file, no key twice
}

// Field is one entry of a mapping.
type Field struct {
	Key   string
	Line  int
	Value Node
}

// MaxYAML bounds a document, in bytes; what people write by hand is far smaller.
const MaxYAML = 1 << 20

// maxDepth bounds the nesting of a document, since every level costs stack.
const maxDepth = 64

// LineError says what is wrong in a line of a file.
type LineError struct {
	Line int // 0 when unknown
	Text string
}

func (e *LineError) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Text)
}

// ParseYAML reads one YAML document by the core schema of YAML 1.2: "yes" and "on" are texts, "010" is ten, dates are
// texts. Tags, anchors, merge keys and a second document are refused, as is a key that comes twice. An empty document is
// Null. Errors are *LineError.
func ParseYAML(raw []byte) (node Node, err error) {
	if len(raw) > MaxYAML {
		return Node{}, &LineError{Text: fmt.Sprintf("the document has more than %d bytes", MaxYAML)}
	}
	if line, deep := tooDeep(raw); deep {
		return Node{}, &LineError{Line: line, Text: fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	defer func() {
		if recover() != nil { // the parser indexes past its tokens on some broken documents
			node, err = Node{}, &LineError{Text: "not a YAML document"}
		}
	}()
	file, err := parser.ParseBytes(raw, 0, parser.AllowDuplicateMapKey()) // duplicates are found below, with their line
	if err != nil {
		return Node{}, syntaxError(err)
	}
	var found bool
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if found {
			return Node{}, lineError(doc.Body, "a second document is not allowed")
		}
		found = true
		if node, err = convert(doc.Body, 0); err != nil {
			return Node{}, err
		}
	}
	return node, nil
}

// tooDeep finds nesting that would exhaust the parser's stack before anybody could count it: brackets, and lists that
// begin within lists on one line. Other levels take a column of indentation each, and so are bounded by MaxYAML.
func tooDeep(raw []byte) (line int, deep bool) {
	depth, dashes, line := 0, 0, 1
	begin := true // only blanks and dashes so far in this line
	for _, c := range raw {
		switch c {
		case '\n':
			dashes, begin = 0, true
			line++
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '-', '?':
			dashes++
		}
		begin = begin && strings.IndexByte(" -?\n", c) >= 0
		if depth > maxDepth || begin && dashes > maxDepth {
			return line, true
		}
	}
	return 0, false
}

// Expressions are compiled when a file is read: most processes read none.
var syntaxPosition = lazily(`^\[(\d+):\d+\] (.*)`)

func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

func syntaxError(err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n") // the rest shows the source, which may hold a secret
	if m := syntaxPosition().FindStringSubmatch(first); m != nil {
		line, _ := strconv.Atoi(m[1])
		return &LineError{Line: line, Text: m[2]}
	}
	return &LineError{Text: "not a YAML document"}
}

func lineError(n ast.Node, text string) error { return &LineError{Line: lineOf(n), Text: text} }

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func convert(n ast.Node, depth int) (Node, error) {
	if depth > maxDepth {
		return Node{}, lineError(n, fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return convertMap(n.Values, lineOf(n), depth)
	case *ast.MappingValueNode:
		return convertMap([]*ast.MappingValueNode{n}, lineOf(n.Key), depth)
	case *ast.SequenceNode:
		out := Node{Kind: List, Line: lineOf(n)}
		for _, v := range n.Values {
			item, err := convert(v, depth+1)
			if err != nil {
				return Node{}, err
			}
			out.Items = append(out.Items, item)
		}
		return out, nil
	case *ast.LiteralNode:
		return Node{Kind: String, Line: lineOf(n), Text: n.Value.Value}, nil
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode, *ast.DirectiveNode:
		return Node{}, lineError(n, "tags, anchors and aliases are not allowed")
	case *ast.StringNode:
		if quoted(n.Token) {
			return Node{Kind: String, Line: lineOf(n), Text: n.Value}, nil
		}
		return plainScalar(n.Value, lineOf(n)), nil
	case *ast.NullNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		// The parser's own idea of the value is that of YAML 1.1; the text decides anew.
		return plainScalar(n.GetToken().Value, lineOf(n)), nil
	case nil:
		return Node{}, nil
	}
	return Node{}, lineError(n, "not a value")
}

func convertMap(values []*ast.MappingValueNode, line, depth int) (Node, error) {
	out := Node{Kind: Map, Line: line}
	seen := make(map[string]bool, len(values))
	for _, v := range values {
		key, err := convertKey(v.Key)
		if err != nil {
			return Node{}, err
		}
		if seen[key] {
			return Node{}, lineError(v.Key, fmt.Sprintf("key %q comes twice", key))
		}
		seen[key] = true
		value, err := convert(v.Value, depth+1)
		if err != nil {
			return Node{}, err
		}
		out.Fields = append(out.Fields, Field{Key: key, Line: lineOf(v.Key), Value: value})
	}
	return out, nil
}

func convertKey(k ast.MapKeyNode) (string, error) {
	if k.IsMergeKey() {
		return "", lineError(k, "merge keys are not allowed")
	}
	node, err := convert(k, 0)
	if err != nil {
		return "", err
	}
	if node.Kind == List || node.Kind == Map || node.Text == "" && node.Kind != String {
		return "", lineError(k, "a key must be text")
	}
	return node.Text, nil
}

func quoted(t *token.Token) bool {
	return t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
}

var (
	intPattern   = lazily(`^[-+]?[0-9]+$`)
	octalPattern = lazily(`^0o[0-7]+$`)
	hexPattern   = lazily(`^0x[0-9a-fA-F]+$`)
	floatPattern = lazily(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// plainScalar is an unquoted scalar by the core schema.
func plainScalar(text string, line int) Node {
	n := Node{Kind: String, Line: line, Text: text}
	switch text {
	case "", "~", "null", "Null", "NULL":
		n.Kind = Null
		return n
	case "true", "True", "TRUE", "false", "False", "FALSE":
		n.Kind, n.Bool = Bool, text[0] == 't' || text[0] == 'T'
		return n
	case ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF":
		n.Kind, n.Float = Float, math.Inf(1)
		return n
	case "-.inf", "-.Inf", "-.INF":
		n.Kind, n.Float = Float, math.Inf(-1)
		return n
	case ".nan", ".NaN", ".NAN":
		n.Kind, n.Float = Float, math.NaN()
		return n
	}
	if i, ok := parseInt(text); ok {
		n.Kind, n.Int, n.Float = Int, i, float64(i)
		return n
	}
	if floatPattern().MatchString(text) {
		if f, err := strconv.ParseFloat(text, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			n.Kind, n.Float = Float, f
		}
	}
	return n
}

// parseInt reads an integer of the core schema that fits 64 bits; a larger one is a float.
func parseInt(text string) (int64, bool) {
	base, digits := 10, text
	switch {
	case intPattern().MatchString(text):
	case octalPattern().MatchString(text):
		base, digits = 8, text[2:]
	case hexPattern().MatchString(text):
		base, digits = 16, text[2:]
	default:
		return 0, false
	}
	i, err := strconv.ParseInt(digits, base, 64)
	return i, err == nil
}
