package jsontree

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestStringifyWritesAsECMAScriptDoes(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"b":1.0,"2":1e21,"a":-0,"1":1E-7}`, `{"1":1e-7,"2":1e+21,"b":1,"a":0}`},
		{`[123456789012345680000, 0.000001, 1.5e300, 1e999]`, `[123456789012345680000,0.000001,1.5e+300,null]`},
		{`"\u0041\u2028\/\u0008\u001F\ud83d\ude00\uD800x"`, "\"A\u2028/\\b\\u001f😀\\ud800x\""},
		{`"\ud800\ud800\udc00"`, "\"\\ud800\U00010000\""},
		{` { } `, `{}`},
		{`[ ]`, `[]`},
		{`{"01":1,"4294967295":2,"4294967294":3}`, `{"4294967294":3,"01":1,"4294967295":2}`},
		{`{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`},
		{"\"\xed\xcd0\"", "\"\uFFFD\uFFFD0\""},
	}
	for _, tt := range tests {
		if out, err := Stringify([]byte(tt.in)); err != nil || string(out) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.in, out, err, tt.want)
		}
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	tests := []struct {
		in   string
		want SyntaxError
	}{
		{`[1 2]`, SyntaxError{Offset: 3, Message: "expected ',' or ']', found '2'"}},
		{`{"a":1} x`, SyntaxError{Offset: 8, Message: "expected the end, found 'x'"}},
		{``, SyntaxError{Message: "expected a value, found the end of the text"}},
		{strings.Repeat("[", MaxDepth+1), SyntaxError{Offset: MaxDepth, Message: "nested more than 128 levels deep", Deep: true}},
	}
	for _, tt := range tests {
		_, err := Parse(tt.in)
		var got *SyntaxError
		if !errors.As(err, &got) {
			t.Errorf("%.20s: %v", tt.in, err)
			continue
		}
		if diff := cmp.Diff(tt.want, *got); diff != "" {
			t.Errorf("%.20s (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestMembersAndFalsyValues(t *testing.T) {
	n, err := Parse(`{"null":null,"false":false,"zero":0.0,"empty":"","true":true,"one":1,"text":"x","list":[],"object":{}}`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n.Items {
		m := n.Member(n.Items[i].Key)
		if want := i < 4; m.Falsy() != want {
			t.Errorf("%s: falsy %v, want %v", m.Key, m.Falsy(), want)
		}
	}
	if n.Member("absent") != nil || n.Member("one").Member("x") != nil || n.Member("one").Text() != "" {
		t.Error("what is not there has a value")
	}
}

// FuzzParse compares with encoding/json, which keeps neither order nor places and nests without bound.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e-3,true,null,"\u00e9\ud83d\ude00\ud800"],"2":{},"1":""}`, `[1.]`, `"\q"`, "\"\n\"", `{"a":1,"a":2}`, `01`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // the surrogates that we keep are not UTF-8, and written otherwise
		}
		n, err := Parse(text)
		var syntax *SyntaxError
		if errors.As(err, &syntax) && syntax.Deep {
			return
		}
		if valid := json.Valid([]byte(text)); valid != (err == nil) {
			t.Fatalf("error %v, encoding/json says %v", err, valid)
		}
		if err != nil {
			return
		}
		compact := n.Append(nil, "")
		var want, got any
		if json.Unmarshal([]byte(text), &want) != nil {
			return // a number beyond a double, which we write as null
		}
		if err := json.Unmarshal(compact, &got); err != nil {
			t.Fatalf("%s is written %s: %v", text, compact, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s is written %s:\n%s", text, compact, diff)
		}
	})
}
