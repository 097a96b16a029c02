package index

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzLines cuts any bytes into lines, forwards, backwards and as pages: all three agree with a split at the breaks.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), int64(1), uint16(1))
	f.Add([]byte(strings.Repeat("long", markBlock)+"\n"+strings.Repeat("x", tailBlock)+"\ny\n"), int64(0), uint16(9))
	f.Add([]byte("\n"), int64(1), uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, from int64, limit uint16) {
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
		from = min(max(from, 0), size)
		page, err := pageFrom(r, from, size, int64(limit)+1)
		if err != nil || !bytes.HasPrefix(data[from:], page) || len(page) > 0 && page[len(page)-1] != '\n' {
			t.Fatalf("page from %d: %q, %v", from, page, err)
		}
		if len(page) == 0 && bytes.IndexByte(data[from:], '\n') >= 0 {
			t.Fatalf("no page from %d, though there is a line", from)
		}
	})
}
