package ecma

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

func TestFormatNumber(t *testing.T) {
	for n, want := range map[float64]string{
		1e21: "1e+21", 1e20: "100000000000000000000", 1.5e-7: "1.5e-7", 0.000001: "0.000001", math.Copysign(0, -1): "0",
		math.Inf(1): "Infinity", math.Inf(-1): "-Infinity", math.NaN(): "NaN", -1.50: "-1.5",
	} {
		if got := FormatNumber(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
}

func TestParseNumber(t *testing.T) {
	numbers := map[string]float64{
		"": 0, " \n": 0, "\u00a05\ufeff": 5, ".5": .5, "5.": 5, "+1e3": 1000, "-1E-3": -.001, "0o17": 15, "0B11": 3, "0xfF": 255,
		"010": 10, "0x1fffffffffffff": 1<<53 - 1,
	}
	for text, want := range numbers {
		if got, ok := ParseNumber(text); !ok || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"0x", "-0x1", "0x-1", "0x+1", "0b2", "1e400", ".", "NaN", "Infinity", "inf", "1_0", "0x1p2", "1n", "1e", "e1", "--1", "\u00855",
	} {
		if got, ok := ParseNumber(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestNumbersAreReadAsTheyAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) }).Draw(t, "n")
		if got, ok := ParseNumber(FormatNumber(n)); !ok || got != n {
			t.Fatalf("%v is written %s and read %v, %v", n, FormatNumber(n), got, ok)
		}
	})
}

func TestTextsAreMeasuredInUnits(t *testing.T) {
	signs := rapid.SampledFrom([]rune("ab\u00e9\u2028\uffff\ue000😀\U00010000"))
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringOf(signs).Draw(t, "a"), rapid.StringOf(signs).Draw(t, "b")
		x, y := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
		if Length(a) != len(x) {
			t.Fatalf("%q is %d long, want %d", a, Length(a), len(x))
		}
		if got, want := Compare(a, b), slices.Compare(x, y); got != cmp.Compare(want, 0) {
			t.Fatalf("%q and %q compare as %d, want %d", a, b, got, want)
		}
	})
}
