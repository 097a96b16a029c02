package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	// Code is stable: E001 to E003 for files, E1xx for what is written in them, W1xx for warnings.
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
