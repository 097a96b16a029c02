package trigger

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"kici/internal/core/lockfile"
	"kici/internal/kit/regex"
	"kici/internal/vectors"
)

func TestEntryHolds(t *testing.T) {
	const document = `{"a":[{"x":1},{"x":3}],"env":"prod-eu","n":null,"b":false,"s":"3","o":{"k-y":1,"0":"z"},"e":[]}`
	tests := []struct {
		path, expected string
		want           bool
	}{
		{"$.a[*].x", `3`, true},
		{"$..x", `[7,1]`, true},
		{"$.env", `"/^PROD/i"`, true},
		{"$.env", `"/a"`, false},
		{"$.a[?(@.x>2)].x", `3`, true},
		{"$.missing", `null`, false},
		{"$.n", `null`, true},
		{"$.b", `"false"`, false},
		{"$.s", `3`, false},
		{"env", `"prod-eu"`, true},
		{"$['env']", `"prod-eu"`, true},
		{`["env"]`, `"prod-eu"`, true},
		{"$[env,s]", `"3"`, true},
		{"$['env','s']", `"3"`, true},
		{"$.a[0].x", `1`, true},
		{"$.a.1.x", `3`, true},
		{"$.a[0:1].x", `3`, false},
		{"$.a[-1:].x", `3`, true},
		{"$.a[::2].x", `1`, true},
		{"$.o.k-y", `1`, true},
		{"$.o[0]", `"z"`, true},
		{"$.*.k-y", `1`, true},
		{"$..*", `3`, true},
		{"$.o", `{"k-y":1,"0":"z"}`, false},
		{"$.a[?(@.x===3)].x", `3`, true},
		{"$.a[?(@.x!==3)].x", `3`, false},
		{"$.a[?(@.x=='3')].x", `3`, true},
		{"$.a[?(@.x==='3')].x", `3`, false},
		{"$.a[?(@.x >= 1 && !(@.x == 1))].x", `3`, true},
		{"$.a[?(@.y)].x", `1`, false},
		{"$.a[?(!@.y)].x", `1`, true},
		{"$.a[?(@.y.z == undefined)].x", `1`, true},
		{"$.a[?(@.x == $.s)].x", `3`, true},
		{"$.a[?(@.x + 1 == 4 || false)].x", `3`, true},
		{"$.a[?(@.x % 2 === 1 && @.x * 2 > 5 - 1)].x", `3`, true},
		{"$[?(@.length > 5)]", `"prod-eu"`, true},
		{"$[?(@ === null)]", `null`, true},
		{"$.a[?(@['x'] < -1 + 3)].x", `1`, true},
		{"$..[?(@.x)].x", `3`, true},
		{"$.env", `["dev","/eu$/"]`, true},
		{"$.e[*]", `null`, false},
	}
	var decoded any
	vectors.Decode(t, []byte(document), &decoded)
	for _, tt := range tests {
		got, err := freshTrace().entryHolds(lockfile.Member{Key: tt.path, Value: json.RawMessage(tt.expected)}, decoded)
		if err != nil || got != tt.want {
			t.Errorf("%s = %s: %v, %v; want %v", tt.path, tt.expected, got, err, tt.want)
		}
	}
}

// A sender can repeat a text that an expression is slow on, though not too slow, as often as a payload holds it.
func TestExpressionRunsOnceForAllTexts(t *testing.T) {
	texts := []any{}
	for i := range 5000 {
		texts = append(texts, strings.Repeat("a", 13)+"!"+strconv.Itoa(i))
	}
	entry := lockfile.Member{Key: "$.*", Value: []byte(`"/^(?!x)(a+)+$/"`)}
	if holds, err := freshTrace().entryHolds(entry, texts); !errors.Is(err, regex.ErrTimeout) || holds {
		t.Errorf("%v, %v", holds, err)
	}
	if holds, err := freshTrace().entryHolds(entry, append(texts[:3:3], "aa")); err != nil || !holds {
		t.Errorf("a few: %v, %v", holds, err)
	}
}

func TestCompactMapKeepsOrderAndSigns(t *testing.T) {
	m := lockfile.Ordered{{Key: "$.b<1", Value: []byte(`[ 1, "&" ]`)}, {Key: "a", Value: []byte(`null`)}}
	if got, want := compactMap(m), `{"$.b<1":[1,"&"],"a":null}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzJSONMap(f *testing.F) {
	for _, p := range []string{"$.a[*].x", "$..x", "$.a[?(@.x>2 && @.y.z!=='q')].x", "$['a','b'][0:2]", "env", "$.a[::2]", "$..[?(@.x)]"} {
		f.Add(p, `"/^PROD/i"`, `{"a":[{"x":1},{"x":3}],"env":"prod-eu"}`)
	}
	f.Fuzz(func(t *testing.T, path, expected, document string) {
		var decoded any
		if json.Unmarshal([]byte(document), &decoded) != nil {
			return
		}
		holds, err := freshTrace().entryHolds(lockfile.Member{Key: path, Value: json.RawMessage(expected)}, decoded)
		if holds && err != nil {
			t.Error("an error and a match at once")
		}
	})
}
