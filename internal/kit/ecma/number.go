// Package ecma is what ECMAScript says about numbers and texts, where authors and their tools rely on it: how a number is
// read and written, how long a text is, and which of two comes first.
package ecma

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// ParseNumber reads text as Number() does: trimmed, blank is 0, hexadecimal, octal and binary without sign. Infinities are
// refused together with what is no number.
func ParseNumber(text string) (n float64, ok bool) {
	text = strings.TrimFunc(text, isSpace)
	switch {
	case text == "":
		return 0, true
	case len(text) > 2 && text[0] == '0' && bases[text[1]|0x20] != 0:
		return parseWhole(text[2:], bases[text[1]|0x20])
	case strings.Trim(text, "0123456789.eE+-") != "": // Go reads more than this: infinities, underscores, hexadecimal fractions
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// isSpace is ECMAScript's white space: Unicode's and the byte order mark, but not U+0085.
func isSpace(r rune) bool { return unicode.IsSpace(r) && r != 0x85 || r == 0xFEFF }

var bases = map[byte]int{'x': 16, 'o': 8, 'b': 2}

func parseWhole(digits string, base int) (float64, bool) {
	whole, ok := new(big.Int).SetString(digits, base)
	if !ok || digits[0] == '+' || digits[0] == '-' {
		return 0, false
	}
	n, _ := new(big.Float).SetInt(whole).Float64()
	return n, !math.IsInf(n, 0)
}

// FormatNumber writes a number as String() does: in the shortest decimal form, with an exponent below 1e-6 and from 1e21.
func FormatNumber(n float64) string {
	switch {
	case math.IsNaN(n):
		return "NaN"
	case math.IsInf(n, 0):
		return strings.TrimPrefix(strconv.FormatFloat(n, 'g', -1, 64)+"inity", "+")
	case n == 0:
		return "0" // also for the negative one
	}
	if a := math.Abs(n); a >= 1e-6 && a < 1e21 {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	text := strconv.FormatFloat(n, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	return mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
}
