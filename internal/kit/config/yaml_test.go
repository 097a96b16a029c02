package config

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// show is a node in one line.
func show(n Node) string {
	switch n.Kind {
	case Null:
		return "null"
	case Bool:
		return fmt.Sprintf("bool %v", n.Bool)
	case Int:
		return fmt.Sprintf("int %d", n.Int)
	case Float:
		return fmt.Sprintf("float %v", n.Float)
	case String:
		return fmt.Sprintf("text %q", n.Text)
	case List:
		parts := make([]string, len(n.Items))
		for i, item := range n.Items {
			parts[i] = show(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	parts := make([]string, len(n.Fields))
	for i, f := range n.Fields {
		parts[i] = f.Key + ": " + show(f.Value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func TestCoreSchema(t *testing.T) {
	tests := map[string]string{
		"yes": `text "yes"`, "on": `text "on"`, "No": `text "No"`, "true": "bool true", "TRUE": "bool true", "tRue": `text "tRue"`,
		"'true'": `text "true"`, `"5"`: `text "5"`, "5": "int 5", "+5": "int 5", "-5": "int -5", "010": "int 10", "0o10": "int 8", "0x1F": "int 31",
		"0b1": `text "0b1"`, "1_000": `text "1_000"`, "1:30": `text "1:30"`, "1.5": "float 1.5", ".5": "float 0.5", "1.": "float 1", "1e3": "float 1000",
		".inf": "float +Inf", "-.Inf": "float -Inf", ".nan": "float NaN", "~": "null", "null": "null", "": "null", "2026-01-02": `text "2026-01-02"`,
		"9223372036854775808": "float 9.223372036854776e+18", "text with words": `text "text with words"`, "a#b": `text "a#b"`, "v # note": `text "v"`,
		"[a, 1, [true]]": `[text "a", int 1, [bool true]]`, "{a: 1, b: {}}": "{a: int 1, b: {}}", "[]": "[]", "''": `text ""`,
		"|\n  a\n  b\n": `text "a\nb\n"`, ">-\n  a\n  b\n": `text "a b"`, "\n  x: 1\n  y:\n    - 2\n": "{x: int 1, y: [int 2]}", "\n- 1\n- b: 2\n  c: 3\n": "[int 1, {b: int 2, c: int 3}]",
		`"a\tb\u00e9"`: `text "a\tbé"`, "'it''s'": `text "it's"`,
	}
	for source, want := range tests {
		n, err := ParseYAML([]byte("k: " + source))
		if err != nil {
			t.Errorf("%q: %v", source, err)
			continue
		}
		if got := show(n.Fields[0].Value); got != want {
			t.Errorf("%q = %s, want %s", source, got, want)
		}
	}
}

func TestKeysKeepTheirOrderAndLine(t *testing.T) {
	n, err := ParseYAML([]byte("# note\nb: 1\n\na:\n  5: x\n  'q r': y\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range append(n.Fields, n.Fields[1].Value.Fields...) {
		got = append(got, fmt.Sprintf("%s@%d", f.Key, f.Line))
	}
	if diff := cmp.Diff([]string{"b@2", "a@4", "5@5", "q r@6"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRefusedDocuments(t *testing.T) {
	tests := []struct {
		source string
		line   int
		want   string
	}{
		{"a: 1\nb: 2\na: 3\n", 3, `"a" comes twice`},
		{"a: &x 1\nb: *x\n", 1, "anchors"},
		{"a: 1\nb: !!str 5\n", 2, "tags"},
		{"a: {x: 1}\nb:\n  <<: {y: 1}\n", 3, "merge"},
		{"a: 1\n---\nb: 1\n", 3, "second document"},
		{"a: 1\nb: [1, 2\n", 0, ""},
		{"a: 1\n\tb: 2\n", 0, ""},
		{"a: " + strings.Repeat("[", 100_000), 1, "deeper"},
		{"x: 1\n" + strings.Repeat("- ", 100_000), 2, "deeper"},
		{"a: " + strings.Repeat("x", MaxYAML), 0, "more than"},
		{"[a]: 1\n", 0, ""},
	}
	for _, tt := range tests {
		_, err := ParseYAML([]byte(tt.source))
		var at *LineError
		if !errors.As(err, &at) || !strings.Contains(at.Text, tt.want) || tt.line != 0 && at.Line != tt.line {
			t.Errorf("%.40q: %v", tt.source, err)
		}
	}
}

func TestEmptyDocumentIsNull(t *testing.T) {
	for _, source := range []string{"", "# only a note\n", "---\n", "~"} {
		if n, err := ParseYAML([]byte(source)); err != nil || n.Kind != Null {
			t.Errorf("%q: %v, %v", source, n.Kind, err)
		}
	}
}

func FuzzParseYAML(f *testing.F) {
	for _, source := range []string{"a: 1\nb: [x, {y: 'z'}]\n", "a: |\n  x\n", "? a\n: b", "- - 1", "a: &x\n", "%YAML 1.2\n---\n", "\"\\", "{", "a: .nan", "<<: 1"} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		n, err := ParseYAML([]byte(source))
		var at *LineError
		if err != nil && !errors.As(err, &at) {
			t.Fatalf("error of another kind: %v", err)
		}
		check(t, n)
		var s settings
		for _, f := range leavesOf(&s) {
			f.setNode(n)
			f.setText(source)
			if f.Type == "number" && !f.within(float64(f.value.Int())) {
				t.Fatalf("%s is %d", f.Key, f.value.Int())
			}
		}
	})
}

// check walks a node: keys come once, numbers are what their text says.
func check(t *testing.T, n Node) {
	seen := map[string]bool{}
	for _, f := range n.Fields {
		if seen[f.Key] {
			t.Fatalf("key %q twice", f.Key)
		}
		seen[f.Key] = true
		check(t, f.Value)
	}
	for _, item := range n.Items {
		check(t, item)
	}
	if n.Kind == Int && (float64(n.Int) != n.Float || math.IsNaN(n.Float)) {
		t.Fatalf("%q is %d and %v", n.Text, n.Int, n.Float)
	}
}
