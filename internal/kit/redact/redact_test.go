package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestStringMasksEveryFormOfAValue(t *testing.T) {
	key := "-----BEGIN KEY-----\n  abcDEF123\nxy\n-----END KEY-----\n"
	tests := []struct {
		name   string
		values []string
		in     string
		want   string
	}{
		{"plain", []string{"hunter2"}, "pw=hunter2;", "pw=***;"},
		{"twice", []string{"hunter2"}, "hunter2hunter2", "******"},
		{"too short", []string{"ab", ""}, "ab cab", "ab cab"},
		{"three bytes", []string{"abc"}, "abcd", "***d"},
		{"longest first", []string{"s3cr", "s3cret"}, "s3cret s3cr", "*** ***"},
		{"overlap leaves no tail", []string{"abcdef", "defghi"}, "abcdefghi!", "***!"},
		{"base64", []string{"hunter2!"}, "x aHVudGVyMiE= y", "x *** y"},
		{"base64 without padding", []string{"hunter2!"}, "x aHVudGVyMiE y", "x *** y"},
		{"line of several", []string{key}, "abcDEF123", "***"},
		{"short line of several stays", []string{key}, "xy", "xy"},
		{"json string", []string{"a\"b\nc&d"}, `{"k":"a\"b\nc&d"}`, `{"k":"***"}`},
		{"json string escaped for html", []string{"a\"b&c"}, `"a\"b\u0026c"`, `"***"`},
		{"windows lines", []string{"first\r\nsecond"}, "second first", "*** ***"},
		{"no value", nil, "text", "text"},
		{"empty text", []string{"abc"}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := New(tt.values).String(tt.in); got != tt.want {
				t.Errorf("String(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestBase64BehindOtherTextIsMasked(t *testing.T) {
	r := New([]string{"correct-horse-battery"})
	for _, prefix := range []string{"", "u:", "me:", "user:"} {
		got := r.String(base64.StdEncoding.EncodeToString([]byte(prefix + "correct-horse-battery" + "@x")))
		if !strings.Contains(got, Mask) || strings.Contains(got, "aG9yc2") {
			t.Errorf("prefix %q: %q", prefix, got)
		}
	}
}

func TestAddTakesEffectAndActiveTells(t *testing.T) {
	r := New([]string{"x"})
	if r.Active() {
		t.Error("active without a value worth masking")
	}
	r.Add("hunter2")
	if !r.Active() || r.String("hunter2") != Mask {
		t.Error("added value is not masked")
	}
}

// No value of three bytes or more is ever left in the result, whatever the values and the text.
func TestNothingIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.StringOfN(rapid.RuneFrom([]rune("abA\"\n=")), 0, 12, -1)
		values := rapid.SliceOfN(alphabet, 0, 8).Draw(t, "values")
		text := strings.Join(rapid.SliceOfN(rapid.OneOf(alphabet, rapid.SampledFrom(append(values, "-"))), 0, 20).Draw(t, "text"), "")
		got := New(values).String(text)
		for _, v := range values {
			quoted, _ := json.Marshal(v)
			for _, form := range []string{v, base64.StdEncoding.EncodeToString([]byte(v)), string(quoted[1 : len(quoted)-1])} {
				if len(v) >= 3 && strings.Contains(got, form) {
					t.Fatalf("%q left in %q", form, got)
				}
			}
		}
	})
}

func TestConcurrentAddAndString(t *testing.T) {
	r := New([]string{"value-0000"})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 50 {
				r.Add(fmt.Sprintf("value-%d-%d", i, n))
				if got := r.String("a value-0000 b"); got != "a *** b" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkLongLineManyValues(b *testing.B) {
	var values []string
	for i := range 500 {
		values = append(values, fmt.Sprintf("ghp_%032d", i*7919))
	}
	r := New(values)
	line := strings.Repeat("Lorem ipsum dolor sit amet, consectetur. ", 25_000) // 1 MB
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		r.String(line)
	}
}
