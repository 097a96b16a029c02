package segments

import (
	"strings"
	"testing"

	"kici/internal/server/logs/index"
)

func TestNamesOfSegments(t *testing.T) {
	g := newSegment(7, index.End{Size: 100, Lines: 3})
	g.to = index.End{Size: 150, Lines: 4}
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
		var at index.End
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
