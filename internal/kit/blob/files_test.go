package blob

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
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

func put(t testing.TB, s Store, path, content string) {
	t.Helper()
	if n, err := s.Put(t.Context(), path, strings.NewReader(content)); err != nil || n != int64(len(content)) {
		t.Fatalf("Put(%s) = %d, %v", path, n, err)
	}
}

func get(t testing.TB, s Store, path string) string {
	t.Helper()
	r, size, err := s.Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil || int64(len(data)) != size {
		t.Fatalf("read %d of %d bytes, %v", len(data), size, err)
	}
	return string(data)
}

func TestPutGetDelete(t *testing.T) {
	f, dir := openFiles(t)
	put(t, f, "a/b.txt", "first")
	put(t, f, "a/b.txt", "second")
	put(t, f, "empty", "")
	if got := get(t, f, "a/b.txt"); got != "second" {
		t.Errorf("got %q", got)
	}
	for path, want := range map[string]bool{"a/b.txt": true, "empty": true, "a": false, "a/b.txt/c": false, "none": false} {
		if got, err := f.Exists(t.Context(), path); got != want || err != nil {
			t.Errorf("Exists(%s) = %v, %v", path, got, err)
		}
	}
	for range 2 {
		if err := f.Delete(t.Context(), "a/b.txt"); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"a/b.txt", "a", "a/b.txt/c"} {
		if _, _, err := f.Get(t.Context(), path); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get(%s): %v", path, err)
		}
	}
	if info, _ := os.Stat(filepath.Join(dir, "empty")); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestFailedPutLeavesWhatWasThere(t *testing.T) {
	f, dir := openFiles(t)
	put(t, f, "x", "old")
	broken := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("line cut")))
	if _, err := f.Put(t.Context(), "x", broken); err == nil || !strings.Contains(err.Error(), "line cut") {
		t.Errorf("got %v", err)
	}
	if got := get(t, f, "x"); got != "old" {
		t.Errorf("got %q", got)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("%d files left", len(names))
	}
}

func TestAppendAndRead(t *testing.T) {
	f, _ := openFiles(t)
	for _, line := range []string{"one\n", "two\n", "three"} {
		if err := f.Append(t.Context(), "d/log", []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path   string
		cursor int64
		limit  int
		want   Page
	}{
		{"d/log", 0, 100, Page{[]byte("one\ntwo\nthree"), 13, true}},
		{"d/log", 0, 6, Page{[]byte("one\n"), 4, false}},
		{"d/log", 4, 4, Page{[]byte("two\n"), 8, false}},
		{"d/log", 8, 2, Page{[]byte("th"), 10, false}}, // a line longer than the page comes in pieces
		{"d/log", 8, 5, Page{[]byte("three"), 13, true}},
		{"d/log", 99, 5, Page{[]byte{}, 13, true}},
		{"none", 7, 5, Page{nil, 0, true}},
	}
	for _, tt := range tests {
		got, err := f.Read(t.Context(), tt.path, tt.cursor, tt.limit)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("Read(%d, %d): %v %s", tt.cursor, tt.limit, err, diff)
		}
	}
}

func TestAppendsToOnePathDoNotMix(t *testing.T) {
	f, _ := openFiles(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			line := []byte(strings.Repeat(fmt.Sprint(i), 5000) + "\n")
			for range 10 {
				if err := f.Append(t.Context(), "log", line); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	lines := strings.Split(strings.TrimSpace(get(t, f, "log")), "\n")
	if len(lines) != 80 || len(f.writers) != 0 {
		t.Errorf("%d lines, %d writers left", len(lines), len(f.writers))
	}
	for _, line := range lines {
		if line != strings.Repeat(line[:1], 5000) {
			t.Errorf("mixed line of %d bytes", len(line))
		}
	}
}

func TestListIsSortedAndRecursive(t *testing.T) {
	f, dir := openFiles(t)
	for _, path := range []string{"a/b/c", "a.b", "a/b.d", "z"} {
		put(t, f, path, "x")
	}
	os.WriteFile(filepath.Join(dir, temporary+"left"), nil, 0o600)
	for folder, want := range map[string][]string{
		"": {"a.b", "a/b.d", "a/b/c", "z"}, "a": {"a/b.d", "a/b/c"}, "a/b/": {"a/b/c"}, "none": {},
	} {
		got, err := f.List(t.Context(), folder)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("List(%q): %v %s", folder, err, diff)
		}
	}
}

func TestPathsThatLeaveTheStoreAreRefused(t *testing.T) {
	f, dir := openFiles(t)
	outside := filepath.Join(filepath.Dir(dir), "secret")
	os.WriteFile(outside, []byte("x"), 0o600)
	for _, path := range []string{"", ".", "..", "../secret", "/etc/passwd", "a/../../secret", "a//b", "a/", "a/./b", "a\x00b"} {
		_, _, getErr := f.Get(t.Context(), path)
		_, putErr := f.Put(t.Context(), path, bytes.NewReader(nil))
		_, existsErr := f.Exists(t.Context(), path)
		for name, err := range map[string]error{
			"get": getErr, "put": putErr, "exists": existsErr,
			"append": f.Append(t.Context(), path, nil), "delete": f.Delete(t.Context(), path),
		} {
			if !errors.Is(err, ErrPath) {
				t.Errorf("%s %q: %v", name, path, err)
			}
		}
	}
	put(t, f, "a..b/..c", "fine")
	if err := os.Symlink(filepath.Dir(dir), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Get(t.Context(), "link/secret"); err == nil {
		t.Error("read through a symbolic link")
	}
	if err := f.Append(t.Context(), "link/secret", []byte("y")); err == nil {
		t.Error("wrote through a symbolic link")
	}
	if content, _ := os.ReadFile(outside); string(content) != "x" {
		t.Errorf("outside: %q", content)
	}
}
