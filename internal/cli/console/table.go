package console

import (
	"fmt"
	"io"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"kici/internal/cli/livetree"
	"kici/internal/core/adminwire"
)

// Table is rows of cells for people: a header, a rule, a row for each item.
type Table struct {
	What string // of which there are none, in the plural
	Head []string
	rows [][]string
}

// Row adds a row, of a cell for each member of the head.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Write prints the table, or that there is nothing. Cells come from outside and are cleaned.
func (t *Table) Write(out io.Writer) {
	if len(t.rows) == 0 {
		fmt.Fprintf(out, "No %s found.\n", t.What)
		return
	}
	widths := make([]int, len(t.Head))
	for i, h := range t.Head {
		widths[i] = lipgloss.Width(h)
	}
	for _, row := range t.rows {
		for i := range row {
			if row[i] = livetree.Clean(row[i]); row[i] == "" {
				row[i] = "-"
			}
			widths[i] = max(widths[i], lipgloss.Width(row[i]))
		}
	}
	rule := make([]string, len(widths))
	for i, w := range widths {
		rule[i] = strings.Repeat("-", w)
	}
	writeRow(out, t.Head, widths, " | ")
	writeRow(out, rule, widths, "-+-")
	for _, row := range t.rows {
		writeRow(out, row, widths, " | ")
	}
}

// writeRow aligns by cells of the terminal: names may hold wide characters.
func writeRow(out io.Writer, cells []string, widths []int, between string) {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(cell)
		b.WriteString(strings.Repeat(" ", widths[i]-lipgloss.Width(cell)))
	}
	fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
}

// Pairs prints names with their values below each other; what is empty is left out.
func Pairs(out io.Writer, list ...[2]string) {
	for _, pair := range list {
		if value := livetree.Clean(pair[1]); value != "" {
			fmt.Fprintf(out, "%-12s %s\n", pair[0], value)
		}
	}
}

// When is a time as tables show it, "" for never.
func When(t adminwire.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Text is a text that may be absent.
func Text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Plural counts things.
func Plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
