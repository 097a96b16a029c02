package jsonpath

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"kici/internal/vectors"
)

func TestPathsThatAreNotUnderstoodAreErrors(t *testing.T) {
	for _, path := range []string{
		"", "$.", "$..", "$.a[", "$.a[(@.length-1)]", "$.a^", "$.a~", "$.a[?(@.x", "$.a[?(@.x.match(/a/))]", "$.a[?(@path)]",
		"$.a[?(process.exit())]", "$x", "$.a[1:2:3:4]", "$.a[1:b]", "$.a['x]", "$.a[?(1..2 > 1)]", "$.a[?()]", "$.a b",
		"$.a[?(" + strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200) + ")]", "$.a[?(@.)]", "$." + strings.Repeat("a", maxPath),
	} {
		if _, err := Parse(path); err == nil {
			t.Errorf("%.40q is taken", path)
		}
	}
}

func TestSearchThatTakesTooMuchIsAnError(t *testing.T) {
	deep := strings.Repeat("[", 3000) + strings.Repeat("]", 3000)
	wide := `[[` + strings.Repeat(`"some text",`, 20_000) + `"x"]` + strings.Repeat(`,[1]`, 1000) + `]`
	tests := []struct{ name, path, document string }{
		{"a power of the depth", "$..*..*..*", deep},
		{"a list made text for each node", "$..[?($[0] > @)]", wide},
		{"a text that grows by itself", "$.*[?($[0]" + strings.Repeat(" + $[0]", 300) + ")]", wide},
		{"lists compared with lists", "$..[?($ == $[0][0] || $ < $[0][1])]", wide},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var document any
			if err := json.Unmarshal([]byte(tt.document), &document); err != nil {
				t.Fatal(err)
			}
			p, err := Parse(tt.path)
			if err != nil {
				t.Fatal(err)
			}
			left := 10 * MaxVisits
			if found, err := p.Search(document, &left, func(any) bool { return false }); !errors.Is(err, ErrBudget) || found {
				t.Errorf("%v, %v", found, err)
			}
			if left >= 10*MaxVisits-MaxVisits/2 {
				t.Errorf("%d of the common budget are left", left)
			}
		})
	}
}

func TestCommonBudgetEndsASearch(t *testing.T) {
	p, err := Parse("$.a")
	if err != nil {
		t.Fatal(err)
	}
	document := map[string]any{"a": true}
	left := 1
	if found, err := p.Search(document, &left, func(any) bool { return true }); err != nil || !found || left != 0 {
		t.Errorf("within it: %v, %v, %d left", found, err, left)
	}
	if found, err := p.Search(document, &left, func(any) bool { return true }); !errors.Is(err, ErrBudget) || found {
		t.Errorf("past it: %v, %v", found, err)
	}
}

// FuzzSearch looks for whatever a path selects. A path that parses is searched to its end within its budget.
func FuzzSearch(f *testing.F) {
	for _, c := range vectors.LoadKind(f, "triggers.json", "match") {
		var in struct {
			Triggers []struct{ Match, Not map[string]any }
			Event    struct{ Payload json.RawMessage }
		}
		if err := json.Unmarshal(c.Input, &in); err != nil {
			f.Fatal(err)
		}
		for _, w := range in.Triggers {
			for path := range w.Match {
				f.Add(path, string(in.Event.Payload))
			}
			for path := range w.Not {
				f.Add(path, string(in.Event.Payload))
			}
		}
	}
	for _, path := range []string{"$.a[?(@.x>2 && @.y.z!=='q')].x", "$['a','b'][0:2]", "$.a[::2]", "$..[?(@.x)]", "$.a[?(-(@ + 1) % 2 <= $.n)]"} {
		f.Add(path, `{"a":[{"x":1},{"x":3}],"env":"prod-eu","n":null}`)
	}
	f.Fuzz(func(t *testing.T, path, document string) {
		var decoded any
		p, err := Parse(path)
		if err != nil || json.Unmarshal([]byte(document), &decoded) != nil {
			return
		}
		left := 100_000
		visited := 0
		_, err = p.Search(decoded, &left, func(any) bool { visited++; return false })
		if err == nil && (left < 0 || visited > 100_000) {
			t.Errorf("%d visits, %d left", visited, left)
		}
	})
}
