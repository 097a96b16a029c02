package cache

import (
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPathsAreReadable(t *testing.T) {
	const id = "0d9c"
	tests := []struct {
		s                 space
		key               string
		temporary, target string
	}{
		{space{kindUser, "o", "acme/app", ""}, "npm-1", "cache/o/acme_app/shared/.tmp-0d9c.tar.gz", "cache/o/acme_app/shared/npm-1.0d9c.tar.gz"},
		{space{kindUser, "o", ".", ""}, "npm-1", "cache/o/_./shared/.tmp-0d9c.tar.gz", "cache/o/_./shared/npm-1.0d9c.tar.gz"},
		{space{kindUser, "o", "é/..", "run-1"}, "a/b", "cache/o/__../iso/run-1/.tmp-0d9c.tar.gz", "cache/o/__../iso/run-1/a_b~c14cddc033f64b9d.0d9c.tar.gz"},
		{space{kindSource, "o", "r", ""}, "c0ffee", "source/.tmp-0d9c.tar.gz", "source/c0ffee.0d9c.tar.gz"},
		{space{kindDeps, "o", "r", ""}, depsKey("linux", "x64", "1ock"), "deps/linux-x64/.tmp-0d9c.tar.gz", "deps/linux-x64/1ock.0d9c.tar.gz"},
		{space{kindArtifact, "o", "r", "run-1"}, "report.html", "artifacts/o/run-1/.tmp-0d9c", "artifacts/o/run-1/report.html.0d9c"},
	}
	for _, tt := range tests {
		if temporary, target := tt.s.paths(tt.key, id); temporary != tt.temporary || target != tt.target {
			t.Errorf("%v %q:\n got %s %s\nwant %s %s", tt.s, tt.key, temporary, target, tt.temporary, tt.target)
		}
	}
}

// text draws what keys are like, and what they should not be.
func text() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9._/~-]{0,12}`), rapid.SampledFrom([]string{"", ".", "..", "a/b", "a_b", "a_b~c14cddc033f64b9d", strings.Repeat("k", 300)}), rapid.String())
}

func TestStemsOfTwoTextsDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := text().Draw(t, "a"), text().Draw(t, "b")
		if a != b && stem(a) == stem(b) {
			t.Fatalf("%q and %q are both %q", a, b, stem(a))
		}
	})
}

func TestPathsStayInTheirFolderAndAreShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := space{kind: rapid.SampledFrom([]string{kindSource, kindDeps, kindUser, kindArtifact}).Draw(t, "kind"),
			org: text().Draw(t, "org"), repo: text().Draw(t, "repo"), run: text().Draw(t, "run")}
		temporary, target := s.paths(text().Draw(t, "key"), "id")
		for _, p := range []string{temporary, target} {
			if path.Clean(p) != p || !strings.HasPrefix(p, s.folder()+"/") || strings.ContainsAny(p, "\x00\\ ") {
				t.Fatalf("%q", p)
			}
			if name := path.Base(p); len(name) > 150 || name == "." || name == ".." {
				t.Fatalf("name %q", name)
			}
		}
		if temporary == target {
			t.Fatal("one path")
		}
	})
}

func TestSegmentsKeepNothingThatAStoreWouldRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := segment(rapid.String().Draw(t, "text"))
		if s == "" || strings.Trim(s, ".") == "" || strings.Trim(s, safeCharacters) != "" {
			t.Fatalf("%q", s)
		}
	})
}
