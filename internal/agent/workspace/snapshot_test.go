package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

// variety fills the repository with all kinds of files that git knows.
func variety(t *testing.T, r *repository) string {
	t.Helper()
	for _, dir := range []string{"deep/er", "empty"} {
		if err := os.MkdirAll(filepath.Join(r.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "run.sh"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"deep/link": "er/file", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(r.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"deep/er/file", "ümläut", "empty/none", "a b\tc"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r.commit("empty/none", "")
}

func TestATreeFromMemoryIsWhatGitWrites(t *testing.T) {
	r := newRepository(t)
	sha := variety(t, r)
	opts := Options{Cache: newCache(t)}
	spec := CloneSpec{URL: r.url(), Ref: "main", SHA: sha}
	first := mustClone(t, opts, spec)
	if opts.Cache.trees.Len() != 1 {
		t.Fatal("the tree was not kept")
	}
	again := mustClone(t, opts, spec)
	list := func(w *Workspace) string {
		return r.in(w.Dir(), "ls-files", "--stage", "--debug") + r.in(w.Dir(), "write-tree") + tree(t, w.Dir())
	}
	if got, want := statless(list(again)), statless(list(first)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Without refreshing the index, git takes no file for changed, and notices one that is.
	r.in(again.Dir(), "diff-files", "--exit-code")
	r.in(again.Dir(), "fsck", "--strict", "--no-dangling")
	if err := os.WriteFile(filepath.Join(again.Dir(), "a.txt"), []byte("two\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := r.in(again.Dir(), "status", "--porcelain"); got != "M a.txt" {
		t.Errorf("status = %q", got)
	}
	if got := read(t, mustClone(t, opts, spec), "a.txt"); got != "one\n" {
		t.Errorf("what a job writes is seen by the next one: %q", got)
	}
}

func TestATreeThatMemoryCannotHoldIsWrittenByGit(t *testing.T) {
	tests := map[string]func(r *repository) string{
		"large": func(r *repository) string {
			return r.commit("large", string(bytes.Repeat([]byte("x"), maxSnapshotBytes+1)))
		},
		"submodule": func(r *repository) string {
			r.git("update-index", "--add", "--cacheinfo", "160000,"+r.git("rev-parse", "HEAD")+",sub")
			r.git("commit", "-q", "-m", "sub")
			return r.git("rev-parse", "HEAD")
		},
	}
	for name, commit := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t)
			spec := CloneSpec{URL: r.url(), Ref: "main", SHA: commit(r)}
			opts := Options{Cache: newCache(t)}
			for range 2 {
				w := mustClone(t, opts, spec)
				r.in(w.Dir(), "diff-files", "--exit-code")
				r.in(w.Dir(), "diff-index", "--exit-code", "--cached", "HEAD")
			}
			if opts.Cache.trees.Len() != 0 {
				t.Error("the tree was kept")
			}
		})
	}
}

func TestATreeFromMemoryDoesNotHideASpoiltMirror(t *testing.T) {
	r := newRepository(t)
	opts := Options{Cache: newCache(t)}
	spec := CloneSpec{URL: r.url(), Ref: "main", SHA: variety(t, r)}
	mustClone(t, opts, spec)
	packs, _ := filepath.Glob(filepath.Join(opts.Cache.dir, "*.git/objects/pack/*.pack"))
	for _, p := range packs {
		if err := errors.Join(os.Chmod(p, 0o600), os.Truncate(p, 100)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		w := mustClone(t, opts, spec)
		r.in(w.Dir(), "fsck", "--no-dangling")
	}
}

func TestARestoredTreeThatFailsIsWrittenByGit(t *testing.T) {
	r := newRepository(t)
	opts := Options{Cache: newCache(t)}
	spec := CloneSpec{URL: r.url(), Ref: "main", SHA: variety(t, r)}
	mustClone(t, opts, spec)
	for _, key := range opts.Cache.trees.Keys() {
		s, _ := opts.Cache.trees.Get(key)
		s.files = s.files[:1] // the index names more
	}
	w := mustClone(t, opts, spec)
	r.in(w.Dir(), "diff-files", "--exit-code")
	if got := read(t, w, "deep/er/file"); got != "deep/er/file" {
		t.Errorf("file = %q", got)
	}
}

func TestAnyIndexIsReadWithinItsBounds(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		index := append([]byte("DIRC\x00\x00\x00\x02\x00\x00"), rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "rest")...)
		_ = restat(index, dir) // an error or not, but no panic
	})
}

// tree lists names, modes and contents below dir.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		content, _ := os.ReadFile(path) // a folder has none, and a link's may not be there
		fmt.Fprintf(&b, "%v %q %q\n", info.Mode(), rel, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var statLines = regexp.MustCompile(`(?m)^  (ctime|mtime|dev|uid|size): .*\n`)

// statless drops what differs between two files of the same content.
func statless(list string) string { return statLines.ReplaceAllString(list, "") }
