package ecma

import (
	"cmp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Length is the length of a text in UTF-16 units.
func Length(s string) int {
	n := 0
	for _, r := range s {
		n += max(1, utf16.RuneLen(r)) // a byte that is no character is read as one that stands for it
	}
	return n
}

// Compare orders texts by UTF-16 units, as < and sort do. It differs from byte order only beyond U+FFFF.
func Compare(a, b string) int {
	for {
		x, sizeX := utf8.DecodeRuneInString(a)
		y, sizeY := utf8.DecodeRuneInString(b)
		if sizeX == 0 || sizeY == 0 {
			return cmp.Compare(sizeX, sizeY)
		}
		if x != y {
			return compareUnits(x, y)
		}
		a, b = a[sizeX:], b[sizeY:]
	}
}

// compareUnits compares two characters by their first units, which are surrogates beyond U+FFFF.
func compareUnits(a, b rune) int {
	first := func(r rune) rune {
		if high, _ := utf16.EncodeRune(r); r > 0xFFFF {
			return high
		}
		return r
	}
	return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(a, b))
}

// CompareKeys puts array indices before other keys and orders them by value; other keys keep their order.
func CompareKeys(a, b string) int {
	ai, bi := IsIndex(a), IsIndex(b)
	switch {
	case ai && bi && len(a) != len(b):
		return len(a) - len(b)
	case ai && bi:
		return strings.Compare(a, b)
	case ai:
		return -1
	case bi:
		return 1
	}
	return 0
}

// IsIndex tells whether an ECMAScript object takes the key as an array index: 0 to 2^32-2 in shortest decimal form.
func IsIndex(key string) bool {
	if key == "" || len(key) > 10 || key[0] == '0' && len(key) > 1 {
		return false
	}
	for i := range len(key) {
		if key[i] < '0' || key[i] > '9' {
			return false
		}
	}
	return len(key) < 10 || key <= "4294967294"
}
