package console

import "strings"

// ShellQuote makes one word of a text for a shell.
func ShellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ShellWord quotes a word only where that is needed.
func ShellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune("-_./@", r) && !isAlnum(r) }) {
		return s
	}
	return ShellQuote(s)
}

// isAlnum tells letters and digits that every shell takes as they are.
func isAlnum(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}
