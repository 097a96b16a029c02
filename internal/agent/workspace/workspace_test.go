package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/vectors"
)

func TestAWorkspaceIsPrivateAndGoesAway(t *testing.T) {
	w := openWorkspace(t, Options{})
	info, err := os.Stat(w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 || !staleName().MatchString(filepath.Base(w.Dir())) {
		t.Errorf("%s has mode %v", w.Dir(), info.Mode())
	}
	// Tools leave folders in which nothing can be deleted.
	locked := filepath.Join(w.Dir(), "mod", "cache")
	if err := os.MkdirAll(locked, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(locked, "f"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(locked, 0o555); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the workspace is still there: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestCleanStaleRemovesOldWorkspacesOnly(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	old := now.Add(-25 * time.Hour)
	for name, when := range map[string]time.Time{
		"kici-abc123": old, "kici-ABCDEF": now, "kici-abc1234": old, "other": old, "kici-pnpm-store-9": old,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(path, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	if n := CleanStale(context.Background(), dir, 24*time.Hour, now); n != 2 {
		t.Errorf("removed %d, want 2", n)
	}
	for _, name := range []string{"kici-ABCDEF", "kici-abc1234", "other"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheDriftGateComparesSourceAndHash(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const file = ".kici/workflows/ci.ts"
	write(file, "export default 1;\r\n")
	write("a.txt", "A")
	const bare = "d7860edba9d5a63a7b851c470f721121348dec5488b16649dc9ddbdb2c3f1de9"
	const withA = "a8f06d52be59310a2d5ca313e262bf7843ddc936c297ecb4d8fc904e8869b98a"
	tests := []struct {
		name, hash string
		resolved   []string
		ok         bool
	}{
		{"equal", bare, nil, true},
		{"equal with a file", withA, []string{"a.txt"}, true},
		{"a file is missing from the list", withA, nil, false},
		{"no hash to compare", "", []string{"nope"}, true},
		{"a file outside counts as unreadable", withA, []string{"../a.txt"}, false},
	}
	for _, tt := range tests {
		err := DriftGate(root, file, tt.hash, tt.resolved)
		if (err == nil) != tt.ok {
			t.Errorf("%s: err = %v, want ok %v", tt.name, err, tt.ok)
		}
		var drift *DriftError
		if err != nil && (!errors.As(err, &drift) || !strings.HasPrefix(err.Error(), "Lock file is out of date: ") ||
			!strings.Contains(err.Error(), tt.hash) || !strings.Contains(err.Error(), drift.Actual)) {
			t.Errorf("%s: %v does not name both hashes", tt.name, err)
		}
	}
	if err := DriftGate(root, "../secret", bare, nil); err == nil {
		t.Error("a source outside of the workspace was read")
	}
}

func TestVectorsDriftGate(t *testing.T) {
	for _, c := range vectors.Load(t, "contenthash.json") {
		var in struct {
			Fn, Source           string
			CompileSchemaVersion int
			AssetDigest          *string
		}
		if err := json.Unmarshal(c.Input, &in); err != nil {
			continue // a vector of another function
		}
		if in.Fn != "workflow" || in.CompileSchemaVersion != 5 || in.AssetDigest != nil {
			continue
		}
		var want string
		if err := json.Unmarshal(c.Expected, &want); err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, "ci.ts"), []byte(in.Source), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := DriftGate(root, "ci.ts", want, nil); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}
