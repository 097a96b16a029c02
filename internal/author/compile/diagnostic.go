package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"kici/internal/author/bundle"
)

// Severity of a Diagnostic.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// Diagnostic is one mistake (or doubt) at one place of the author's sources.
type Diagnostic struct {
	// File is relative to the repository, with forward slashes; "" when the problem has no place.
	File string `json:"file,omitempty"`
	// Line and Column count from 1; 0 when not known.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Severity is SeverityError or SeverityWarning.
	Severity string `json:"severity"`
	// Code is stable: E001 to E004 for files, E1xx for what is written in them, W1xx for warnings, TS… for what the
	// TypeScript compiler says.
	Code string `json:"code"`
	Text string `json:"text"`
	// Suggestion is a hint how to go on, "" if there is none.
	Suggestion string `json:"suggestion,omitempty"`
	// Frame is the source line with a caret below the place, "" when the place is not known.
	Frame string `json:"-"`
}

// String gives `file:line:col error [E102]: text`, then the source line with a caret and a `Suggestion:` line where
// there are any.
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(d.File)
		if d.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
		}
		b.WriteByte(' ')
	}
	fmt.Fprintf(&b, "%s [%s]: %s", d.Severity, d.Code, d.Text)
	if d.Frame != "" {
		b.WriteString("\n" + d.Frame)
	}
	if d.Suggestion != "" {
		b.WriteString("\n  Suggestion: " + d.Suggestion)
	}
	return b.String()
}

// Diagnostics is the error of workflows that do not compile. It is never empty and in the order of the sources.
type Diagnostics []Diagnostic

// Error gives each diagnostic as its String does.
func (d Diagnostics) Error() string {
	lines := make([]string, len(d))
	for i, one := range d {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

func (d Diagnostics) sort() {
	slices.SortStableFunc(d, func(a, b Diagnostic) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// frame shows a line with a caret under the place, whose column and length count bytes. Of a long line it shows the part
// around the place, since a caret below a line that wraps stands under something else.
func frame(line string, column, length int) string {
	const around = 70
	from, to := 0, len(line)
	if len(line) > 2*around+20 {
		from, to = runeStart(line, max(0, column-1-around)), runeStart(line, min(len(line), column-1+around))
	}
	length = min(length, to-column+1)
	before, after := "", ""
	if from > 0 {
		before = "…"
	}
	if to < len(line) {
		after = "…"
	}
	return bundle.Diagnostic{LineText: before + line[from:to] + after, Column: column - from + len(before), Length: length}.Frame()
}

// runeStart is the beginning of the character at a byte of the text.
func runeStart(text string, at int) int {
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// byteColumn turns a column that counts UTF-16 units, as engines do, into one that counts bytes; both from 1.
func byteColumn(line string, column int) int {
	units := 1
	for i, r := range line {
		if units >= column {
			return i + 1
		}
		units += utf16.RuneLen(r)
	}
	return len(line) + 1
}
