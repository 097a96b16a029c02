package logs

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamesOfSegments(t *testing.T) {
	g := newSegment(7, end{100, 3})
	g.to = end{150, 4}
	local, sealed, ok := parseSegment(g.local())
	if !ok || sealed || local.object() != g.local()+"-100-3" {
		t.Errorf("%q reads %+v %v %v", g.local(), local, sealed, ok)
	}
	whole, sealed, ok := parseSegment(g.object())
	whole.at = g.at
	if !ok || !sealed || whole != g {
		t.Errorf("%q reads %+v %v %v, want %+v", g.object(), whole, sealed, ok, g)
	}
	const id = "019ac3f2d1004f1c2a77"
	for _, name := range []string{
		"", "seg-000001", "seg-000000-" + id + "-0-0", "seg-1-" + id + "-0-0", "seg-000001-XYZ-0-0", "seg-000001-" + id + "-0",
		"seg-000001-" + id + "-0-0-5", "seg-000001-" + id + "-9-0-5-0", "seg-000001-" + id + "-0-9-5-5", "seg-000001-" + id + "--1-0",
		"seg-000001-" + id + "-9999999999999999999-0", "seg-000001-" + id + "-0-0\n", ".put-seg-000001-" + id + "-0-0",
	} {
		if g, _, ok := parseSegment(name); ok {
			t.Errorf("%q reads %+v", name, g)
		}
	}
}

// FuzzArrange makes an index of any names: the segments lie one behind another, each once, whatever the names say.
func FuzzArrange(f *testing.F) {
	f.Add("seg-000002-019ac3f2d1004f1c2a77-10-1-30-3\nseg-000001-019ac3f2d1004f1c2a77-0-0-10-1\nseg-000001-019ac3f2d1004f1c2a77-0-0-10-1")
	f.Add("seg-000001-019ac3f2d1004f1c2a77-0-0-999999999999999999-999999999999999999\nx/seg-000001-029ac3f2d1004f1c2a77-5-5-5-5")
	f.Fuzz(func(t *testing.T, names string) {
		segments := arrange(parseSegments(strings.Split(names, "\n")))
		var at end
		seen := map[string]bool{}
		for i, g := range segments {
			key := g.local()[:len("seg-000001-")+20]
			if g.at != at || g.size() < 0 || g.lines() < 0 || seen[key] {
				t.Fatalf("segment %d of %q: %+v, want it at %+v", i, names, g, at)
			}
			if i > 0 && g.number < segments[i-1].number {
				t.Fatalf("segment %d of %q is out of order", i, names)
			}
			seen[key] = true
			at = g.stop()
			if again, sealed, ok := parseSegment(g.object()); !ok || !sealed || again.object() != g.object() {
				t.Fatalf("%+v is written %q and read as %+v", g, g.object(), again)
			}
		}
		if endOf(segments) != at {
			t.Fatalf("%q ends at %+v, want %+v", names, endOf(segments), at)
		}
	})
}

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
