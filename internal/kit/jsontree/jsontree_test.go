package jsontree

import "testing"

func TestStringifyWritesAsECMAScriptDoes(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"b":1.0,"2":1e21,"a":-0,"1":1E-7}`, `{"1":1e-7,"2":1e+21,"b":1,"a":0}`},
		{`[123456789012345680000, 0.000001, 1.5e300, 1e999]`, `[123456789012345680000,0.000001,1.5e+300,null]`},
		{`"\u0041\u2028\/\u0008\u001F\ud83d\ude00\uD800x"`, "\"A\u2028/\\b\\u001f😀\\ud800x\""},
		{`"\ud800\ud800\udc00"`, "\"\\ud800\U00010000\""},
		{` { } `, `{}`},
		{`[ ]`, `[]`},
		{`{"01":1,"4294967295":2,"4294967294":3}`, `{"4294967294":3,"01":1,"4294967295":2}`},
	}
	for _, tt := range tests {
		if out, err := Stringify([]byte(tt.in)); err != nil || string(out) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.in, out, err, tt.want)
		}
	}
}
