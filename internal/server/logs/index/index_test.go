package index

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzLines cuts any bytes into lines, forwards and backwards: both agree with a split at the breaks.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"))
	f.Add([]byte(strings.Repeat("long", markBlock) + "\n" + strings.Repeat("x", tailBlock) + "\ny\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, size := bytes.NewReader(data), int64(len(data))
		var want []string
		for line := range bytes.Lines(data) {
			if text, whole := bytes.CutSuffix(line, []byte("\n")); whole {
				want = append(want, string(text))
			}
		}
		var got, back []string
		if err := eachLine(r, 0, size, func(line []byte, lineEnd int64) bool {
			got = append(got, string(line))
			if data[lineEnd-1] != '\n' {
				t.Fatalf("line %q does not end at %d", line, lineEnd)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if err := eachLineBack(r, size, func(line []byte, _ int64) bool {
			back = append(back, string(line))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(back)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("forwards: %s", diff)
		}
		if diff := cmp.Diff(want, back); diff != "" {
			t.Fatalf("backwards: %s", diff)
		}
	})
}
