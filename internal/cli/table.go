package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"kici/internal/cli/livetree"
	"kici/internal/core/adminwire"
)

// table is rows of cells for people: a header, a rule, a row for each item.
type table struct {
	what string // of which there are none, in the plural
	head []string
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table, or that there is nothing. Cells come from outside and are cleaned.
func (t *table) write(out io.Writer) {
	if len(t.rows) == 0 {
		fmt.Fprintf(out, "No %s found.\n", t.what)
		return
	}
	widths := make([]int, len(t.head))
	for i, h := range t.head {
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
	writeRow(out, t.head, widths, " | ")
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

// pairs prints names with their values below each other; what is empty is left out.
func pairs(out io.Writer, list ...[2]string) {
	for _, pair := range list {
		if value := livetree.Clean(pair[1]); value != "" {
			fmt.Fprintf(out, "%-12s %s\n", pair[0], value)
		}
	}
}

// when is a time as tables show it, "" for never.
func when(t adminwire.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// span is a duration as tables show it, "" when it is not known yet.
func span(ms *int64) string {
	if ms == nil {
		return ""
	}
	return livetree.Duration(time.Duration(*ms) * time.Millisecond)
}

// text is a text that may be absent.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// labels are shown as they are written. No list is something else than an empty one: none says what it means.
func labels(list []string, none string) string {
	if list == nil {
		return none
	}
	return strings.Join(list, ",")
}

// plural counts things.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
