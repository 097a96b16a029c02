package glob

import (
	"slices"
	"strings"
	"unicode/utf16"
)

// maxPattern bounds a pattern, in UTF-16 units.
const maxPattern = 65536

// Pieces of expressions that glob syntax stands for.
const (
	oneChar     = `(?=.)`
	notSlash    = `[^/]`
	noDot       = `(?!\.)`
	noDotSlash  = `(?!\.{0,1}(?:\/|$))`
	qmarkNoDot  = `[^.\/]`
	star        = notSlash + `*?`
	globstarOne = `(?:(?!(?:^|\/)\.).)*?` // any characters, no segment beginning with a dot
	globstar    = `(?:` + globstarOne + `)`
)

// replacements are patterns that mean a shorter one.
var replacements = map[string]string{"***": "*", "**/**": "**", "**/**/**": "**"}

// source gives the inside of the expression that a pattern stands for, and whether the whole is negated. The whole
// reads ^(?:inside)$.
func source(pattern string) (inside string, negated bool, err error) {
	if pattern == "" {
		return "", false, ErrEmpty
	}
	if len(pattern) > maxPattern && len(utf16.Encode([]rune(pattern))) > maxPattern {
		return "", false, ErrTooLong
	}
	if pattern[0] == '.' || pattern[0] == '*' {
		if inside := common(pattern); inside != "" {
			return inside, false, nil
		}
	}
	return parse(pattern, true)
}

// wrap makes the whole expression.
func wrap(inside string, negated bool) string {
	whole := `^(?:` + inside + `)$`
	if negated {
		whole = `^(?!` + whole + `).*$`
	}
	return whole
}

// common gives the expressions of patterns that come often, "" for others. They are not what the parser would give:
// `**.md` crosses slashes only here.
func common(pattern string) string {
	if short, ok := replacements[pattern]; ok {
		pattern = short
	}
	inside := commonPart(strings.TrimPrefix(pattern, "./"))
	if inside == "" {
		return ""
	}
	return inside + `\/?`
}

// commonPart takes a common pattern with any number of extensions after it.
func commonPart(pattern string) string {
	for at := len(pattern); ; {
		if head := commonHead(pattern[:at]); head != "" {
			return head + strings.ReplaceAll(pattern[at:], ".", `\.`)
		}
		dot := strings.LastIndexByte(pattern[:at], '.')
		if dot < 0 || dot+1 == at || strings.ContainsFunc(pattern[dot+1:at], func(r rune) bool { return !isWord(r) }) {
			return ""
		}
		at = dot
	}
}

func commonHead(pattern string) string {
	const deep = `(?:` + noDot + globstar + `\/)?`
	switch pattern {
	case "*":
		return noDot + oneChar + star
	case ".*":
		return `\.` + oneChar + star
	case "*.*":
		return noDot + star + `\.` + oneChar + star
	case "*/*":
		return noDot + star + `\/` + oneChar + noDot + star
	case "**":
		return noDot + globstar
	case "**/*":
		return deep + noDot + oneChar + star
	case "**/*.*":
		return deep + noDot + star + `\.` + oneChar + star
	case "**/.*":
		return deep + `\.` + oneChar + star
	}
	return ""
}

// simple gives the expression of a pattern that has no structure: neither slashes nor brackets of any kind, no quotes, no
// leading star or exclamation mark. Runs of one sign become one escape, as in the model: `a++` is an escaped plus
// under a plus.
func simple(pattern []rune) (string, bool) {
	if len(pattern) > 0 && (pattern[0] == '*' || pattern[0] == '!') || strings.ContainsAny(string(pattern), `/()[]{}"`) {
		return "", false
	}
	var out strings.Builder
	escaped := false
	for i := 0; i < len(pattern); {
		if isWord(pattern[i]) {
			out.WriteRune(pattern[i])
			i++
			continue
		}
		begin := i
		esc := pattern[i] == '\\' && i+1 < len(pattern) && !isWord(pattern[i+1])
		if esc {
			i++
		}
		first, run := pattern[i], 1
		for i += 1; i < len(pattern) && pattern[i] == first; i++ {
			run++
		}
		escaped = escaped || first == '\\'
		out.WriteString(simpleRun(first, run, esc, begin == 0, string(pattern[begin:i])))
	}
	if !escaped {
		return out.String(), true
	}
	return collapse(out.String()), true
}

// simpleRun translates one run of a sign, which all holds with the backslash before it.
func simpleRun(first rune, run int, esc, atStart bool, all string) string {
	switch {
	case first == '\\':
		return all
	case first == '?' && esc:
		return `\?` + strings.Repeat(notSlash, run-1)
	case first == '?' && atStart:
		return qmarkNoDot + strings.Repeat(notSlash, run-1)
	case first == '?':
		return strings.Repeat(notSlash, run)
	case first == '.':
		return strings.Repeat(`\.`, run)
	case first == '*' && esc && run > 1:
		return `\*` + star
	case first == '*' && esc:
		return `\*`
	case first == '*':
		return star
	case esc:
		return all
	}
	return `\` + all
}

// collapse shortens each run of backslashes to two, or to one where their number is odd.
func collapse(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out.WriteByte(s[i])
			continue
		}
		begin := i
		for i+1 < len(s) && s[i+1] == '\\' {
			i++
		}
		out.WriteString(strings.Repeat(`\`, 2-(i-begin+1)%2))
	}
	return out.String()
}

func isWord(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

const special = `-*+?.^${}(|)[]`

// escape makes text stand for itself in an expression.
func escape(text string) string {
	var out strings.Builder
	for _, r := range text {
		if strings.ContainsRune(special, r) {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	return out.String()
}

// escapeLast puts backslashes before the last n signs of that kind that have none.
func escapeLast(out []byte, sign byte, n int) []byte {
	var at []int
	for i := len(out) - 1; i >= 0 && len(at) < n; i-- {
		if out[i] == sign && (i == 0 || out[i-1] != '\\') {
			at = append(at, i)
		}
	}
	escaped := make([]byte, 0, len(out)+len(at))
	begin := 0
	for _, i := range slices.Backward(at) {
		escaped = append(append(escaped, out[begin:i]...), '\\')
		begin = i
	}
	return append(escaped, out[begin:]...)
}

// printable writes an expression the way RegExp.prototype.source does: slashes outside classes and line terminators are
// escaped, so that it may stand between slashes on one line.
func printable(expression string) string {
	terminators := map[rune]string{'\n': `\n`, '\r': `\r`, '\u2028': `\u2028`, '\u2029': `\u2029`}
	var out strings.Builder
	escaped, class := false, false
	for _, r := range expression {
		name, terminates := terminators[r]
		switch {
		case terminates && escaped:
			out.WriteString(name[1:])
		case terminates:
			out.WriteString(name)
		case r == '/' && !escaped && !class:
			out.WriteString(`\/`)
		default:
			out.WriteRune(r)
		}
		class = !escaped && r == '[' || class && (escaped || r != ']')
		escaped = r == '\\' && !escaped
	}
	return out.String()
}
