package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mistake is what is wrong with a value and what would be right.
type mistake struct {
	wrong string
	right string
}

// units of durations in the file and in variables, which hold plain numbers of them.
var units = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "days": 24 * time.Hour, "": time.Millisecond}

// setText gives the setting a value from text: a variable, a flag or the default.
func (f leaf) setText(text string) *mistake {
	text = strings.TrimSpace(text)
	switch f.Type {
	case "text":
		return f.setString(text)
	case "list":
		return f.setList(split(text, ","))
	case "true or false":
		if text != "true" && text != "false" {
			return f.mistaken(text)
		}
		f.value.SetBool(text == "true")
		return nil
	case "fraction":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return f.mistaken(text)
		}
		return f.setFloat(n, text)
	case "bytes":
		n, ok := parseBytes(text)
		if !ok {
			return f.mistaken(text)
		}
		return f.setInt(n, text)
	case "duration":
		if d, err := time.ParseDuration(text); err == nil && !isDigits(text) {
			return f.setDuration(d, text)
		}
	}
	if !isDigits(strings.TrimPrefix(text, "-")) {
		return f.mistaken(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return f.mistaken(text)
	}
	return f.setCount(n, text)
}

// setNode gives the setting a value from the file.
func (f leaf) setNode(n Node) *mistake {
	switch {
	case n.Kind == Map || n.Kind == List && f.Type != "list":
		return &mistake{"it holds " + n.Kind.String(), f.expected()}
	case f.Type == "list" && n.Kind == List:
		items := []string{}
		for _, item := range n.Items {
			if item.Kind == List || item.Kind == Map || item.Kind == Null {
				return &mistake{"an item of the list is " + item.Kind.String(), f.expected()}
			}
			items = append(items, item.Text)
		}
		return f.setList(items)
	case f.Type == "text": // an unquoted number or a word such as true is taken as it is written
		return f.setString(n.Text)
	case f.Type == "list":
		return f.setList(split(n.Text, ","))
	case f.Type == "true or false":
		if n.Kind != Bool {
			return f.mistaken(n.Text)
		}
		f.value.SetBool(n.Bool)
		return nil
	case n.Kind == Int && f.Type == "fraction":
		return f.setFloat(n.Float, n.Text)
	case n.Kind == Int:
		return f.setCount(n.Int, n.Text)
	case n.Kind == Float && f.Type == "fraction":
		return f.setFloat(n.Float, n.Text)
	case n.Kind == String && (f.Type == "bytes" || f.Type == "duration") && !isDigits(n.Text):
		return f.setText(n.Text)
	}
	return f.mistaken(n.Text)
}

func (f leaf) setString(text string) *mistake {
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, text) {
		return f.mistaken(text)
	}
	f.value.SetString(text)
	return nil
}

func (f leaf) setList(items []string) *mistake {
	for _, item := range items {
		if len(f.Enum) > 0 && !slices.Contains(f.Enum, item) {
			return f.mistaken(item)
		}
	}
	f.value.Set(reflect.ValueOf(items))
	return nil
}

// setCount takes a whole number of the setting's unit.
func (f leaf) setCount(n int64, text string) *mistake {
	if f.Type != "duration" {
		return f.setInt(n, text)
	}
	unit := units[f.Unit]
	if n > int64(math.MaxInt64/unit) || n < int64(math.MinInt64/unit) {
		return f.mistaken(text)
	}
	return f.setDuration(time.Duration(n)*unit, text)
}

func (f leaf) setInt(n int64, text string) *mistake {
	if !f.within(float64(n)) || f.value.OverflowInt(n) {
		return f.mistaken(text)
	}
	f.value.SetInt(n)
	return nil
}

func (f leaf) setFloat(n float64, text string) *mistake {
	if math.IsNaN(n) || math.IsInf(n, 0) || !f.within(n) {
		return f.mistaken(text)
	}
	f.value.SetFloat(n)
	return nil
}

func (f leaf) setDuration(d time.Duration, text string) *mistake {
	if !f.within(float64(d) / float64(units[f.Unit])) {
		return f.mistaken(text)
	}
	f.value.SetInt(int64(d))
	return nil
}

func (f leaf) within(n float64) bool {
	low, high := bound(f.Min, math.Inf(-1)), bound(f.Max, math.Inf(1))
	return n >= low && n <= high
}

func bound(text string, otherwise float64) float64 {
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("config: bound " + text + " is no number") // a mistake in the program
	}
	return n
}

// mistaken says that a value does not fit. A secret one is not repeated.
func (f leaf) mistaken(text string) *mistake {
	if f.Secret {
		return &mistake{"the value does not fit", f.expected()}
	}
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:60], "") + "…"
	}
	return &mistake{fmt.Sprintf("%q does not fit", text), f.expected()}
}

// expected says what a right value is.
func (f leaf) expected() string {
	var what string
	switch {
	case len(f.Enum) > 0 && f.Type == "list":
		return "expected a list out of " + strings.Join(f.Enum, ", ")
	case len(f.Enum) > 0:
		return "expected one of " + strings.Join(f.Enum, ", ")
	case f.Type == "list":
		return "expected a list of texts"
	case f.Type == "text" || f.Type == "true or false":
		return "expected " + f.Type
	case f.Type == "bytes":
		what = "a number of bytes, or one with k, m or g"
	case f.Type == "duration":
		what = map[string]string{"": "milliseconds", "ms": "milliseconds", "s": "seconds", "days": "days"}[f.Unit]
		what = "a whole number of " + what + ", or a duration such as 90s"
	case f.Type == "fraction":
		what = "a number"
	default:
		what = "a whole number"
	}
	switch {
	case f.Min != "" && f.Max != "":
		what += fmt.Sprintf(" from %s to %s", f.Min, f.Max)
	case f.Min != "":
		what += fmt.Sprintf(", %s or more", f.Min)
	case f.Max != "":
		what += fmt.Sprintf(", %s or less", f.Max)
	}
	return "expected " + what
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// parseBytes reads a size: bytes, or KiB, MiB or GiB with k, m or g.
func parseBytes(text string) (int64, bool) {
	shift := 0
	digits := strings.TrimSuffix(strings.ToLower(text), "b")
	for i, suffix := range []string{"k", "m", "g"} {
		if rest, ok := strings.CutSuffix(digits, suffix); ok {
			digits, shift = rest, 10*(i+1)
			break
		}
	}
	if !isDigits(digits) {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, false
	}
	return n << shift, true
}
