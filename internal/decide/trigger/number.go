package trigger

import (
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

var (
	decimal = regexp.MustCompile(`^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$`)
	radix   = regexp.MustCompile(`^0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)$`)
)

// parseNumber reads text as ECMAScript's Number() does: trimmed, blank is 0, hexadecimal, octal and binary without sign.
// Infinities are refused together with what is no number.
func parseNumber(text string) (float64, bool) {
	text = strings.TrimFunc(text, func(r rune) bool {
		// ECMAScript's white space is Unicode's and the byte order mark, but not U+0085.
		return unicode.IsSpace(r) && r != 0x85 || r == 0xFEFF
	})
	switch {
	case text == "":
		return 0, true
	case radix.MatchString(text):
		base := map[byte]int{'x': 16, 'o': 8, 'b': 2}[text[1]|0x20]
		n, ok := new(big.Int).SetString(text[2:], base)
		if !ok {
			return 0, false
		}
		f, _ := new(big.Float).SetInt(n).Float64()
		return f, !math.IsInf(f, 0)
	case !decimal.MatchString(text):
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, false // only the range can be wrong
	}
	return n, true
}

// formatNumber writes a number as ECMAScript's String() does.
func formatNumber(n float64) string {
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
