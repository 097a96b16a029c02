package bundle

import (
	"bytes"
	"strings"
	"unicode/utf16"
)

// AuthorNames gives a piece of the script, such as the text of one function, with the variables named as the author named
// them. Putting many modules into one script, esbuild numbers a name that another module has as well (`url2`); so the text
// of a function would change with what else is in the bundle, down to the version of an installed package. A piece that is
// not in the script comes back as it is.
func (m *Map) AuthorNames(script []byte, piece string) string {
	start := bytes.Index(script, []byte(piece))
	if start < 0 || piece == "" {
		return piece
	}
	line := bytes.Count(script[:start], []byte("\n"))
	column := utf16Length(string(script[bytes.LastIndexByte(script[:start], '\n')+1 : start]))
	var out strings.Builder
	for text := range strings.Lines(piece) {
		m.rename(&out, line, column, text)
		line, column = line+1, 0
	}
	return out.String()
}

// rename writes a line of the script, or what of it begins at the column, with the names of the source map.
func (m *Map) rename(out *strings.Builder, line, column int, text string) {
	if line >= len(m.lines) {
		out.WriteString(text)
		return
	}
	for _, s := range m.lines[line] {
		skip := s.column - column
		if s.name == "" || skip < 0 {
			continue
		}
		before, rest := cutUTF16(text, skip)
		// Some mappings name what was not renamed to begin with; only a numbered name is one of esbuild's.
		number := strings.TrimPrefix(rest[:identifierLength(rest)], s.name)
		if number == "" || strings.Trim(number, "0123456789") != "" || !strings.HasPrefix(rest, s.name) {
			continue
		}
		out.WriteString(shorthand(before, s.name))
		out.WriteString(s.name)
		text = rest[len(s.name)+len(number):]
		column = s.column + utf16Length(s.name+number)
	}
	out.WriteString(text)
}

// shorthand cuts the key off `name: name`, since esbuild had to write `{ name: name2 }` for `{ name }`. It puts a space
// before the colon of a condition and none before that of a key.
func shorthand(before, name string) string {
	cut, ok := strings.CutSuffix(before, name+": ")
	if !ok || cut != "" && identifierLength(cut[len(cut)-1:]) > 0 {
		return before
	}
	return cut
}

// identifierLength is how many bytes at the beginning of the text can be part of one name.
func identifierLength(text string) int {
	for i, r := range text {
		if r != '_' && r != '$' && r < 0x80 && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return i
		}
	}
	return len(text)
}

// Columns of a source map count UTF-16 units.
func utf16Length(text string) int {
	n := 0
	for _, r := range text {
		n += utf16.RuneLen(r)
	}
	return n
}

func cutUTF16(text string, units int) (before, after string) {
	for i, r := range text {
		if units <= 0 {
			return text[:i], text[i:]
		}
		units -= utf16.RuneLen(r)
	}
	return text, ""
}
