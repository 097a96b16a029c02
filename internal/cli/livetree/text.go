package livetree

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"
)

// escapes are the sequences by which a text drives a terminal. What workflows print must not move the cursor of whoever
// looks on, nor set the title of the window or read the clipboard.
var escapes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("\x1b(?:\\[[0-9;:?<=>]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -/]*[0-~])")
})

// colours are those of them that only change how a text looks.
var colours = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^\x1b\\[[0-9;:]*m$") })

// Clean gives a text that came from outside as it may be shown on a terminal: printable characters only, on one line.
func Clean(text string) string { return printable(escapes().ReplaceAllString(text, "")) }

// CleanColours is Clean with the colours kept, and put back at the end.
func CleanColours(text string) string {
	if !strings.Contains(text, "\x1b") {
		return printable(text)
	}
	var b strings.Builder
	coloured := false
	from := 0
	for _, at := range escapes().FindAllStringIndex(text, -1) {
		b.WriteString(printable(text[from:at[0]]))
		if sequence := text[at[0]:at[1]]; colours().MatchString(sequence) {
			b.WriteString(sequence)
			coloured = true
		}
		from = at[1]
	}
	b.WriteString(printable(text[from:]))
	if coloured {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r': // they keep words apart
			return ' '
		case unicode.IsControl(r) || bidi(r):
			return -1
		}
		return r
	}, text)
}

// bidi tells the marks that change the order in which text is shown, by which a line can look like another.
func bidi(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// clip cuts a text to a number of cells.
func clip(text string, cells int) string {
	if lipgloss.Width(text) <= cells {
		return text
	}
	width := 0
	for i, r := range text {
		w := lipgloss.Width(string(r))
		if width+w > cells-1 {
			return text[:i] + "…"
		}
		width += w
	}
	return text
}

// Duration is a span as people read it: 0.4s, 12.3s, 3m05s, 2h10m, 3d4h.
func Duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute-50*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
