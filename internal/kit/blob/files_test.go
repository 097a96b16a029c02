package blob

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func openFiles(t testing.TB) (*Files, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs")
	f, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, dir
}

func TestFilesAreTheServersAlone(t *testing.T) {
	f, dir := openFiles(t)
	put(t, f, "a/b", "x")
	for path, want := range map[string]os.FileMode{"a/b": 0o600, "a": 0o700} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestNoSymbolicLinkLeavesTheFolder(t *testing.T) {
	f, dir := openFiles(t)
	outside := filepath.Join(filepath.Dir(dir), "secret")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(dir), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Get(t.Context(), "link/secret"); err == nil {
		t.Error("read through a symbolic link")
	}
	if _, err := f.Put(t.Context(), "link/secret", strings.NewReader("y")); err == nil {
		t.Error("wrote through a symbolic link")
	}
	if content, _ := os.ReadFile(outside); string(content) != "x" {
		t.Errorf("outside: %q", content)
	}
}

func TestTidyRemovesOnlyWhatPutsLeftBehind(t *testing.T) {
	f, dir := openFiles(t)
	put(t, f, "kept", "x")
	for name, age := range map[string]time.Duration{"old": 2 * time.Hour, "young": 0} {
		path := filepath.Join(dir, temporary, name)
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "kept"), time.Time{}, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := f.Tidy(t.Context(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, temporary))
	if err != nil || len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("left %v, %v", left, err)
	}
	if names, _ := f.List(t.Context(), ""); len(names) != 1 || names[0] != "kept" {
		t.Errorf("blobs %v", names)
	}
}

func TestAnOpenBlobOutlivesItsReplacement(t *testing.T) {
	f, _ := openFiles(t)
	put(t, f, "x", "old")
	r, _, err := f.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	put(t, f, "x", "new")
	if got, err := io.ReadAll(r); string(got) != "old" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
