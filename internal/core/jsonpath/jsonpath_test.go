package jsonpath

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
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

func TestPathThatVisitsTooMuchIsAnError(t *testing.T) {
	var document any
	if err := json.Unmarshal([]byte(strings.Repeat("[", 3000)+strings.Repeat("]", 3000)), &document); err != nil {
		t.Fatal(err)
	}
	p, err := Parse("$..*..*..*")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := p.Search(document, func(any) bool { return false }); !errors.Is(err, ErrBudget) || found {
		t.Errorf("%v, %v", found, err)
	}
}
