package bundles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/agent/runner"
)

func write(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestKeyFollowsWhatABundleIsMadeOf(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, root string)
		same   bool
		none   bool // no bundle may be remembered
	}{
		{name: "nothing", change: func(*testing.T, string) {}, same: true},
		{name: "a file beside the workflows", change: func(t *testing.T, root string) { write(t, root, "main.go", "package main") }, same: true},
		{name: "the workflow", change: func(t *testing.T, root string) { write(t, root, ".kici/workflows/ci.ts", "b") }},
		{name: "what it may import", change: func(t *testing.T, root string) { write(t, root, ".kici/lib.ts", "b") }},
		{name: "the kind of modules", change: func(t *testing.T, root string) { write(t, root, "package.json", `{"type":"module"}`) }},
		{name: "installed packages", change: func(t *testing.T, root string) { write(t, root, "node_modules/x/index.js", "") }, none: true},
		{name: "packages of the workflows", change: func(t *testing.T, root string) { write(t, root, ".kici/node_modules/x/index.js", "") }, none: true},
		{name: "a link", change: func(t *testing.T, root string) {
			if err := os.Symlink("../main.go", filepath.Join(root, ".kici/link.ts")); err != nil {
				t.Fatal(err)
			}
		}, none: true},
		{name: "too much to read", change: func(t *testing.T, root string) { write(t, root, ".kici/large", strings.Repeat("x", maxKeyBytes+1)) }, none: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, ".kici/workflows/ci.ts", "a")
			before := Key(root, "ci.ts")
			tt.change(t, root)
			after := Key(root, "ci.ts")
			if before == "" || (after == "") != tt.none || (after == before) != tt.same {
				t.Errorf("before %q, after %q", before, after)
			}
		})
	}
}

func TestMemoryKeepsTheBundlesThatWereUsedLast(t *testing.T) {
	m := New()
	m.Keep("large", runner.Bundle{Part: strings.Repeat("x", maxBundleBytes+1)})
	m.Keep("empty", runner.Bundle{})
	for i := range maxBundles + 1 {
		m.Keep(string(rune('a'+i)), runner.Bundle{Part: "part"})
	}
	for _, key := range []string{"", "large", "empty", "a"} {
		if m.Find(key) != nil {
			t.Errorf("%q is remembered", key)
		}
	}
	if found := m.Find("b"); found == nil || found.Part != "part" {
		t.Errorf("b: %+v", found)
	}
}
